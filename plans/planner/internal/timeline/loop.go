package timeline

import (
	"iter"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/planner/internal/model"
)

// A plan that is run in a loop (final: initial) is judged by its CCT first and then by its period. A reset delays the
// next round unless the last transmits of other planes hide it. On free circuits, a plane that works late in the plan
// and not at its beginning does its reset better at the beginning: it begins on the circuits on which it ends.

// Period returns how long after it begins a plan may begin again, in us: the end of its last
// entry, trailing reconfigurations included. It is at least CCTUS.
func Period(plan *plans.Plan) float64 {
	us := plan.CCTUS
	for _, entries := range plan.Planes {
		if n := len(entries); n > 0 {
			us = math.Max(us, entries[n-1].EndUS)
		}
	}
	return us
}

// Better reports whether plan a is better than b: by CCT, and in a loop by period if CCTs are equal.
func Better(m *model.Model, a, b *plans.Plan) bool {
	if b == nil || !plans.SameUS(a.CCTUS, b.CCTUS) {
		return b == nil || a.CCTUS < b.CCTUS
	}
	return m.P.Final.Kind == plans.FinalInitial && Period(a) < Period(b)-model.Tolerance(b.CCTUS)
}

// beginAtEnd is for a unit that has to return to free circuits. It lets the unit begin where it ends, and switch before
// its first transmit, if it is idle for long enough then. It reports whether that replaces the reset.
func (t *Timeline) beginAtEnd(unit int) bool {
	m := t.m
	if m.P.Initial != nil || m.P.Final.Kind != plans.FinalInitial {
		return false
	}
	first, cost := math.Inf(1), m.SwitchUS(m.OfUnit(t.Current, unit), m.OfUnit(t.initial, unit))
	for j := unit * m.UnitPlanes; j < (unit+1)*m.UnitPlanes; j++ {
		if len(t.planes[j]) > 0 {
			first = math.Min(first, t.planes[j][0].StartUS)
		}
	}
	if cost > first {
		return false
	}
	for j := unit * m.UnitPlanes; j < (unit+1)*m.UnitPlanes; j++ {
		t.planes[j] = slices.Insert(t.planes[j], 0, plans.Entry{Kind: plans.Reconfigure, To: t.initial[j], StartUS: 0,
			EndUS: cost})
		t.initial[j] = t.Current[j]
	}
	return true
}

// ShortenPeriod looks for a plan that takes no longer than the given one, and whose reset is hidden; plans that are not
// run in a loop have none. It goes from the given plan's pattern to better neighbours until none is better or spent
// returns true. It returns the best plan. emit returns nil if a neighbour needs no plan.
func ShortenPeriod[S any](m *model.Model, at S, plan *plans.Plan, neighbours func(S) iter.Seq[S],
	emit func(S) *plans.Plan, spent func() bool) *plans.Plan {
	if m.P.Final.Kind != plans.FinalInitial || Period(plan) <= plan.CCTUS {
		return plan
	}
	for found := true; found; {
		found = false
		for next := range neighbours(at) {
			if spent() {
				return plan
			}
			if p := emit(next); p != nil && Better(m, p, plan) {
				at, plan, found = next, p, true
				break
			}
		}
	}
	return plan
}
