package calibrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
)

// workload is a collective under a planner whose plans have a shape of their own.
type workload struct {
	name       string
	collective schedule.Collective
	algorithm  string
	planner    string
	current    bool    // plans begin at the circuits that the workload before has left
	wire       float64 // about how many bytes are on one circuit, as a part of the data size, with one plane
}

// workloads are those that a fabric can run. They follow each other: what forwards does so on the
// rings of the ones before.
func workloads(f *fabric.Fabric, ranks int) []workload {
	p := float64(ranks)
	all := []workload{
		{"ring AllReduce", schedule.AllReduce, "ring", "static", false, 2 * (p - 1) / p},
		{"ring AllGather", schedule.AllGather, "ring", "static", false, (p - 1) / p},
	}
	if ranks < 3 {
		return all // there is one permutation: nothing to forward, nothing to switch
	}
	const twice = "recursive-doubling"
	if f.Forwarding {
		all = append(all, workload{"AllGather, forwarded", schedule.AllGather, twice, "static", true, p / 2})
	}
	return append(all, workload{"AllGather, switched", schedule.AllGather, twice, "perstep", false, (p - 1) / p})
}

// Wire times of the runs of a workload, at the bandwidth of the fabric file, as multiples of the
// shortest: latencies show in the short ones, bandwidth in the long ones. freshTime is that of the run
// that is predicted: none of those.
var wireTimes = []float64{1, 2, 4, 8}

const freshTime = 5

// The shortest wire time: what is sent is more than a few frames, which shapers let through at once
// after a pause.
const (
	shortWire   = 2 * time.Millisecond
	shortFrames = 12
)

// shortest returns the wire time of the shortest runs.
func shortest(f *fabric.Fabric) time.Duration {
	frame := float64(kernel.DefaultMTU) * 8 / float64(f.Planes[0].Bandwidth)
	return max(shortWire, time.Duration(shortFrames*frame*float64(time.Second)))
}

// size is the data size that takes about so long on the wire.
func (w *workload) size(f *fabric.Fabric, ranks int, wire time.Duration) int64 {
	bytes := float64(f.Planes[0].Bandwidth) / 8 * wire.Seconds() * float64(len(f.Planes)) / w.wire
	unit := int64(4 * ranks * len(f.Planes)) // so that everything divides
	return max(int64(bytes)/unit, 1) * unit
}

// run is a workload at one size: its plan, and what each iteration took.
type run struct {
	*workload
	bytes int64
	terms terms
	us    []float64 // by iteration
}

// settle is how much longer than a reconfiguration planes rest between iterations, so that what a
// plan leaves for after its end does not delay the next.
const settle = 10 * time.Millisecond

// warmup iterations are not timed: the first call plans, and takes planes to where plans begin.
const warmup = 2

// jobLimit bounds one job, patience one wait in it.
const (
	jobLimit = 5 * time.Minute
	patience = "30s"
)

// measure runs a workload at all sizes as one job.
func (o *Options) measure(ctx context.Context, f *fabric.Fabric, w *workload, times []float64) ([]run, error) {
	dir, err := os.MkdirTemp("", "lightpath-calibrate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	store := filepath.Join(dir, "plans")
	job := bench.Ranks{
		N: o.Ranks, Worker: o.Worker, Transport: "ebpf", Deadline: jobLimit,
		Env: []string{
			"LIGHTPATH_FABRIC=" + o.Fabric, "LIGHTPATH_PLANNER=" + w.planner, "LIGHTPATH_PLAN_DIR=" + store,
			"LIGHTPATH_PLAN_WAIT=1", "LIGHTPATH_PLAN_TOLERANCE=0", "LIGHTPATH_TIMEOUT=" + patience,
			fmt.Sprintf("LIGHTPATH_ALGORITHM=%s:%s", w.collective, w.algorithm),
		},
	}
	if w.current {
		job.Env = append(job.Env, "LIGHTPATH_PLAN_INITIAL=current")
	}
	pause := settle
	for i := range f.OCS {
		pause = max(pause, settle+f.OCS[i].Reconfig)
	}
	var runs []run
	var lines []string
	for _, n := range times {
		r := run{workload: w, bytes: w.size(f, o.Ranks, time.Duration(n*float64(shortest(f))))}
		runs = append(runs, r)
		lines = append(lines, fmt.Sprintf("run collective=%s type=float op=sum bytes=%d count=%d warmup=%d iters=%d check=1 mode=sync pause=%d",
			w.collective, r.bytes, bench.Count(w.collective, r.bytes, datatype.Float32, o.Ranks), warmup, o.Iters, pause.Milliseconds()))
	}
	reports, err := job.Run(ctx, lines)
	if err != nil {
		return nil, fmt.Errorf("calibrate: %s: %w", w.name, err)
	}
	used, err := usedPlans(store, w.planner)
	if err == nil && len(used) != len(runs) {
		err = fmt.Errorf("%d plans for %d sizes", len(used), len(runs))
	}
	for i := range runs {
		if err == nil {
			runs[i].us, err = completions(reports, i)
		}
		if err == nil {
			runs[i].terms, err = termsOf(used[i].problem, used[i].plan)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("calibrate: %s: %w", w.name, err)
	}
	return runs, nil
}

// completions returns what each iteration of a run took the slowest rank.
func completions(reports [][]bench.Report, i int) ([]float64, error) {
	var perRank []bench.Report
	for rank, all := range reports {
		switch {
		case i >= len(all) || len(all[i].Iters) == 0:
			return nil, fmt.Errorf("rank %d did not report run %d", rank, i)
		case all[i].Wrong > 0:
			return nil, fmt.Errorf("rank %d: %d bytes: %d wrong elements", rank, all[i].Bytes, all[i].Wrong)
		}
		perRank = append(perRank, all[i])
	}
	return bench.Completions(perRank), nil
}

// usedPlan is a plan that the ranks have used.
type usedPlan struct {
	problem *plans.Problem
	plan    *plans.Plan
}

// usedPlans returns the plans in the cache of one job, by size.
func usedPlans(dir, planner string) ([]usedPlan, error) {
	c, err := cache.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := c.List()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b cache.Info) int {
		if a.Err != nil || b.Err != nil {
			return 0
		}
		return int(a.Entry.Span.Max - b.Entry.Span.Max)
	})
	var all []usedPlan
	for _, e := range entries {
		if e.Err != nil {
			return nil, e.Err
		}
		if e.Entry.Key.Planner == planner {
			all = append(all, usedPlan{e.Entry.Span.High.Problem, e.Entry.Span.High.Plan})
		}
	}
	return all, nil
}
