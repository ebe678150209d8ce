package planning

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/bench/figure"
	"lightpath/bench/planning/milp"
	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/mip/solver"
	"lightpath/plans/planner"
)

// instance is one of SWOT's settings with its target.
type instance struct {
	collective schedule.Collective
	algorithm  string
	ranks      int
	planes     int
	target     float64 // us, within 10 s; 0: none
	printed    float64 // reduction over Strawman in percent; NaN: not printed
}

var swotInstances = []instance{
	{schedule.AllToAll, "pairwise", 5, 4, 0, 26.0},
	{schedule.AllToAll, "pairwise", 10, 4, 1085.4, 45.5},
	{schedule.AllReduce, "rabenseifner", 64, 4, 1640, 39.6},
	{schedule.AllReduce, "rabenseifner", 512, 4, 1985, 46.9},
	{schedule.AllReduce, "rabenseifner", 256, 8, 1804, math.NaN()},
}

// problem returns the instance at 32 MB, 800 Gb/s per node, 200 us and 20 us, with a free start.
func (in instance) problem() (*plans.Problem, error) {
	return figure.Collective(in.collective, in.algorithm, 32e6, figure.SWOTFabric(in.ranks, in.planes))
}

// exampleProblem returns the paper's example (Section 3.1, Figure 5): Rabenseifner AllReduce of 40 MB on 8 nodes and
// two planes of 400 Gb/s, which start on the first pattern.
func exampleProblem() (*plans.Problem, error) {
	p, err := figure.Collective(schedule.AllReduce, "rabenseifner", 40e6, plans.Problem{
		Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 400, ReconfigUS: 200, Circuits: plans.Simplex,
	})
	if err != nil {
		return nil, err
	}
	p.Initial = slices.Repeat([]circuit.Permutation{p.Steps[0].To}, p.Planes)
	return p, nil
}

// solved has a plan's times, and the time of the search.
type solved struct{ cct, bound, seconds float64 }

func solve(ctx context.Context, name string, p *plans.Problem, o planner.Options) (solved, error) {
	began := time.Now()
	plan, err := planner.Solve(ctx, name, p, o)
	if err != nil {
		return solved{}, err
	}
	return solved{plan.CCTUS, plan.LowerBoundUS, time.Since(began).Round(time.Millisecond / 10).Seconds()}, ctx.Err()
}

// swot runs each instance with the planner at two limits of wall time and with CBC.
func swot(ctx context.Context, o figure.Options) (*figure.Figure, error) {
	limits, cbcLimit := []time.Duration{time.Second, 10 * time.Second}, 120*time.Second
	if o.Quick {
		limits, cbcLimit = []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, 20*time.Millisecond
	}
	f := &figure.Figure{Title: "swot: 32 MB, 800 Gb/s per node, 200 us, latency 20 us, start free"}
	f.Table.Columns = []string{"instance", "strawman_us", "printed_us", "target_us",
		"swot_us (" + limits[0].String() + ")", "s",
		"swot_us (" + limits[1].String() + ")", "s", "cut_percent", "bound_us", "cbc_us (" + cbcLimit.String() + ")",
		"cbc_bound_us"}
	if _, err := solver.Find("cbc"); err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("CBC is left out: %v.", err))
	}
	for i, in := range swotInstances {
		if err := runInstance(ctx, f, in, o, limits, cbcLimit); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(i+1, len(swotInstances)+1)
		}
	}
	if err := addExample(ctx, f, o, limits[0]); err != nil {
		return nil, err
	}
	if o.Progress != nil {
		o.Progress(len(swotInstances)+1, len(swotInstances)+1)
	}
	return f, nil
}

func runInstance(ctx context.Context, f *figure.Figure, in instance, o figure.Options, limits []time.Duration,
	cbcLimit time.Duration) error {
	p, err := in.problem()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s %s p=%d k=%d", in.collective, in.algorithm, in.ranks, in.planes)
	strawman, err := solve(ctx, "perstep", p, planner.Options{TimeLimit: limits[0]})
	if err != nil {
		return err
	}
	var at [2]solved
	for i, limit := range limits {
		if at[i], err = solve(ctx, "swot", p, planner.Options{TimeLimit: limit, Seed: o.Seed}); err != nil {
			return err
		}
	}
	cbc, err := runCBC(ctx, p, cbcLimit)
	if err != nil {
		return err
	}
	target := in.target
	if target == 0 {
		target = math.NaN()
	}
	cut := 100 * (1 - at[1].cct/strawman.cct)
	f.Table.Add(name, strawman.cct, strawman.cct*(1-in.printed/100), target, at[0].cct, at[0].seconds, at[1].cct,
		at[1].seconds,
		cut, at[1].bound, cbc.CCTUS, cbc.BoundUS)
	if !math.IsNaN(in.printed) {
		f.Claims = append(f.Claims, figure.Claim{ID: "S3", What: name + ": reduction vs Strawman-ICR", Printed: in.printed,
			Ours: cut, Unit: "%"})
	}
	return nil
}

// runCBC returns NaN if cbc is not installed, or if the paper's program cannot describe the problem.
func runCBC(ctx context.Context, p *plans.Problem, limit time.Duration) (milp.Result, error) {
	none := milp.Result{CCTUS: math.NaN(), BoundUS: math.NaN()}
	r, err := milp.SolveCBC(ctx, p, limit)
	if errors.Is(err, solver.ErrNone) || errors.Is(err, solver.ErrSolver) || errors.Is(err, milp.ErrUnsupported) {
		return none, nil
	}
	if math.IsInf(r.CCTUS, 0) {
		r.CCTUS = math.NaN()
	}
	return r, err
}

// addExample adds Figure 5 of the paper: 1500, 1200 and 700 us.
func addExample(ctx context.Context, f *figure.Figure, o figure.Options, limit time.Duration) error {
	p, err := exampleProblem()
	if err != nil {
		return err
	}
	free := *p
	free.ReconfigUS = 0
	for _, c := range []struct {
		what, planner string
		p             *plans.Problem
		printed       float64
	}{
		{"Strawman", "perstep", p, 1500},
		{"SWOT", "swot", p, 1200},
		{"without switching cost", "perstep", &free, 700},
	} {
		s, err := solve(ctx, c.planner, c.p, planner.Options{TimeLimit: limit, Seed: o.Seed})
		if err != nil {
			return err
		}
		note := ""
		if plans.SameUS(s.cct, s.bound) {
			note = "proven optimal"
		}
		f.Claims = append(f.Claims, figure.Claim{ID: "S1", What: "example of Fig. 5, " + c.what, Printed: c.printed,
			Ours: s.cct, Unit: " us", Note: note})
	}
	return nil
}
