package milp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans/delta/dag"
	"lightpath/plans/mip/solver"
)

// anySolver returns an installed solver, or skips the test.
func anySolver(t *testing.T) *solver.Solver {
	t.Helper()
	s, err := solver.Find("auto")
	if errors.Is(err, solver.ErrNone) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return s
}

// free are the options under which a model has every schedule of n transfers.
func free(g *dag.Graph, kind Kind, n int) Options {
	return Options{Kind: kind, Start: serial(g), Margin: Exact, Extra: n}
}

func solve(t *testing.T, g *dag.Graph, o Options, so SolveOptions) *Result {
	t.Helper()
	m, err := New(g, o)
	require.NoError(t, err)
	so.Gap = 1e-7
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := m.solve(ctx, so)
	require.NoError(t, err)
	return r
}

// TestOptimumByEnumeration: both models have the optimum that enumeration of topologies and of orders of
// events finds, and Joint's is no more than Topo's. CBC solves the short graphs fast. In the first one,
// Joint's optimum is less than Topo's.
func TestOptimumByEnumeration(t *testing.T) {
	s := anySolver(t)
	type graph struct {
		seed      uint64
		transfers int
	}
	graphs := []graph{{1, 2}, {2, 3}, {3, 3}, {7, 3}}
	if os.Getenv("LIGHTPATH_TEST_LONG") != "" {
		for seed := range uint64(20) {
			graphs = append(graphs, graph{seed, 3})
		}
	}
	jointLess := false
	for _, c := range graphs {
		g := tiny(rand.New(rand.NewPCG(6, c.seed)), c.transfers)
		require.NoError(t, g.Validate())
		var found [2]float64
		for _, kind := range []Kind{Topo, Joint} {
			want := optimum(g, kind == Topo, nil)
			r := solve(t, g, free(g, kind, c.transfers), SolveOptions{Solver: s})
			if r.Status != solver.Optimal {
				t.Fatalf("%v: %v", kind, r.Status)
			}
			got := r.Schedule.Makespan
			if math.Abs(got-want) > 1e-4*want {
				t.Errorf("%v: %v, enumeration %v", kind, got, want)
			}
			if r.BoundUS > want*(1+1e-5) {
				t.Errorf("%v: bound %v above %v", kind, r.BoundUS, want)
			}
			found[kind] = got
		}
		if found[Joint] > found[Topo]*(1+1e-5) {
			t.Errorf("joint %v, topo %v", found[Joint], found[Topo])
		}
		jointLess = jointLess || found[Joint] < found[Topo]*(1-1e-3)
	}
	if !jointLess {
		t.Error("no graph tells Joint from Topo")
	}
}
