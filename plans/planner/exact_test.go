package planner

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// randomSteps is a small problem of shift patterns; free, dark or given circuits.
func randomSteps(rng *rand.Rand, steps, planes int) *plans.Problem {
	n := 5
	p := &plans.Problem{
		Version: plans.Version, Ranks: n, Planes: planes, BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: []float64{0, 20}[rng.IntN(2)], ReconfigUS: []float64{30, 200}[rng.IntN(2)],
	}
	for range steps {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e4 * (1 + 30*rng.Float64()), To: circuit.Shift(n, 1+rng.IntN(3))})
	}
	if kind := rng.IntN(3); kind > 0 {
		for range planes {
			p.Initial = append(p.Initial, circuit.Shift(n, 1+rng.IntN(3)))
			if kind == 2 {
				p.Initial[0] = circuit.AllDark(n)
			}
		}
	}
	return p
}

// TestExactEqualsEnumeration: branch and bound, which cuts symmetric and hopeless
// branches, finds what timing every pattern finds.
func TestExactEqualsEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	for i := range 40 {
		steps, planes := 1+rng.IntN(4), 1+rng.IntN(3)
		p := randomSteps(rng, steps, planes)
		m, err := compile(p)
		require.NoError(t, err)
		plan, err := solveSWOT(context.Background(), m, Options{Effort: time.Second})
		require.NoError(t, err)
		m.stateBound(plan)
		if !plans.SameUS(plan.LowerBoundUS, plan.CCTUS) {
			t.Fatalf("problem %d: %v us, bound %v: not closed", i, plan.CCTUS, plan.LowerBoundUS)
		}
		w := newSwot(m)
		least := math.Inf(1)
		u := make(pattern, steps)
		var all func(int)
		all = func(at int) {
			if at == steps {
				if us, ok := w.evaluate(u, steps, math.Inf(1)); ok {
					least = math.Min(least, us)
				}
				return
			}
			for u[at] = 1; u[at] < 1<<planes; u[at]++ {
				all(at + 1)
			}
		}
		all(0)
		if math.Abs(least-plan.CCTUS) > 1e-5 {
			t.Fatalf("problem %d: %v us, enumeration %v", i, plan.CCTUS, least)
		}
		checkBounds(t, p, least)
	}
}

// checkBounds compares the pricing and paging bounds, of the whole and of every suffix on
// free circuits, with optima.
func checkBounds(t *testing.T, p *plans.Problem, optimum float64) {
	t.Helper()
	m, err := compile(p)
	require.NoError(t, err)
	b := m.bound()
	if b.total > optimum+1e-5 {
		t.Fatalf("bound %v above the optimum %v (%s)", b.total, optimum, b.proof)
	}
	for i := range p.Steps {
		rest := *p
		rest.Initial, rest.Steps = nil, p.Steps[i:]
		plan, err := Solve(context.Background(), "swot", &rest, Options{})
		require.NoError(t, err)
		if b.suffix[i] > plan.CCTUS+1e-5 {
			t.Fatalf("suffix %d: bound %v above the optimum %v", i, b.suffix[i], plan.CCTUS)
		}
	}
}

// TestGreedyTimingIsAttained: it is an upper bound of the exact timing, and its shares carry
// everything.
func TestGreedyTimingIsAttained(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 1))
	for i := range 500 {
		w, u := randomSwot(rng)
		exact, _ := w.evaluate(u, len(u), math.Inf(1))
		us, ok := w.estimate(u, math.Inf(1))
		if !ok || us < exact-1e-5 && !idleUse(&w.t) {
			t.Fatalf("pattern %d: greedy %v below exact %v", i, us, exact)
		}
		sums := make([]float64, len(u))
		for k, x := range w.t.uses {
			sums[x.step] += w.t.shares[k]
		}
		for s, sum := range sums {
			if math.Abs(sum-w.t.work[s]) > 1e-9*sum {
				t.Fatalf("pattern %d: step %d carries %v of %v", i, s, sum, w.t.work[s])
			}
		}
	}
}

// idleUse reports whether the greedy timing left a use without bytes: it saves the
// overhead that the exact timing of the same pattern pays.
func idleUse(x *timing) bool {
	return slices.Contains(x.shares, 0)
}

// TestStaticSearches: greedy choice with exchange is as good as trying everything.
func TestStaticSearches(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 1))
	for i := range 60 {
		p := randomSteps(rng, 1+rng.IntN(6), 3+rng.IntN(3))
		p.Initial = nil
		m, err := compile(p)
		require.NoError(t, err)
		c := newStaticChoice(t.Context(), m)
		want := c.evaluate(c.exhaustive())
		if got := c.evaluate(c.exchange(c.greedy())); want.better(got) {
			t.Errorf("problem %d: greedy %v, exhaustive %v", i, got, want)
		}
	}
}

// TestWitness: an optimum is a bound of the problem only where a rank sends in every step
// and tells all patterns apart.
func TestWitness(t *testing.T) {
	half := circuit.Permutation{1, -1, -1, -1}
	for _, tc := range []struct {
		name  string
		kind  plans.CircuitKind
		steps []circuit.Permutation
		want  bool
	}{
		{"shifts", plans.Simplex, []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 2)}, true},
		{"same from rank 0", plans.Simplex, []circuit.Permutation{{1, 0, 3, 2}, {1, 2, 3, 0}}, true},
		{"duplex, way back", plans.Duplex, []circuit.Permutation{{2, -1, -1, -1}, half}, true},
		{"duplex, no rank sends twice", plans.Duplex, []circuit.Permutation{{-1, 0, -1, -1}, {2, -1, -1, -1}}, false},
		{"interleaved", plans.Interleaved, []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 2)}, false},
	} {
		p := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 8, ReconfigUS: 1, Circuits: tc.kind}
		for _, c := range tc.steps {
			s := plans.Step{Bytes: 1, To: c}
			if tc.kind == plans.Duplex {
				s = plans.Step{Bytes: 1, Flows: s.FlowList()}
			}
			p.Steps = append(p.Steps, s)
		}
		m, err := compile(p)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if _, ok := newSwot(m).witness(); ok != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, ok, tc.want)
		}
	}
}
