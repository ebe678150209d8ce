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
	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
)

// Options of a demonstration.
type Options struct {
	Lightpath string // path of the command, which serves the switch
	Worker    string // path of lightpath-rank
	Report    string // HTML file to write
	Iters     int    // timed iterations of each trial
	// BreakDrain skips the drain before plane 0's second switch; the run must then fail.
	BreakDrain bool
	Only       string // runs the experiments whose key contains it
	// Kernel runs the proof over planes in the kernel instead; it needs root.
	Kernel   bool
	Progress func(format string, args ...any)
}

// Trial is one experiment under one planner, measured.
type Trial struct {
	Experiment  *Experiment
	Planner     string
	Infeasible  error // set: there is no plan, nothing ran
	Problem     *plans.Problem
	Plan        *plans.Plan
	Times       []float64 // us, per iteration, sorted
	Wrong       int64
	Finding     finding
	Measured    [][]Interval // per plane, of the median iteration, us from its start
	MeasuredCCT float64      // us, median
	// Independent steps send nothing that an earlier one received: at run time no plane
	// waits for another there, although the planning model has a barrier between steps.
	Independent bool
}

// Expected is what a run should take, in us: the plan's CCT, or where steps are independent the
// time of the plane with the most to do.
func (t *Trial) Expected() float64 {
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

// Error is the measured median over what was expected, less one.
func (t *Trial) Error() float64 { return t.MeasuredCCT/t.Expected() - 1 }

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

// Interval is something that a plane was seen doing, microseconds from the start of the iteration.
type Interval struct {
	Step    int // of the problem; -1: a reconfiguration
	StartUS float64
	EndUS   float64
	To      []int // reconfiguration
}

// runTrial plans, runs and audits one experiment under one planner.
func runTrial(ctx context.Context, o *Options, e *Experiment, name string) (*Trial, error) {
	t := &Trial{Experiment: e, Planner: name}
	steps, err := t.pose()
	if err != nil {
		return nil, err
	}
	// The ranks make this plan themselves; here it only tells whether there is one.
	if _, err := planner.Solve(ctx, name, t.Problem, planner.Options{SinglePlane: true}); errors.Is(err, planner.ErrInfeasible) {
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
	var g ground = &memoryGround{}
	if o.Kernel {
		g = &kernelGround{}
	}
	defer g.close()
	reports, err := t.execute(ctx, o, g, dir)
	if err != nil {
		return nil, err
	}
	return t, t.evaluate(g, dir, reports, steps)
}

// pose states the problem that the ranks will plan.
func (t *Trial) pose() (steps []int, err error) {
	e := t.Experiment
	s, err := schedule.Build(e.Collective, e.Algorithm, ranks, 0)
	if err != nil {
		return nil, err
	}
	t.Independent = independent(s)
	template := &plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: e.Scale.Planes, BandwidthGbps: e.Scale.RateGbps, AlphaUS: float64(e.Scale.Alpha) / 1e3,
		HopUS: float64(e.Scale.Hop) / 1e3, ReconfigUS: float64(e.Reconfig) / 1e3, Forwarding: e.Forwarding, Circuits: plans.Simplex,
		Initial: t.initial(), Final: plans.Final{Kind: plans.FinalInitial},
	}
	t.Problem, steps, err = schedule.Problem(s, float64(e.Bytes), template)
	return steps, err
}

// settle is how much longer than a reconfiguration the planes rest between iterations: a
// plan's trailing reset is not part of its CCT.
const settle = 20 * time.Millisecond

// warmup is how many untimed iterations a trial begins with.
const warmup = 1

// execute starts planes and ranks, and returns what the ranks report.
func (t *Trial) execute(ctx context.Context, o *Options, g ground, dir string) ([][]bench.Report, error) {
	config, socket, err := t.writeFabric(g, dir)
	if err != nil {
		return nil, err
	}
	if err := g.start(t, dir); err != nil {
		return nil, err
	}
	ocs, err := bench.StartOCS(ctx, o.Lightpath, config, socket)
	if err != nil {
		return nil, err
	}
	e := t.Experiment
	job := bench.Ranks{
		N: ranks, Worker: o.Worker, Transport: "shm", Deadline: 2 * time.Minute,
		Env: []string{
			"LIGHTPATH_FABRIC=" + filepath.Join(dir, "fabric.yaml"), "LIGHTPATH_PLANNER=" + t.Planner,
			"LIGHTPATH_PLAN_DIR=" + filepath.Join(dir, "plans"), "LIGHTPATH_PLAN_WAIT=1", "LIGHTPATH_PLAN_TOLERANCE=0", "LIGHTPATH_TIMEOUT=30s",
			fmt.Sprintf("LIGHTPATH_ALGORITHM=%s:%s", e.Collective, e.Algorithm),
		},
	}
	if e.Start != nil {
		job.Env = append(job.Env, "LIGHTPATH_PLAN_INITIAL=current")
	}
	if o.BreakDrain {
		job.Env = append(job.Env, "LIGHTPATH_FAULT=skip-drain:0:1")
	}
	count := bench.Count(e.Collective, e.Bytes, datatype.Float32, ranks)
	reports, err := job.Run(ctx, []string{fmt.Sprintf(
		"run collective=%s type=float op=sum bytes=%d count=%d warmup=%d iters=%d check=1 mode=sync pause=%d",
		e.Collective, e.Bytes, count, warmup, o.Iters, (e.Reconfig + settle).Milliseconds())})
	// Stopping the switch completes its log; an error of the ranks says more than one of the switch.
	if stopErr := ocs.Stop(); err == nil {
		err = stopErr
	}
	return reports, err
}

// writeFabric writes the fabric file and the controller's configuration.
func (t *Trial) writeFabric(g ground, dir string) (config, socket string, err error) {
	e := t.Experiment
	socket = filepath.Join(dir, "ocs.sock")
	f := fabric.Fabric{
		Version: fabric.Version, Name: "demo", Ranks: ranks, Circuits: plans.Simplex, Forwarding: e.Forwarding,
		OCS:   []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket, Reconfig: e.Reconfig}},
		Costs: fabric.Costs{Alpha: e.Scale.Alpha, Hop: e.Scale.Hop},
	}
	for p := range e.Scale.Planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: fabric.Rate(e.Scale.RateGbps * 1e9), OCS: "ocs0"})
	}
	sw := fabric.OCSD{Version: fabric.Version, Fabric: filepath.Join(dir, "fabric.yaml"), Socket: socket, Initial: t.initial()}
	g.configure(e, dir, &f, &sw)
	config = filepath.Join(dir, "ocsd.yaml")
	return config, socket, errors.Join(os.WriteFile(sw.Fabric, f.Encode(), 0o600), os.WriteFile(config, sw.Encode(), 0o600))
}

