package harvest

import (
	"math/bits"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/doubling"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
)

// doublingSteps recognises cyclic recursive doubling, in any order of its shifts.
func doublingSteps(m *model.Model) ([]doubling.Step, bool) {
	n := m.P.Ranks
	if !m.P.Forwarding || m.P.Circuits != plans.Simplex || m.P.Initial != nil ||
		n < 2 || n&(n-1) != 0 || len(m.Steps) == 0 || len(m.Steps) > doubling.MaxSteps {
		return nil, false
	}
	steps := make([]doubling.Step, len(m.Steps))
	for i := range m.Steps {
		st := &m.Steps[i]
		if st.Pattern == nil {
			return nil, false
		}
		d := st.Pattern[0]
		if d < 1 || d&(d-1) != 0 {
			return nil, false
		}
		for r, to := range st.Pattern {
			if to != (r+d)&(n-1) {
				return nil, false
			}
		}
		steps[i] = doubling.Step{Log2: bits.TrailingZeros(uint(d)), Bytes: st.Bytes}
	}
	return steps, true
}

// solveDoubling writes the plan of recursive doubling.
func solveDoubling(m *model.Model, steps []doubling.Step) *plans.Plan {
	s := doubling.Synthesize(m.P, steps)
	shifts := map[int8]circuit.Permutation{}
	setting := func(i int) []circuit.Permutation {
		d := s.Log2[i]
		if shifts[d] == nil {
			shifts[d] = circuit.Shift(m.P.Ranks, 1<<d)
		}
		return []circuit.Permutation{shifts[d]}
	}
	t := timeline.New(m, m.EveryUnit(setting(0)))
	for i := range m.Steps {
		if i > 0 && s.Log2[i] != s.Log2[i-1] {
			t.Lockstep(m.EveryUnit(setting(i)), true)
		}
		hops := 1 << (steps[i].Log2 - int(s.Log2[i]))
		for j := range t.Current {
			t.Transmit(j, &m.Steps[i], m.Steps[i].Bytes/float64(m.P.Planes), timeline.Route{Hops: hops, Load: hops})
		}
		t.CloseStep()
	}
	return t.Finish("harvest")
}
