package status

import (
	"os"
	"strings"
	"testing"
)

// TestMetrics checks the text of all metrics: of ranks that have answered and no others, with labels that Prometheus
// can read. The page of metrics names each of them.
func TestMetrics(t *testing.T) {
	text := string(Metrics([]Comm{{ID: "7f", Name: "a\"\\\n\xff", Ranks: []Rank{
		{Rank: 0, Host: "h", Answer: Answered, State: Healthy, Counts: map[string]uint64{"Send": 1, "AllReduce": 3},
			Op:    &Op{Seconds: 1.5},
			Ahead: &Ahead{Used: 2, Asked: 1, HiddenSeconds: 0.5},
			Totals: []Total{{Call: "AllReduce", Size: 4096, Algorithm: "ring", Count: 3, Bytes: 9000, BusBytes: 13500,
				Seconds: 0.25}}},
		{Rank: 1, Host: "h", Answer: Unasked},
	}}}))
	var samples []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, line)
		}
	}
	const labels = `{communicator="7f",name="a\"\\\n?",rank="0",host="h"`
	const total = `,call="AllReduce",size="4096",algorithm="ring"} `
	want := []string{
		`lightpath_rank_state` + labels + `,state="healthy"} 1`,
		`lightpath_rank_calls_total` + labels + `,call="AllReduce"} 3`,
		`lightpath_rank_calls_total` + labels + `,call="Send"} 1`,
		`lightpath_rank_call_seconds` + labels + `} 1.5`,
		`lightpath_rank_tickets_total` + labels + `,ticket="used"} 2`,
		`lightpath_rank_tickets_total` + labels + `,ticket="asked"} 1`,
		`lightpath_rank_tickets_total` + labels + `,ticket="declined"} 0`,
		`lightpath_rank_switching_seconds_total` + labels + `,switching="hidden"} 0.5`,
		`lightpath_rank_switching_seconds_total` + labels + `,switching="exposed"} 0`,
		`lightpath_rank_operations_total` + labels + total + `3`,
		`lightpath_rank_operation_bytes_total` + labels + total + `9000`,
		`lightpath_rank_operation_bus_bytes_total` + labels + total + `13500`,
		`lightpath_rank_operation_seconds_total` + labels + total + `0.25`,
	}
	if got := strings.Join(samples, ""); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("got:\n%swant:\n%s", got, strings.Join(want, "\n"))
	}
	page, err := os.ReadFile("../../docs/monitoring/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics {
		head := "# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n"
		if !strings.Contains(text, head) || !strings.Contains(string(page), strings.TrimPrefix(m.name, "lightpath")) {
			t.Errorf("%s has no head, or is not in docs/monitoring/README.md", m.name)
		}
	}
}
