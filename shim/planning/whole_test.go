package planning

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/play"
	"lightpath/shim/calls"
)

// randomSteps returns operations with gaps: collectives of several sizes, and rounds.
func randomSteps(r *rand.Rand) []Step {
	kinds := []calls.Kind{calls.AllReduce, calls.AllToAll, calls.AllGather, calls.Broadcast, calls.ReduceScatter}
	steps := make([]Step, 2+r.IntN(5))
	for i := range steps {
		steps[i] = Step{Shape: float32s(kinds[r.IntN(len(kinds))], 1000<<r.IntN(8)),
			Gap: time.Duration(r.IntN(4)-1) * 150 * time.Microsecond}
		steps[i].Round = i > 0 && r.IntN(6) == 0
	}
	return steps
}

// played returns the time of an iteration that switches planes in its plans only.
func played(t *testing.T, site *Site, steps []Step, all []*Agreed) float64 {
	t.Helper()
	w, err := site.poseWhole(steps, all)
	require.NoError(t, err)
	plan := &iteration.Plan{Trace: w.problem.Trace}
	for c, i := range w.stepAt {
		plan.Plans = append(plan.Plans, all[i].Plan)
		plan.Calls = append(plan.Calls, iteration.Placed{Call: c, Plan: c})
	}
	us, err := play.Run(w.problem, plan, 40)
	require.NoError(t, err)
	return us
}

// TestTogether: plans of an iteration are feasible, sealed, meet each other, and are never slower than plans that are
// chained call by call. Ranks can state the problem of each.
func TestTogether(t *testing.T) {
	faster := 0
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { // books are closed between: sites differ in forwarding
			r := rand.New(rand.NewPCG(seed, 11))
			site := siteAt(0, 1, 2, 3)
			site.Cfg.Plan.Limit = 100 * time.Millisecond
			site.Template.Forwarding = r.IntN(2) == 0
			if testTogether(t, site, randomSteps(r)) {
				faster++
			}
		})
	}
	if t.Logf("%d of 16 are faster", faster); faster == 0 {
		t.Error("none is faster")
	}
}

// testTogether reports whether planning together makes the iteration faster.
func testTogether(t *testing.T, site *Site, steps []Step) bool {
	t.Helper()
	b := open(t, site)
	own, err := b.ownPlans(steps)
	require.NoError(t, err)
	chained, err := chain(b.ctx, site, steps, own)
	require.NoError(t, err)
	planned, gain, err := site.iterate(b.ctx, nil, steps, own)
	require.NoError(t, err)
	for i, p := range planned {
		if (p == nil) != (own[i] == nil) {
			t.Fatalf("step %d: a plan %v, by itself %v", i, p != nil, own[i] != nil)
		}
		if p == nil {
			continue
		}
		if _, err := check.Check(p.Problem, p.Plan); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		if !equalMaps(iteration.Final(p.Plan), follower(planned, i).Plan.Initial) {
			t.Errorf("step %d ends on other circuits than the next begins on", i)
		}
		if p.Problem.Final.Kind == plans.FinalGiven {
			j, err := site.OfChained(steps[i].Shape, p.Plan)
			require.NoError(t, err)
			require.NoError(t, plans.VerifyDigest(j.Problem, p.Plan))
		}
	}
	before, now := played(t, site, steps, chained), played(t, site, steps, planned)
	if !plans.AtLeastUS(before, now) {
		t.Errorf("%v us, call by call %v us", now, before)
	}
	t.Logf("%d steps: call by call %.1f us, together %.1f us%s", len(steps), before, now, gain)
	return now < 0.99*before
}

// TestNotTogether: a named planner plans call by call, and so does a site whose search has no time.
func TestNotTogether(t *testing.T) {
	steps := []Step{{Shape: float32s(calls.AllReduce, 5000)}, {Shape: float32s(calls.AllToAll, 5000)}}
	for _, name := range []string{"perstep", "swot"} {
		site := siteAt(0, 1, 2, 3)
		site.Cfg.Plan.Planner = name
		b := open(t, site)
		own, err := b.ownPlans(steps)
		require.NoError(t, err)
		planned, _, err := site.iterate(b.ctx, nil, steps, own)
		require.NoError(t, err)
		for i, p := range planned {
			if p.Plan.Planner != name {
				t.Errorf("step %d: a plan of %s, want %s", i, p.Plan.Planner, name)
			}
		}
	}
	site := siteAt(0, 1, 2, 3)
	b := open(t, site)
	own, err := b.ownPlans(steps)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	both, _, err := site.together(ctx, steps, [][]*Agreed{own})
	if both != nil || !errors.Is(err, context.Canceled) {
		t.Error(both, err)
	}
	site.Cfg.Plan.Limit = 1 // ns
	planned, _, err := site.iterate(b.ctx, nil, steps, own)
	if err != nil || len(planned) != 2 {
		t.Error(fmt.Sprint(planned), err)
	}
}
