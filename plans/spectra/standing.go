package spectra

import (
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Standing plans a demand problem on circuits that stand: each plane keeps its map, all for the same time, so the
// circuits of a pair share its demand evenly. The second result is that time: as planes begin so, they do not switch.
// The plan is nil if a pair with a demand has no circuit.
func Standing(p *plans.Problem, maps []circuit.Permutation) (*plans.Plan, float64) {
	longest := 0.0
	for r, row := range wireTimes(p) {
		for s, us := range row {
			circuits := 0
			for _, m := range maps {
				if m[r] == s {
					circuits++
				}
			}
			if us > 0 {
				if circuits == 0 {
					return nil, 0
				}
				longest = max(longest, us/float64(circuits))
			}
		}
	}
	plan := &plans.Plan{Version: plans.Version, Planner: "static", Planes: make([][]plans.Entry, len(maps))}
	for j, m := range maps {
		up := plans.ReconfigUS(p, circuit.AllDark(p.Ranks), m)
		plan.Planes[j] = []plans.Entry{
			{Kind: plans.Reconfigure, To: m, EndUS: up},
			{Kind: plans.Hold, To: m, StartUS: up, EndUS: up + longest},
		}
		plan.CCTUS = max(plan.CCTUS, up+longest)
	}
	return plan, longest
}
