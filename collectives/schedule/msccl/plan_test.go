package msccl_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/planner"
	"lightpath/plans/sim"
)

// planned solves the planning problem of a schedule with every planner. It checks that the plans are feasible, that the
// simulator gives the same time, and that no plan is below a bound.
func planned(t *testing.T, s *schedule.Schedule, fabric *plans.Problem) {
	t.Helper()
	p, _, err := schedule.Problem(s, 1<<20, fabric)
	require.NoError(t, err)
	require.NoError(t, p.Validate())
	bound, least, auto := 0.0, math.Inf(1), math.Inf(1)
	for _, name := range planner.Names() {
		o := planner.Options{TimeLimit: time.Minute, Effort: time.Millisecond}
		plan, err := planner.Solve(context.Background(), name, p, o)
		if errors.Is(err, planner.ErrInfeasible) && (name == "static" || p.Circuits == plans.Duplex) {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r, err := check.Check(p, plan); err != nil || !plans.SameUS(r.CCTUS, plan.CCTUS) {
			t.Fatalf("%s: %v, checked %v: %v", name, plan.CCTUS, r.CCTUS, err)
		}
		if r, err := sim.Run(p, plan); err != nil || !plans.SameUS(r.CCTUS, plan.CCTUS) {
			t.Fatalf("%s: %v, simulated %v: %v", name, plan.CCTUS, r.CCTUS, err)
		}
		bound, least = math.Max(bound, plan.LowerBoundUS), math.Min(least, plan.CCTUS)
		if name == "auto" {
			auto = plan.CCTUS
		}
	}
	if !math.IsInf(least, 1) && (bound > least*(1+1e-9)+1e-6 || auto > least*(1+1e-9)+1e-6) {
		t.Errorf("bound %v, best %v, auto %v", bound, least, auto)
	}
}

func fabrics() []*plans.Problem {
	return []*plans.Problem{
		{Planes: 2, BandwidthGbps: 400, AlphaUS: 2, ReconfigUS: 20, Circuits: plans.Simplex},
		{Planes: 2, BandwidthGbps: 400, AlphaUS: 2, HopUS: 0.5, ReconfigUS: 20, Circuits: plans.Simplex,
			Forwarding: true, Final: plans.Final{Kind: plans.FinalInitial}},
		{Planes: 2, BandwidthGbps: 400, ReconfigUS: 5, ReconfigPerPort: 0.1, Circuits: plans.Interleaved},
		{Planes: 3, BandwidthGbps: 400, ReconfigUS: 5, Circuits: plans.Duplex},
	}
}

// TestPlansOfAlgorithms plans every algorithm of package schedule with every planner.
func TestPlansOfAlgorithms(t *testing.T) {
	for i, fabric := range fabrics() {
		algorithms(t, []int{8, 6, 5, 4}[i], func(t *testing.T, s *schedule.Schedule) { planned(t, s, fabric) })
	}
}

// TestPlansOfFiles plans the files of msccl-tools with every planner.
func TestPlansOfFiles(t *testing.T) {
	files(t, func(t *testing.T, text []byte) {
		s, err := collectiveOf(t, decode(t, text)).Schedule(0)
		require.NoError(t, err)
		for _, fabric := range fabrics()[:2] {
			planned(t, s, fabric)
		}
	})
}
