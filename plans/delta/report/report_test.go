package report_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/delta"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/report"
	"lightpath/plans/delta/train"
)

// runs is the same topology with fair shares and with critical transfers first.
func runs(t *testing.T, model string, batches int) (*dag.Graph, []report.Run) {
	t.Helper()
	c, err := train.Preset(model)
	require.NoError(t, err)
	c.MicroBatches = batches
	g, err := train.Generate(c)
	require.NoError(t, err)
	p, err := delta.NewPlanner(g)
	require.NoError(t, err)
	found, err := p.Fast(t.Context(), delta.Options{Sharing: delta.Critical})
	require.NoError(t, err)
	var list []report.Run
	for _, sharing := range []delta.Sharing{delta.Fair, delta.Critical} {
		plan, err := p.Evaluate(found.Circuits, sharing)
		require.NoError(t, err)
		s, err := p.Schedule(plan)
		require.NoError(t, err)
		list = append(list, report.Run{Name: string(sharing), Schedule: s, Note: "<as found>"})
	}
	return g, list
}

// wellFormed counts the elements of a picture, and fails if it is none or a number is no number.
func wellFormed(t *testing.T, text string) map[string]int {
	t.Helper()
	count := make(map[string]int)
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("%v in %.200s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestPictures(t *testing.T) {
	g, list := runs(t, "gpt-7b", 4)
	s := list[0].Schedule
	count := wellFormed(t, report.Topology(g, s.Circuits))
	if count["circle"] != len(g.Pods) || count["path"] != len(g.Links) {
		t.Errorf("topology: %v for %d pods, %d links", count, len(g.Pods), len(g.Links))
	}
	drawn := 0
	for _, span := range s.Spans {
		if span.End > span.Start {
			drawn++
		}
	}
	timeline := report.Timeline(g, s, 1040)
	wellFormed(t, timeline)
	for i := range g.Tasks {
		if s.Spans[i].End > s.Spans[i].Start && !strings.Contains(timeline, "<title>"+g.Tasks[i].Name+":") {
			t.Errorf("timeline without %s", g.Tasks[i].Name)
		}
	}
	wellFormed(t, report.Profile(g, s))
}

// TestHeld: fair shares slow down a transfer on the critical path. On the same circuits it has its full rate if
// critical transfers come first, and the picture says so.
func TestHeld(t *testing.T) {
	g, list := runs(t, "megatron-462b", 4)
	var page strings.Builder
	require.NoError(t, report.HTML(&page, g, list))
	path, _ := g.Critical(list[0].Schedule)
	for k := len(path) - 1; k >= 0; k-- {
		task := &g.Tasks[path[k]]
		if task.Kind != "dp" {
			continue
		}
		picture := report.Contention(g, list, path[k])
		wellFormed(t, picture)
		full := fmt.Sprintf("critical: %s at %.4g to %.4g GB/s", task.Name, g.FullRate(task)/1e3, g.FullRate(task)/1e3)
		if !strings.Contains(picture, full) {
			t.Errorf("no %q", full)
		}
		if strings.Contains(picture, strings.Replace(full, "critical:", "fair:", 1)) {
			t.Error("fair shares have the full rate, too")
		}
		return
	}
	t.Error("no gradients on the critical path")
}

func TestIdealNetwork(t *testing.T) {
	g, list := runs(t, "gpt-7b", 2)
	ideal := *list[0].Schedule
	ideal.Circuits = nil
	var page strings.Builder
	require.NoError(t, report.HTML(&page, g, []report.Run{{Name: "ideal & <free>", Schedule: &ideal}}))
	if strings.Contains(page.String(), "<free>") || !strings.Contains(page.String(), "ideal network") {
		t.Error("not escaped, or not said to be ideal")
	}
}

// TestPage writes a page; LIGHTPATH_TEST_DUMP names a file to keep it in.
func TestPage(t *testing.T) {
	model, batches := "gpt-7b", 4
	dump := os.Getenv("LIGHTPATH_TEST_DUMP")
	if dump != "" {
		model, batches = "megatron-462b", 8
	}
	g, list := runs(t, model, batches)
	var page strings.Builder
	require.NoError(t, report.HTML(&page, g, list))
	for _, want := range []string{"&lt;as found&gt;", "fair: topology", "critical: iteration", "Gradients from",
		"of " + "16</td>"} {
		if dump == "" && !strings.Contains(page.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	if dump != "" {
		require.NoError(t, os.WriteFile(dump, []byte(page.String()), 0o600))
	}
	if math.IsNaN(list[0].Schedule.Makespan) {
		t.Error("no makespan")
	}
}
