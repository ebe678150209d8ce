package programtest

import (
	"math/rand/v2"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// RandomPlan returns a valid plan of p with random splits over random planes and entries. It uses the circuits of each
// step, or a ring.
func RandomPlan(p *plans.Problem, rng *rand.Rand) *plans.Plan {
	ring := circuit.Shift(p.Ranks, 1)
	plan := &plans.Plan{Version: plans.Version, Planes: make([][]plans.Entry, p.Planes)}
	maps := make([]circuit.Permutation, p.Planes)
	for j := range maps {
		maps[j] = []circuit.Permutation{ring, circuit.AllDark(p.Ranks), circuit.Shift(p.Ranks, 2)}[rng.IntN(3)]
		plan.Initial = append(plan.Initial, maps[j])
	}
	for i := range p.Steps {
		st := &p.Steps[i]
		left := st.Bytes
		for j := range p.Planes {
			for k := rng.IntN(3); k >= 0; k-- {
				e := plans.Entry{Kind: plans.Transmit, Step: i, Bytes: left * rng.Float64()}
				if j == p.Planes-1 && k == 0 {
					e.Bytes = left
				}
				left -= e.Bytes
				to := ring
				if st.To != nil && rng.IntN(2) == 0 {
					to = st.To
				}
				if !routable(maps[j], st) || rng.IntN(3) == 0 {
					plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: to})
					maps[j] = to
				}
				plan.Planes[j] = append(plan.Planes[j], divided(e, st, rng)...)
			}
		}
	}
	for j := range maps {
		plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: plan.Initial[j]})
	}
	return plan
}

// divided returns an entry of a step, or the same bytes as two entries, each for some of the flows.
func divided(e plans.Entry, st *plans.Step, rng *rand.Rand) []plans.Entry {
	if rng.IntN(4) != 0 {
		return []plans.Entry{e}
	}
	parts := []plans.Entry{e, e}
	for f := range st.FlowList() {
		p := &parts[rng.IntN(2)]
		p.Flows = append(p.Flows, f)
	}
	return slices.DeleteFunc(parts, func(p plans.Entry) bool { return p.Flows == nil })
}

func routable(m circuit.Permutation, st *plans.Step) bool {
	for _, f := range st.FlowList() {
		if _, ok := m.Hops(f[0], f[1]); !ok {
			return false
		}
	}
	return true
}
