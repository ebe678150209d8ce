package planner

import (
	"context"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// solvePerStep is the strawman of SWOT and the BvN baseline of HARVEST: wherever the
// pattern differs from the previous step's, every plane is reconfigured, in lockstep,
// and the bytes are divided evenly.
func solvePerStep(_ context.Context, m *model, _ Options) (*plans.Plan, error) {
	for i := range m.steps {
		if st := &m.steps[i]; st.page < 0 {
			return nil, infeasible(st.index, "%s", st.reason)
		}
	}
	if len(m.steps) == 0 {
		return newTimeline(m, m.startMaps(m.darkMaps())).finish("perstep"), nil
	}
	t := newTimeline(m, m.startMaps(m.everyUnit(m.pages[m.steps[0].page].maps)))
	for i := range m.steps {
		st := &m.steps[i]
		maps := m.pages[st.page].maps
		if m.mustSwitch(t.current, i) {
			t.lockstep(maps)
		}
		var serving []int
		for j, c := range t.current {
			if c.Covers(st.pattern) {
				serving = append(serving, j)
			}
		}
		for _, j := range serving {
			t.transmit(j, st, st.bytes/float64(len(serving)), 1, 1)
		}
		t.closeStep()
	}
	return t.finish("perstep"), nil
}

// mustSwitch reports whether the baseline reconfigures before step i: the pattern is
// another than the previous step's; before the first, some unit cannot serve it.
func (m *model) mustSwitch(current []circuit.Permutation, i int) bool {
	if i > 0 {
		return m.steps[i].page != m.steps[i-1].page
	}
	for u := 0; u < m.units; u++ {
		if servers(current[u*m.unitPlanes:(u+1)*m.unitPlanes], m.steps[0].pattern) == 0 {
			return true
		}
	}
	return false
}
