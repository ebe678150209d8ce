package report_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
	"lightpath/shim/status"
)

// reduce makes some calls on every rank.
func reduce(w *shimtest.World, n int) {
	w.Must(func(c *shim.Comm) error {
		for range n {
			if err := shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))}); err != nil {
				return err
			}
		}
		return nil
	})
}

// written returns the only file of metrics in a directory.
func written(t *testing.T, dir, kind string) string {
	t.Helper()
	host, err := os.Hostname()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("lightpath-%s-%d.%s", host, os.Getpid(), kind)))
	require.NoError(t, err)
	return string(text)
}

// TestWriteMetrics: when communicators end, the file has the last values of all of them, with sums of their operations.
func TestWriteMetrics(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"prom", "jsonl"} {
		where := filepath.Join(dir, kind)
		if kind == "jsonl" {
			where = "json:" + where
		}
		cfg := shimtest.Settings(t, "LIGHTPATH_METRICS", where, "LIGHTPATH_TRANSPORT", "tcp")
		first, second := shimtest.NewWorldWith(t, 2, cfg), shimtest.NewWorldWith(t, 1, cfg)
		reduce(first, 3)
		first.Destroy()
		reduce(second, 2)
		require.NoError(t, second.Comms[0].Abort())
		second.Destroy()
		if kind == "jsonl" {
			checkLines(t, first, written(t, filepath.Join(dir, kind), kind))
			continue
		}
		text := written(t, filepath.Join(dir, kind), kind)
		for _, want := range []string{
			fmt.Sprintf(`_state{communicator="%x",name="",rank="1",host="%s",state="finalized"} 1`, first.Comms[0].ID,
				first.Comms[1].Log.Host),
			fmt.Sprintf(`_state{communicator="%x",name="",rank="0",host="%s",state="failed"} 1`, second.Comms[0].ID,
				first.Comms[1].Log.Host),
			`call="AllReduce",size="4096",algorithm="recursive-doubling-xor"} 3`, `call="AllReduce"} 2`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in:\n%s", want, text)
			}
		}
	}
}

// checkLines checks lines of JSON: one for each rank, in the order in which their communicators have ended.
func checkLines(t *testing.T, w *shimtest.World, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines:\n%s", len(lines), text)
	}
	for r := range w.Comms {
		var c status.Comm
		require.NoError(t, json.Unmarshal([]byte(lines[r]), &c))
		if c.ID != fmt.Sprintf("%x", w.Comms[0].ID) || c.Size != 2 || len(c.Ranks) != 1 || c.Ranks[0].Rank != r ||
			len(c.Ranks[0].Totals) != 1 {
			t.Fatalf("line %d: %+v", r, c)
		}
		if got := c.Ranks[0].Totals[0]; got.Count != 3 || got.Bytes != 12000 || got.BusBytes != 12000 || got.Seconds <= 0 ||
			got.AlgBW <= 0 || got.BusBW != got.AlgBW {
			t.Errorf("line %d: %+v", r, got)
		}
	}
}

// TestMetricsNotWritten: a directory that cannot be written is one warning, and the job goes on.
func TestMetricsNotWritten(t *testing.T) {
	dir := t.TempDir()
	file, log := filepath.Join(dir, "file"), filepath.Join(dir, "log")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	w := shimtest.NewWorldWith(t, 2, shimtest.Settings(t, "LIGHTPATH_METRICS", filepath.Join(file, "metrics"),
		"NCCL_DEBUG", "WARN", "NCCL_DEBUG_FILE", log))
	reduce(w, 1)
	w.Destroy()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	if strings.Count(string(text), "LIGHTPATH_METRICS: the job goes on without metrics: mkdir "+file) != 1 {
		t.Errorf("log: %s", text)
	}
}

// TestNoTotals: without LIGHTPATH_METRICS, no operations are summed up.
func TestNoTotals(t *testing.T) {
	w := shimtest.NewWorldWith(t, 2, shimtest.Settings(t))
	reduce(w, 1)
	if all := recorder.Of(w.Comms[0]).Totals(); all != nil {
		t.Errorf("%+v", all)
	}
}
