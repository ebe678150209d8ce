package model

import (
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The planes of an interleaved pair hold a map and its inverse, so most often one of them serves a pattern. If no rank
// of the pattern both sends and receives, as in a broadcast, circuits back make the map its own inverse. Then both
// planes serve the pattern.

// addReturns adds the circuits back to the pages of interleaved planes, if a plan in lockstep then takes less. It may
// take more, because a unit holds a page from the start, or two pages at a time, only without them.
func (m *Model) addReturns() {
	if m.P.Circuits != plans.Interleaved || len(m.Pages) > maxUnionPages {
		return
	}
	m.returns = true
	both := make([][]circuit.Permutation, len(m.Pages))
	for q := range m.Pages {
		both[q], _ = m.MapsFor(m.Pages[q][0])
	}
	if m.returns = m.lockstepUS(both) < m.lockstepUS(m.Pages); !m.returns {
		return
	}
	m.Pages, m.byMap, m.byFirst = nil, circuit.Index{}, map[int][]int{}
	for _, steps := range [][]Step{m.Asked, m.Steps} {
		for i := range steps {
			if steps[i].Pattern != nil {
				m.assignPage(&steps[i])
			}
		}
	}
}

// lockstepUS returns the time of the steps, without overheads, if all units switch together and as late as they can.
// pages replace those of m.
func (m *Model) lockstepUS(pages [][]circuit.Permutation) float64 {
	us := 0.0
	have, fixed := m.Initial, m.Initial != nil // maps of the units that differ; no circuits are added to fixed ones
	for i := range m.Steps {
		st := &m.Steps[i]
		page := pages[st.Page]
		us += m.UsPerByte * st.Bytes / float64(m.Units*Servers(page, st.Pattern))
		if have == nil {
			have = [][]circuit.Permutation{page}
		}
		cost := 0.0
		for _, maps := range have {
			if !HoldsPage(maps, page) {
				cost = max(cost, m.SwitchUS(maps, page))
			}
		}
		if cost == 0 {
			continue
		}
		more, ok := Union(have[0], page)
		if fixed || !ok {
			us, more = us+cost, page
		}
		have, fixed = [][]circuit.Permutation{more}, false
	}
	return us
}

// withReturns returns the pattern with all circuits back, or false if a rank both sends to one rank and receives from
// another.
func withReturns(pattern circuit.Permutation) (circuit.Permutation, bool) {
	both := pattern.Clone()
	for r, s := range pattern {
		if s == circuit.Dark {
			continue
		}
		if both[s] != circuit.Dark && both[s] != r {
			return nil, false
		}
		both[s] = r
	}
	return both, true
}
