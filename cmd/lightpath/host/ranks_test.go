package host

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/chrometrace"
	"lightpath/internal/require"
	"lightpath/shim/flight"
)

// TestRanksOfNobody: without processes there is nothing to say, and nothing wrong.
func TestRanksOfNobody(t *testing.T) {
	t.Setenv("LIGHTPATH_STATUS_DIR", filepath.Join(t.TempDir(), "none"))
	for status, args := range map[int][][]string{
		0:          {{"ranks"}, {"ranks", "--json", "-v"}},
		cli.ExitNo: {{"ranks", "--dump", t.TempDir()}},
		cli.ExitUsage: {{"ranks", "x"}, {"ranks", "merge"}, {"ranks", "--address", "127.0.0.1:1", "--timeout", "1s"},
			{"ranks", "--watch", "--json"}, {"ranks", "--watch", "--dump", t.TempDir()}},
	} {
		for _, a := range args {
			if got := cli.Run(t.Context(), lightpath(), a); got != status {
				t.Errorf("%v: exit %d, not %d", a, got, status)
			}
		}
	}
}

// TestRankMetrics: --metrics writes a file, and with --watch writes it every second. It goes with no other output.
func TestRankMetrics(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LIGHTPATH_STATUS_DIR", filepath.Join(dir, "none"))
	path := filepath.Join(dir, "ranks.prom")
	written := func() bool {
		text, err := os.ReadFile(path)
		_ = os.Remove(path)
		return err == nil && strings.Contains(string(text), "# TYPE lightpath_rank_state gauge\n")
	}
	if got := cli.Run(t.Context(), lightpath(), []string{"ranks", "--metrics", path}); got != 0 || !written() {
		t.Errorf("exit %d", got)
	}
	for _, other := range [][]string{{"--json"}, {"--address", "127.0.0.1:1"}, {"--dump", dir}} {
		args := append([]string{"ranks", "--metrics", path}, other...)
		if got := cli.Run(t.Context(), lightpath(), args); got != cli.ExitUsage || written() {
			t.Errorf("%v: exit %d", args, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := ranksOptions{metrics: path}
		go func() {
			if err := o.watchRanks(ctx, filepath.Join(dir, "none")); err != nil {
				t.Error(err)
			}
		}()
		for i := range 3 {
			if synctest.Wait(); !written() {
				t.Errorf("no file after %d s", i)
			}
			time.Sleep(time.Second)
		}
		cancel()
	})
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
