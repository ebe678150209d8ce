package swot

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/bound"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/plantest"
)

// proven returns the model of a problem with its bound, and the plan of swot.
func proven(t *testing.T, p *plans.Problem) (*model.Model, *plans.Plan) {
	t.Helper()
	m, err := model.Compile(p)
	require.NoError(t, err)
	bound.Prove(m)
	plan, err := Solve(t.Context(), m, effort.Search{Effort: time.Second})
	require.NoError(t, err)
	return m, plan
}

// TestExactEqualsEnumeration: branch and bound, which cuts symmetric and hopeless
// branches, finds what timing every pattern finds.
func TestExactEqualsEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	for i := range 40 {
		steps, planes := 1+rng.IntN(4), 1+rng.IntN(3)
		p := plantest.RandomSteps(rng, steps, planes)
		m, plan := proven(t, p)
		bound.State(m, plan)
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
		checkBounds(t, m, least)
	}
}

// checkBounds compares the pricing and paging bounds, of the whole and of every suffix on
// free circuits, with optima.
func checkBounds(t *testing.T, m *model.Model, optimum float64) {
	t.Helper()
	b := m.Bound
	if b.Total > optimum+1e-5 {
		t.Fatalf("bound %v above the optimum %v (%s)", b.Total, optimum, b.Proof)
	}
	for i := range m.P.Steps {
		rest := *m.P
		rest.Initial, rest.Steps = nil, m.P.Steps[i:]
		_, plan := proven(t, &rest)
		if b.Suffix[i] > plan.CCTUS+1e-5 {
			t.Fatalf("suffix %d: bound %v above the optimum %v", i, b.Suffix[i], plan.CCTUS)
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
		m, err := model.Compile(p)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if _, ok := newSwot(m).witness(); ok != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, ok, tc.want)
		}
	}
}
