package planner

import (
	"slices"

	"lightpath/plans/circuit"
)

// arranged returns m with the sub-steps of split steps in a better order for planes that keep their circuits. Sub-steps
// that fit the current circuits come first: the given ones, or those of the step before. Sub-steps that fit the
// circuits of the step after come last. Nothing else is changed.
func (m *model) arranged() *model {
	if len(m.steps) == len(m.asked) {
		return m
	}
	out := *m
	out.steps = slices.Clone(m.steps)
	for from := 0; from < len(out.steps); {
		to := from + 1
		for !m.lastOfStep(to - 1) {
			to++
		}
		out.arrange(from, to)
		from = to
	}
	return &out
}

// arrange orders the sub-steps from..to-1 of one step.
func (m *model) arrange(from, to int) {
	group := m.steps[from:to]
	rank := make(map[int]int, len(group)) // page -> place among the others
	for i := range group {
		q := group[i].page
		switch {
		case m.before(from, q):
			rank[q] = 0
		case to < len(m.steps) && m.fits(q, m.steps[to].page):
			rank[q] = 2
		default:
			rank[q] = 1
		}
	}
	slices.SortStableFunc(group, func(a, b step) int { return rank[a.page] - rank[b.page] })
}

// before reports whether page q fits circuits that exist when step from begins.
func (m *model) before(from, q int) bool {
	if from > 0 {
		return m.fits(q, m.steps[from-1].page)
	}
	return slices.ContainsFunc(m.initial, func(have []circuit.Permutation) bool {
		return holdsPage(have, m.pages[q].maps)
	})
}

// fits reports whether one unit can serve both pages without a switch between.
func (m *model) fits(p, q int) bool {
	_, ok := union(m.pages[p].maps, m.pages[q].maps)
	return ok
}
