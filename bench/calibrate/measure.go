package calibrate

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"lightpath/bench"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/fabric"
)

// workload is a collective under a planner. Its plans have other terms than those of the other workloads.
type workload struct {
	name       string
	collective schedule.Collective
	algorithm  string
	planner    string
	current    bool    // plans begin with the circuits that the workload before has left
	wire       float64 // bytes on one circuit over the data size, on one plane, approximately
}

// workloads returns the workloads that a fabric can run, in order: the forwarding one uses the rings of the ones
// before.
func workloads(f *fabric.Fabric, ranks int) []workload {
	p := float64(ranks)
	all := []workload{
		{"ring AllReduce", schedule.AllReduce, "ring", "static", false, 2 * (p - 1) / p},
		{"ring AllGather", schedule.AllGather, "ring", "static", false, (p - 1) / p},
	}
	if ranks < 3 {
		return all // two ranks have one permutation: there is no forwarding and no reconfiguration
	}
	const doubling = "recursive-doubling"
	if f.Forwarding {
		all = append(all, workload{"AllGather, forwarded", schedule.AllGather, doubling, "static", true, p / 2})
	}
	return append(all, workload{"AllGather, switched", schedule.AllGather, doubling, "perstep", false, (p - 1) / p})
}

// wireTimes are the wire times of the runs of a workload, at the bandwidth of the fabric file, in units of the
// shortest. Short runs show latencies, long runs the bandwidth.
var wireTimes = []float64{1, 2, 4, 8}

// The first workload has one more run, between those of 4 and 8, which is predicted and not fitted.
const (
	checkTime = 5
	checkRun  = 3 // its index among all runs
)

// The shortest wire time is at least shortWire and shortFrames frames. Shapers let a burst pass after a pause. So the
// burst is a small part of that time.
const (
	shortWire   = 2 * time.Millisecond
	shortFrames = 12
)

// shortest returns the wire time of the shortest runs.
func shortest(f *fabric.Fabric) time.Duration {
	frame := float64(kernel.DefaultMTU) * 8 / float64(f.Planes[0].Bandwidth)
	return max(shortWire, time.Duration(shortFrames*frame*float64(time.Second)))
}

// size returns the data size that takes about so long on the wire.
func (w *workload) size(f *fabric.Fabric, ranks int, wire time.Duration) int64 {
	bytes := float64(f.Planes[0].Bandwidth) / 8 * wire.Seconds() * float64(len(f.Planes)) / w.wire
	unit := int64(4 * ranks * len(f.Planes)) // all ranks and planes get equal parts
	return max(int64(bytes)/unit, 1) * unit
}

// run is a workload at one size.
type run struct {
	*workload
	bytes int64
	terms terms     // of its plan
	us    []float64 // measured, by iteration
}

const (
	// settle is how much longer than a reconfiguration planes rest between iterations. The last step of a plan leads back
	// to its first circuits. It must not delay the next iteration.
	settle = 10 * time.Millisecond
	// warmup iterations are not timed: the first call plans, and takes planes to the first circuits of its plan.
	warmup = 2
	// jobLimit bounds one job, callLimit one call in it.
	jobLimit  = 5 * time.Minute
	callLimit = "30s"
)

// measure runs a workload at all sizes as one job.
func (o *Options) measure(ctx context.Context, f *fabric.Fabric, w *workload, times []float64) ([]run, error) {
	dir, err := os.MkdirTemp("", "lightpath-calibrate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	store := filepath.Join(dir, "plans")
	var runs []run
	var lines []string
	for _, n := range times {
		r := run{workload: w, bytes: w.size(f, o.Ranks, time.Duration(n*float64(shortest(f))))}
		runs = append(runs, r)
		lines = append(lines, o.runLine(f, &r))
	}
	job := bench.Ranks{N: o.Ranks, Worker: o.Worker, Transport: "ebpf", Deadline: jobLimit, Env: o.environment(w, store),
		Launch: o.launcher(f)}
	reports, err := job.Run(ctx, lines)
	if err == nil {
		err = evaluate(runs, reports, store, o.launcher(f) != nil)
	}
	if err != nil {
		return nil, fmt.Errorf("calibrate: %s: %w", w.name, err)
	}
	return runs, nil
}

// runLine returns the line by which ranks make a run.
func (o *Options) runLine(f *fabric.Fabric, r *run) string {
	spec := bench.Spec{
		Collective: r.collective, Type: datatype.Float32, Op: datatype.Sum, Warmup: warmup, Iters: o.Iters, Check: true,
		Sync: true, Pause: settle,
	}
	for i := range f.OCS {
		spec.Pause = max(spec.Pause, settle+f.OCS[i].Reconfig)
	}
	return spec.RunLine(r.bytes, bench.Count(r.collective, r.bytes, datatype.Float32, o.Ranks), false)
}

// environment returns the settings of the ranks that run w and keep their plans in store.
func (o *Options) environment(w *workload, store string) []string {
	env := []string{
		"LIGHTPATH_FABRIC=" + o.Fabric, "LIGHTPATH_PLANNER=" + w.planner, "LIGHTPATH_PLAN_DIR=" + store,
		"LIGHTPATH_PLAN_WAIT=1", "LIGHTPATH_PLAN_TOLERANCE=0", "LIGHTPATH_TIMEOUT=" + callLimit,
		fmt.Sprintf("LIGHTPATH_ALGORITHM=%s:%s", w.collective, w.algorithm),
	}
	if w.current {
		env = append(env, "LIGHTPATH_PLAN_INITIAL=current")
	}
	return env
}

// evaluate adds times and terms to runs, which have different sizes in rising order, as their plans have. hosts says
// that the ranks are on several hosts.
func evaluate(runs []run, reports [][]bench.Report, store string, hosts bool) error {
	used, err := bench.UsedPlans(store, runs[0].planner)
	if err != nil {
		return err
	}
	if len(used) != len(runs) {
		return fmt.Errorf("%d plans for %d sizes", len(used), len(runs))
	}
	for i := range runs {
		if runs[i].us, err = completions(reports, i, hosts); err != nil {
			return err
		}
		if runs[i].terms, err = termsOf(used[i].Problem, used[i].Plan); err != nil {
			return err
		}
	}
	return nil
}

// completions returns the time of the slowest rank for each iteration of a run. Ranks of several hosts have no common
// clock.
func completions(reports [][]bench.Report, i int, hosts bool) ([]float64, error) {
	perRank, err := bench.EveryRank(reports, i)
	if err != nil {
		return nil, err
	}
	for rank, r := range perRank {
		switch {
		case len(r.Iters) == 0:
			return nil, fmt.Errorf("rank %d reported no iterations of run %d", rank, i)
		case r.Wrong > 0:
			return nil, fmt.Errorf("rank %d: %d bytes: %d wrong elements", rank, r.Bytes, r.Wrong)
		}
	}
	if hosts {
		return bench.Longest(perRank), nil
	}
	return bench.Completions(perRank), nil
}
