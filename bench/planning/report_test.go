package planning

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lightpath/bench/figure"
	"lightpath/internal/require"
)

// TestReports makes every report in its quick form and reads its JSON back.
func TestReports(t *testing.T) {
	for _, r := range Reports {
		t.Run(r.Name, func(t *testing.T) {
			if strings.HasPrefix(r.Name, "weave-") { // as weave, for another collective
				return
			}
			if testing.Short() && r.Name != "harvest" {
				t.Skip("short")
			}
			report, err := Reports.Make(t.Context(), Paper, r.Name, figure.Options{Quick: true, Runs: 1, Seed: 1})
			require.NoError(t, err)
			dir := t.TempDir()
			paths, err := report.Write(dir)
			require.NoError(t, err)
			data, err := os.ReadFile(filepath.Join(dir, "lightpath-"+r.Name+".json"))
			require.NoError(t, err)
			var back struct {
				Figure  string
				Machine machine
				Columns []string
				Rows    [][]any
			}
			require.NoError(t, json.Unmarshal(data, &back))
			if back.Figure != r.Name || back.Machine.CPUs < 1 || back.Machine.Go == "" || len(back.Rows) == 0 {
				t.Errorf("%+v", back)
			}
			for _, row := range back.Rows {
				if len(row) != len(back.Columns) {
					t.Errorf("%d cells under %d columns: %v", len(row), len(back.Columns), row)
				}
			}
			if filepath.Base(paths[0]) != "lightpath-"+r.Name+".csv" {
				t.Error(paths)
			}
			if r.About == "" || !strings.Contains(strings.Join(Reports.List(), "\n"), r.About) {
				t.Error("not in the list")
			}
			checkRatios(t, report)
		})
	}
}

// checkRatios checks that no time of ours in a report is above the best of the others.
func checkRatios(t *testing.T, r *figure.Figure) {
	t.Helper()
	for c, name := range r.Table.Columns {
		if name != "ratio" {
			continue
		}
		for _, row := range r.Table.Rows {
			if v, err := strconv.ParseFloat(row[c], 64); err != nil || v > 1+1e-6 {
				t.Errorf("ratio %s of %v", row[c], row)
			}
		}
	}
}

// TestExample checks the printed numbers of SWOT's Figure 5.
func TestExample(t *testing.T) {
	f := &figure.Figure{}
	require.NoError(t, addExample(t.Context(), f, figure.Options{}, time.Second))
	for _, c := range f.Claims {
		if c.Ours != c.Printed {
			t.Errorf("%v", c)
		}
	}
	if len(f.Claims) != 3 || f.Claims[1].Note != "proven optimal" {
		t.Error(f.Claims)
	}
}

func TestMeasure(t *testing.T) {
	var kept [][]byte
	got := measure(time.Millisecond, func() { kept = append(kept[:0], make([]byte, 1<<10)) })
	if got.ns <= 0 || got.allocs != 1 || got.bytes < 1<<10 || got.bytes > 2<<10 || len(kept) != 1 {
		t.Errorf("%+v", got)
	}
}
