package swot

import (
	"math"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
)

// TestSwitchCostOfPorts: the time that the search computes for a pattern is the time of its plan. It is so even if the
// cost of a switch depends on how many ports get a new target.
func TestSwitchCostOfPorts(t *testing.T) {
	maps := []circuit.Permutation{{1, 0, 3, 2, 5, 4}, {1, 0, 3, 4, 5, 2}, {5, 0, 1, 2, 3, 4}, {1, 0, 3, 2, 5, 4}}
	for name, initial := range map[string][]circuit.Permutation{
		"free": nil, "given": {maps[0], maps[2]}, "dark": {circuit.AllDark(6), circuit.AllDark(6)},
	} {
		p := &plans.Problem{
			Version: plans.Version, Ranks: 6, Planes: 2, BandwidthGbps: 80, ReconfigUS: 10,
			ReconfigPerPort: 7, Circuits: plans.Simplex, Initial: initial,
		}
		for i, to := range maps {
			p.Steps = append(p.Steps, plans.Step{Bytes: 2e5 * float64(1+i), To: to})
		}
		m, err := model.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		w := newSwot(m.Arranged())
		for code := range 3 * 3 * 3 * 3 { // every step on plane 0, plane 1 or both
			u := make(pattern, len(maps))
			for i, rest := 0, code; i < len(u); i, rest = i+1, rest/3 {
				u[i] = uint64(rest%3) + 1
			}
			us, share := w.timed(u, math.Inf(1))
			if plan := w.write(u, share); !plans.SameUS(us, plan.CCTUS) {
				t.Errorf("%s, pattern %v: computed %v us, the plan takes %v us", name, u, us, plan.CCTUS)
			}
		}
	}
}
