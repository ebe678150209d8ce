package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/chrometrace"
	"lightpath/internal/require"
	"lightpath/shim/flight"
	"lightpath/shim/status"
)

// TestRanksOfNobody: without processes there is nothing to say, and nothing wrong.
func TestRanksOfNobody(t *testing.T) {
	t.Setenv("LIGHTPATH_STATUS_DIR", filepath.Join(t.TempDir(), "none"))
	for status, args := range map[int][][]string{
		0:             {{"ranks"}, {"ranks", "--json", "-v"}},
		cli.ExitNo:    {{"ranks", "--dump", t.TempDir()}},
		cli.ExitUsage: {{"ranks", "x"}, {"ranks", "merge"}, {"ranks", "--address", "127.0.0.1:1", "--timeout", "1s"}},
	} {
		for _, a := range args {
			if got := cli.Run(t.Context(), lightpath(), a); got != status {
				t.Errorf("%v: exit %d, not %d", a, got, status)
			}
		}
	}
}

// TestRankMetrics checks the file for Prometheus: ranks that have answered, and no others.
func TestRankMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ranks.prom")
	require.NoError(t, writeMetrics(path, &status.Report{Comms: []status.Comm{{ID: "7f", Name: "tensor", Ranks: []status.Rank{
		{Rank: 0, Host: "a", Answer: status.Answered, State: status.Healthy, Counts: map[string]uint64{"AllReduce": 3},
			Ahead: &status.Ahead{Used: 2, Asked: 1, HiddenSeconds: 0.5}},
		{Rank: 1, Host: "b", Answer: status.Unasked},
	}}}}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	labels := `{%scommunicator="7f",host="a",name="tensor",rank="0"%s}`
	for _, want := range []string{
		"lightpath_rank_calls_total" + fmt.Sprintf(labels, `call="AllReduce",`, "") + " 3\n",
		"lightpath_rank_tickets_total" + fmt.Sprintf(labels, "", `,ticket="used"`) + " 2\n",
		"lightpath_rank_switching_seconds_total" + fmt.Sprintf(labels, "", `,switching="hidden"`) + " 0.5\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), `rank="1"`) {
		t.Errorf("a rank that has not answered has metrics:\n%s", text)
	}
}

// TestRanksMerge: ranks that differ, a trace, and files that are none.
func TestRanksMerge(t *testing.T) {
	dir := t.TempDir()
	write := func(rank int, operations ...flight.Operation) string {
		d := flight.Dump{Version: flight.Version, Comm: "c", Ranks: 2, Rank: rank, Time: 100, UnixTime: 200,
			Operations: operations}
		text, err := d.Encode()
		require.NoError(t, err)
		path := filepath.Join(dir, d.FileName())
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	op := flight.Operation{Number: 1, Seq: 1, Call: "AllReduce", Detail: "AllReduce", Outcome: flight.UnderWay,
		Arrived: 10}
	a, b := write(0, op), write(1)
	trace := filepath.Join(dir, "trace.json")
	if got := cli.Run(t.Context(), lightpath(), []string{"ranks", "merge", "--trace", trace, a, b}); got != cli.ExitNo {
		t.Errorf("ranks that differ: exit %d", got)
	}
	if got := cli.Run(t.Context(), lightpath(), []string{"ranks", "merge", "--json", a}); got != 0 {
		t.Errorf("one rank: exit %d", got)
	}
	var events chrometrace.File
	if text, err := os.ReadFile(trace); err != nil || json.Unmarshal(text, &events) != nil || len(events.Events) == 0 {
		t.Errorf("%v: %+v", err, events)
	}
	if got := cli.Run(t.Context(), lightpath(), []string{"ranks", "merge", trace}); got != cli.ExitUsage {
		t.Errorf("a trace is no recorder: exit %d", got)
	}
}