// initial is the map of each plane at the start, nil where the planner chooses.
func (t *Trial) initial() []circuit.Permutation {
	if t.Experiment.Start == nil {
		return nil
	}
	return slices.Repeat([]circuit.Permutation{t.Experiment.Start}, t.Experiment.Scale.Planes)
}

// evaluate reads the plan that the ranks used from the plan cache and holds what the planes have
// recorded against it.
func (t *Trial) evaluate(g ground, dir string, reports [][]bench.Report, steps []int) error {
	e := t.Experiment
	var err error
	if t.Problem, t.Plan, err = usedPlan(filepath.Join(dir, "plans"), t.Planner); err != nil {
		return err
	}
	perRank := make([]bench.Report, 0, ranks)
	for r := range reports {
		if len(reports[r]) != 1 {
			return fmt.Errorf("demo: rank %d reported %d runs, not 1", r, len(reports[r]))
		}
		perRank = append(perRank, reports[r][0])
		t.Wrong += reports[r][0].Wrong
	}
	t.Times = bench.Completions(perRank)
	order := slices.Clone(t.Times)
	slices.Sort(order)
	t.MeasuredCCT = bench.Median(order)
	iters := windows(perRank)
	// With an even number of iterations the median is no iteration's: show the one below.
	median := slices.Index(t.Times, order[(len(order)-1)/2])
	// Cuts fall between elements: each of a circuit's entries may be off by one per flow.
	a := &auditor{problem: t.Problem, plan: t.Plan, steps: steps, slack: float64(4 * ranks * e.Scale.Planes)}
	if t.Finding, t.Measured, err = g.audit(a, iters, median); err != nil {
		return fmt.Errorf("demo: experiment %s, %s: %w", e.Key, t.Planner, err)
	}
	return nil
}

// usedPlan returns the plan in the cache of one trial, digest verified, and its problem.
func usedPlan(dir, name string) (*plans.Problem, *plans.Plan, error) {
	c, err := cache.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	entries, err := c.List()
	if err != nil {
		return nil, nil, err
	}
	for _, en := range entries {
		if en.Err != nil {
			return nil, nil, en.Err
		}
		if en.Entry.Key.Planner == name {
			return en.Entry.Span.High.Problem, en.Entry.Span.High.Plan, nil
		}
	}
	return nil, nil, fmt.Errorf("demo: the ranks left no %s plan in the cache (%d others)", name, len(entries))
}

// windows returns first start and last end over the ranks of every iteration.
func windows(perRank []bench.Report) []window {
	w := make([]window, len(perRank[0].Iters))
	for i := range w {
		w[i] = window{perRank[0].Iters[i][0], perRank[0].Iters[i][1]}
		for _, r := range perRank {
			w[i].start, w[i].end = min(w[i].start, r.Iters[i][0]), max(w[i].end, r.Iters[i][1])
		}
	}
	return w
}
