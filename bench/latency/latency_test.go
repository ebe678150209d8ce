package latency

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

// options measure two ranks that a script plays. A call of rank r takes 1000 (r + 1) ns, except the last call of rank
// 1, which takes 9000 ns.
func options(t *testing.T) *Options {
	worker := filepath.Join(t.TempDir(), "worker")
	script := `#!/bin/sh
rank=$(sed -n 's/^rank=//p' "$2")
grep -q ' iters=3 .*mode=each' "$2" || exit 3
[ $rank = 0 ] && calls='[0,1000],[2000,3000],[4000,5000]' || calls='[0,2000],[2000,4000],[4000,13000]'
echo '{"rank":'$rank',"collective":"allreduce","bytes":8,"count":2,"time_us":5,"wrong":'$rank',"iters_ns":['$calls']}'
`
	require.NoError(t, os.WriteFile(worker, []byte(script), 0o700))
	return &Options{
		Spec:  bench.Spec{Collective: schedule.AllReduce, Type: datatype.Float32, Op: datatype.Sum, MinBytes: 8, Iters: 3},
		Ranks: bench.Ranks{N: 2, Transport: "shm", Worker: worker, Deadline: time.Minute},
		Loads: []Load{None, Go}, Commands: map[Load][]string{Go: {"sleep", "600"}},
	}
}

func TestRunKnownTimes(t *testing.T) {
	reports, err := Run(t.Context(), options(t))
	if err != nil || len(reports) != 2 {
		t.Fatalf("%v, %d reports; want two", err, len(reports))
	}
	for i, load := range []Load{None, Go} {
		r := reports[i]
		if r.Load != load || r.Times.P50 != 1000 || r.Times.P90 != 9000 || r.Times.Max != 9000 || r.Wrong != 1 {
			t.Errorf("%s: %+v", load, r)
		}
		calls := 0
		for _, b := range r.Histogram {
			calls += b.Count
		}
		if calls != 6 {
			t.Errorf("%s: %d calls in the histogram, want 6", load, calls)
		}
	}
}

func TestRunWithoutCommand(t *testing.T) {
	o := options(t)
	o.Commands = nil
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no command") {
		t.Errorf("%v; want an error that a load has no command", err)
	}
}

func TestLoadThatEnds(t *testing.T) {
	o := options(t)
	ready := filepath.Join(t.TempDir(), "ended")
	o.Commands[Go] = []string{"sh", "-c", "echo out of garbage >&2; echo $$ > " + ready + "; exit 1"}
	// The ranks begin after the load has ended. It is then a zombie, since its parent has not waited for it yet.
	script, err := os.ReadFile(o.Ranks.Worker)
	require.NoError(t, err)
	wait := "\nuntil grep -q '^State:.Z' /proc/$(cat " + ready + ")/status; do sleep 0.01; done\n"
	waits := strings.Replace(string(script), "\n", wait, 1)
	require.NoError(t, os.WriteFile(o.Ranks.Worker, []byte(waits), 0o700))
	o.Loads = []Load{Go}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "out of garbage") {
		t.Errorf("%v; want the output of the load that has ended", err)
	}
}
