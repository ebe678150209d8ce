package planner_test

import (
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// TestSplitStepsMeetTheirNeighbours: the matchings of a split step are served in an order that
// begins with the current circuits and ends with the next ones. The times are
// the optima of these problems.
func TestSplitStepsMeetTheirNeighbours(t *testing.T) {
	begins := &plans.Problem{
		Version: plans.Version, Ranks: 3, Planes: 1, BandwidthGbps: 8, AlphaUS: 5, ReconfigUS: 10, Circuits: plans.Simplex,
		Initial: []circuit.Permutation{{2, 0, 1}},
		Steps:   []plans.Step{{Bytes: 50000, Flows: [][2]int{{0, 1}, {0, 2}, {2, 1}}}},
	}
	ends := &plans.Problem{
		Version: plans.Version, Ranks: 3, Planes: 1, BandwidthGbps: 8, ReconfigUS: 60, Circuits: plans.Simplex,
		Initial: []circuit.Permutation{{0, 1, 2}},
		Steps: []plans.Step{{Bytes: 50000, Flows: [][2]int{{0, 1}, {0, 2}}},
			{Bytes: 130000, To: circuit.Permutation{-1, 2, 0}}},
	}
	for _, tc := range []struct {
		p  *plans.Problem
		us float64
	}{{begins, 120}, {ends, 350}} {
		for _, name := range []string{"swot", "weave"} {
			if plan := solve(t, name, tc.p, planner.Options{}); !plans.SameUS(plan.CCTUS, tc.us) {
				t.Errorf("%s: %v us, want %v", name, plan.CCTUS, tc.us)
			}
		}
	}
}
