package planner_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/planner"
)

// TestDemand: planners that choose their method plan a demand matrix, the others name a planner that does, and
// spectra refuses all other problems.
func TestDemand(t *testing.T) {
	p := fabric(3, 2, 0, 10)
	p.Demand = [][]float64{{0, 1e6, 2e5}, {4e5, 3e5, 0}, {1e6, 0, 5e5}}
	for _, name := range []string{"spectra", "weave", "auto"} {
		plan := solve(t, name, p, planner.Options{Effort: 20 * time.Millisecond})
		if plan.LowerBoundUS <= 0 || plan.BoundProof == "" {
			t.Errorf("%s: bound %v %q", name, plan.LowerBoundUS, plan.BoundProof)
		}
	}
	steps := fabric(2, 1, 0, 10)
	for _, tc := range []struct {
		name string
		p    *plans.Problem
		want string
	}{
		{"static", p, "spectra"}, {"perstep", p, "spectra"}, {"harvest", p, "spectra"}, {"swot", p, "spectra"},
		{"spectra", steps, "the problem has steps"},
	} {
		_, err := planner.Solve(context.Background(), tc.name, tc.p, planner.Options{})
		if !errors.Is(err, planner.ErrInfeasible) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	p.Demand[1][1] = -1
	if _, err := planner.Solve(context.Background(), "auto", p, planner.Options{}); !errors.Is(err, plans.ErrProblem) {
		t.Errorf("invalid demand: %v", err)
	}
	if _, err := planner.Solve(context.Background(), "best", p,
		planner.Options{}); !errors.Is(err, planner.ErrUnknownPlanner) {
		t.Errorf("unknown planner: %v", err)
	}
}

// TestWideDemand: demands whose entries differ by 24 orders of magnitude are served, also behind reconfigurations that
// take far longer than their smallest entries.
func TestWideDemand(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20 {
		p := fabric(8, 1+i%3, 0, math.Pow(10, float64(3*(i%5))))
		p.BandwidthGbps = 1e6
		for range p.Ranks {
			row := make([]float64, p.Ranks)
			for s := range row {
				row[s] = math.Pow(10, float64(rng.IntN(25)-9))
			}
			p.Demand = append(p.Demand, row)
		}
		solve(t, "spectra", p, planner.Options{TimeLimit: time.Minute, Effort: 5 * time.Millisecond})
	}
}
