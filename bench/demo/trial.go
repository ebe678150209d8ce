package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"lightpath/bench"
	"lightpath/bench/sampling"
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

// Options of a demonstration.
type Options struct {
	Lightpath string // path of the command, which runs the switch
	Worker    string // path of lightpath-rank
	Report    string // HTML file to write
	Iters     int    // timed iterations of each trial
	Only      string // run only experiments whose title, with the key in brackets, contains it
	// Kernel runs the experiments of planes in the kernel; it needs root.
	Kernel   bool
	Progress func(format string, args ...any)

	breakDrain bool // skip the drain before plane 0's second switch; the run must then fail
}

// Trial is one experiment under one planner, measured.
type Trial struct {
	Experiment  *Experiment
	Planner     string
	Infeasible  error // not nil: there is no plan, and nothing ran
	Problem     *plans.Problem
	Plan        *plans.Plan
	Times       []float64 // us, by iteration
	Wrong       int64     // elements
	Audit       counts
	Measured    [][]Interval // per plane, of the median iteration, us from its start
	MeasuredCCT float64      // us, median
	// Independent steps send nothing that an earlier step received. At run time a plane then waits for no other,
	// although the planning model has a barrier between steps.
	Independent bool
}

// expected returns the time that a run should take, in us: the plan's CCT, or for independent steps the time of the
// busiest plane.
func (t *Trial) expected() float64 {
	if !t.Independent {
		return t.Plan.CCTUS
	}
	longest := 0.0
	for _, entries := range t.Plan.Planes {
		busy, sent := 0.0, 0.0
		for _, e := range entries {
			busy += e.EndUS - e.StartUS
			if e.Kind == plans.Transmit {
				sent = busy
			}
		}
		longest = max(longest, sent)
	}
	return longest
}

// Error returns the measured median over the expected time, less one.
func (t *Trial) Error() float64 { return t.MeasuredCCT/t.expected() - 1 }

// reconfigurations returns their number per iteration.
func (t *Trial) reconfigurations() float64 { return float64(t.Audit.Switches) / float64(len(t.Times)) }

// independent reports whether no step of s reads a buffer that a step writes.
func independent(s *schedule.Schedule) bool {
	var read, written [schedule.NumBuffers]bool
	for i := range s.Steps {
		for _, m := range s.Steps[i].Transfers {
			read[m.From.Buf], written[m.To.Buf] = true, true
		}
	}
	for b := range read {
		if read[b] && written[b] {
			return false
		}
	}
	return true
}

// Interval is a transmission or reconfiguration seen on a plane, in us from the start of the iteration.
type Interval struct {
	Step    int // of the problem; -1: a reconfiguration
	StartUS float64
	EndUS   float64
	To      []int // of a reconfiguration
}

// runTrial plans, runs and audits one experiment under one planner.
func runTrial(ctx context.Context, o *Options, e *Experiment, name string) (*Trial, error) {
	t := &Trial{Experiment: e, Planner: name}
	steps, err := t.stateProblem()
	if err != nil {
		return nil, err
	}
	// The ranks plan for themselves. This plan only tells whether there is one.
	if _, err := planner.Solve(ctx, name, t.Problem, planner.Options{SinglePlane: true}); errors.Is(err,
		planner.ErrInfeasible) {
		t.Infeasible = err
		return t, nil
	} else if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "lightpath-demo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var b backend = &memoryBackend{}
	if o.Kernel {
		b = &kernelBackend{}
	}
	defer b.close()
	reports, err := t.execute(ctx, o, b, dir)
	if err != nil {
		return nil, err
	}
	return t, t.evaluate(b, dir, reports, steps)
}

// stateProblem sets the problem that the ranks will plan, and returns its steps' numbers in the schedule.
func (t *Trial) stateProblem() (steps []int, err error) {
	e := t.Experiment
	s, err := schedule.Build(e.Collective, e.Algorithm, ranks, 0)
	if err != nil {
		return nil, err
	}
	t.Independent = independent(s)
	template := &plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: e.Scale.Planes, BandwidthGbps: e.Scale.RateGbps,
		HopUS: float64(e.Scale.Hop) / 1e3, ReconfigUS: float64(e.Reconfig) / 1e3,
		Forwarding: e.Forwarding, Circuits: plans.Simplex, Initial: t.initial(), Final: plans.Final{Kind: plans.FinalInitial},
	}
	t.Problem, steps, err = schedule.Problem(s, float64(e.Bytes), template)
	return steps, err
}

const (
	// settle is how much longer than a reconfiguration the planes rest between iterations: the switch back to the first
	// circuits of the plan is no part of its CCT.
	settle = 20 * time.Millisecond
	// warmup is how many untimed iterations a trial begins with.
	warmup = 1
)

