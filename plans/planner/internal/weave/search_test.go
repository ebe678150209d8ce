package weave

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/plantest"
	"lightpath/plans/planner/internal/timing"
)

// randomWeaving is a search on a small forwarding fabric with a few settings.
func randomWeaving(t *testing.T, rng *rand.Rand, steps, units int) *Search {
	t.Helper()
	p := plantest.RandomSteps(rng, steps, units)
	p.Forwarding, p.HopUS = true, 1
	exchange := circuit.Permutation{1, 0, 4, 3, 2} // goes both ways round
	for i := range p.Steps {
		if rng.IntN(3) == 0 {
			p.Steps[i].To = exchange
		}
	}
	m, err := model.Compile(p)
	require.NoError(t, err)
	w := newWeaver(m)
	for _, maps := range m.Pages {
		w.add(maps)
	}
	w.add([]circuit.Permutation{circuit.Shift(5, 1)})
	w.add([]circuit.Permutation{circuit.Shift(5, 4)})
	s := newSearch(w, &timing.Meter{Ctx: context.Background(), Timing: &w.t, Limit: math.MaxInt64}, rng, 0)
	s.list()
	return s
}

// every calls visit with all layouts.
func (w *weaver) every(l layout, at int, visit func()) {
	if at == len(l) {
		if w.served(l) {
			visit()
		}
		return
	}
	l[at] = idle
	w.every(l, at+1, visit)
	for c := range w.sets {
		for h := timing.Both; h <= timing.Down; h++ {
			if l[at] = cellOf(c, h); w.can(l[at], at/w.m.Units) {
				w.every(l, at+1, visit)
			}
		}
	}
}

// TestWeaveEqualsEnumeration: on tiny problems the search finds the best of all layouts.
func TestWeaveEqualsEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	for i := range plantest.Cases(48) {
		s := randomWeaving(t, rng, 3, 2)
		w := s.w
		s.Fast = true
		s.staggered()
		s.sortPool()
		s.Meter.Limit = w.t.Flops() + 3e6
		s.retime()
		s.Anneals(s.Meter.Limit, 4, 0.05, 0.02)
		got := s.Best.US
		least := math.Inf(1)
		l := newLayout(len(w.kind), w.m.Units)
		w.every(l, 0, func() { // stop timing a layout that takes longer than got
			if us, ok := w.evaluate(l, min(least, got*(1+1e-5))); ok {
				least = us
			}
		})
		if !(math.Abs(got-least) <= 1e-5*least) {
			t.Errorf("problem %d: %v us, enumeration %v", i, got, least)
		}
	}
}

// TestRespondIsOptimalInLockstep: with no others, the best answer of all units together is
// the best of all sequences of settings that they can go through together.
func TestRespondIsOptimalInLockstep(t *testing.T) {
	rng := rand.New(rand.NewPCG(32, 1))
	for i := range 40 {
		s := randomWeaving(t, rng, 4, 1+rng.IntN(3))
		w, units := s.w, s.w.m.Units
		for u := range w.start { // units that begin alike
			w.start[u] = w.start[0]
		}
		for c := range s.opposite { // and do alike
			s.opposite[c] = none
		}
		least := math.Inf(1)
		one := newLayout(len(w.kind), 1)
		l := newLayout(len(w.kind), units)
		var all func(int)
		all = func(step int) {
			if step == len(one) {
				us, _ := w.estimate(l, math.Inf(1))
				least = math.Min(least, us)
				return
			}
			for c := range w.sets {
				if c := cellOf(c, timing.Both); w.can(c, step) {
					for u := range units {
						l[step*units+u] = c
					}
					all(step + 1)
				}
			}
		}
		all(0)
		everyone := make([]int, units)
		for u := range everyone {
			everyone[u] = u
		}
		if !s.respond(l, everyone, 0) {
			t.Fatalf("problem %d: no answer", i)
		}
		if us, _ := w.estimate(l, math.Inf(1)); math.Abs(us-least) > 1e-6*least {
			t.Errorf("problem %d: %v us, enumeration %v", i, us, least)
		}
	}
}

// TestMutateKeepsLayouts: every layout that a random change reports as changed can be timed. Its plan is feasible,
// takes the computed time, and reads as the layout that made it.
func TestMutateKeepsLayouts(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 1))
	for i := range 60 {
		s := randomWeaving(t, rng, 4, 1+rng.IntN(3))
		w := s.w
		s.Fast = true
		s.staggered()
		if len(s.Pool) == 0 {
			t.Fatalf("problem %d: no seeds", i)
		}
		l := slices.Clone(s.Pool[0].Pattern)
		for range 30 {
			next := slices.Clone(l)
			if !s.mutate(next) {
				continue
			}
			if !w.served(next) {
				t.Fatalf("problem %d: a step lost its last unit", i)
			}
			l = next
		}
		us, _ := w.evaluate(l, math.Inf(1))
		plan := w.emit(l, math.Inf(1))
		if _, err := check.Check(w.m.P, plan); err != nil {
			t.Fatalf("problem %d: %v", i, err)
		}
		if !plans.AtLeastUS(us, plan.CCTUS) {
			t.Fatalf("problem %d: %v us, its plan takes %v", i, us, plan.CCTUS)
		}
		back := w.layoutOf(plan)
		if again, _ := w.evaluate(back, math.Inf(1)); !plans.AtLeastUS(plan.CCTUS, again) {
			t.Fatalf("problem %d: %v us, read back %v", i, plan.CCTUS, again)
		}
	}
}

// TestOrbitRings: consecutive steps of recursive halving join ranks into rings of 4, 8, ….
func TestOrbitRings(t *testing.T) {
	p := &plans.Problem{Version: plans.Version, Ranks: 8, Planes: 1, BandwidthGbps: 8, ReconfigUS: 1,
		Circuits: plans.Simplex}
	for m := 1; m < 8; m *= 2 {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1, To: circuit.Xor(8, m)})
	}
	m, err := model.Compile(p)
	require.NoError(t, err)
	want := []circuit.Permutation{
		{1, 2, 3, 0, 5, 6, 7, 4}, // xor 1 and 2
		{1, 2, 3, 4, 5, 6, 7, 0}, // xor 1, 2 and 4
		{2, 3, 4, 5, 6, 7, 0, 1}, // xor 2 and 4
	}
	got := orbitRings(m)
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if !got[i].Equal(want[i]) {
			t.Errorf("ring %d: %v, want %v", i, got[i], want[i])
		}
	}
}
