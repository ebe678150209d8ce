package model

import (
	"slices"

	"lightpath/plans/circuit"
)

// Arranged returns m with the sub-steps of split steps in a better order for planes that keep their circuits. Sub-steps
// that fit the current circuits come first: the given ones, or those of the step before. Sub-steps that fit the
// circuits of the step after come last. Nothing else is changed.
func (m *Model) Arranged() *Model {
	if len(m.Steps) == len(m.Asked) {
		return m
	}
	out := *m
	out.Steps = slices.Clone(m.Steps)
	for from, to := range m.SubSteps() {
		out.arrange(from, to)
	}
	return &out
}

// arrange orders the sub-steps from..to-1 of one step.
func (m *Model) arrange(from, to int) {
	group := m.Steps[from:to]
	rank := make(map[int]int, len(group)) // page -> place among the others
	for i := range group {
		q := group[i].Page
		switch {
		case m.before(from, q):
			rank[q] = 0
		case to < len(m.Steps) && m.fits(q, m.Steps[to].Page):
			rank[q] = 2
		default:
			rank[q] = 1
		}
	}
	slices.SortStableFunc(group, func(a, b Step) int { return rank[a.Page] - rank[b.Page] })
}

// before reports whether page q fits circuits that exist when step from begins.
func (m *Model) before(from, q int) bool {
	if from > 0 {
		return m.fits(q, m.Steps[from-1].Page)
	}
	return slices.ContainsFunc(m.Initial, func(have []circuit.Permutation) bool {
		return HoldsPage(have, m.Pages[q])
	})
}

// fits reports whether one unit can serve both pages without a switch between.
func (m *Model) fits(p, q int) bool {
	_, ok := Union(m.Pages[p], m.Pages[q])
	return ok
}