// execute starts planes and ranks, and returns the ranks' reports.
func (t *Trial) execute(ctx context.Context, o *Options, b backend, dir string) ([][]bench.Report, error) {
	config, socket, err := t.writeFabric(b, dir)
	if err != nil {
		return nil, err
	}
	if err := b.start(t, dir); err != nil {
		return nil, err
	}
	ocs, err := bench.StartOCS(ctx, o.Lightpath, config, socket)
	if err != nil {
		return nil, err
	}
	e := t.Experiment
	job := bench.Ranks{
		N: ranks, Worker: o.Worker, Transport: "shm", Deadline: 2 * time.Minute, Env: t.environment(dir, o.breakDrain),
	}
	spec := bench.Spec{
		Collective: e.Collective, Type: datatype.Float32, Op: datatype.Sum, Warmup: warmup, Iters: o.Iters, Check: true,
		Sync: true, Pause: e.Reconfig + settle,
	}
	count := bench.Count(e.Collective, e.Bytes, datatype.Float32, ranks)
	reports, err := job.Run(ctx, []string{spec.RunLine(e.Bytes, count, false)})
	// Stopping the switch completes its log. An error of the ranks explains more than one of the switch.
	if stopErr := ocs.Stop(); err == nil {
		err = stopErr
	}
	return reports, err
}

// environment returns the settings of the ranks.
func (t *Trial) environment(dir string, breakDrain bool) []string {
	e := t.Experiment
	env := []string{
		"LIGHTPATH_FABRIC=" + filepath.Join(dir, "fabric.yaml"), "LIGHTPATH_PLANNER=" + t.Planner,
		"LIGHTPATH_PLAN_DIR=" + filepath.Join(dir, "plans"), "LIGHTPATH_PLAN_WAIT=1", "LIGHTPATH_PLAN_TOLERANCE=0",
		"LIGHTPATH_TIMEOUT=30s", fmt.Sprintf("LIGHTPATH_ALGORITHM=%s:%s", e.Collective, e.Algorithm),
	}
	if e.Start != nil {
		env = append(env, "LIGHTPATH_PLAN_INITIAL=current")
	}
	if breakDrain {
		env = append(env, "LIGHTPATH_FAULT=skip-drain:0:1")
	}
	return env
}

// writeFabric writes the fabric file and the controller's configuration.
func (t *Trial) writeFabric(b backend, dir string) (config, socket string, err error) {
	e := t.Experiment
	socket = filepath.Join(dir, "ocs.sock")
	f := bench.EmulatedFabric("demo", socket, ranks, e.Scale.Planes, fabric.Rate(e.Scale.RateGbps*1e9), e.Reconfig)
	f.Forwarding, f.Costs = e.Forwarding, fabric.Costs{Hop: e.Scale.Hop}
	sw := fabric.OCSD{Socket: socket, Initial: t.initial()}
	b.configure(e, dir, f, &sw)
	_, config, err = bench.WriteFabric(dir, f, &sw)
	return config, socket, err
}

// initial returns the first map of each plane, nil if the planner chooses.
func (t *Trial) initial() []circuit.Permutation {
	if t.Experiment.Start == nil {
		return nil
	}
	return slices.Repeat([]circuit.Permutation{t.Experiment.Start}, t.Experiment.Scale.Planes)
}

// evaluate reads the plan that the ranks used from their plan cache, and audits the record of the planes against it.
func (t *Trial) evaluate(b backend, dir string, reports [][]bench.Report, steps []int) error {
	e := t.Experiment
	used, err := bench.UsedPlans(filepath.Join(dir, "plans"), t.Planner)
	if err != nil {
		return err
	}
	if len(used) == 0 {
		return fmt.Errorf("demo: the ranks left no %s plan in the cache", t.Planner)
	}
	t.Problem, t.Plan = used[0].Problem, used[0].Plan
	perRank, err := bench.EveryRank(reports, 0)
	if err != nil {
		return err
	}
	for _, r := range perRank {
		t.Wrong += r.Wrong
	}
	t.Times = bench.Completions(perRank)
	t.MeasuredCCT = sampling.Median(t.Times)
	// With an even number of iterations no iteration has the median: show the one below.
	shown := slices.Index(t.Times, sampling.Sorted(t.Times)[(len(t.Times)-1)/2])
	// Cuts fall between elements: each entry of a circuit may be off by one element per flow.
	a := &auditor{problem: t.Problem, plan: t.Plan, steps: steps, slack: float64(4 * ranks * e.Scale.Planes)}
	var iters []window
	for _, s := range bench.Spans(perRank) {
		iters = append(iters, window{s[0], s[1]})
	}
	if t.Audit, t.Measured, err = b.audit(a, iters, shown); err != nil {
		return fmt.Errorf("demo: experiment %s, %s: %w", e.Key, t.Planner, err)
	}
	return nil
}
