package planner

import (
	"iter"
	"math"
	"slices"

	"lightpath/plans"
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

// better reports whether plan a is better than b: by CCT, and in a loop by period if CCTs are equal.
func (m *model) better(a, b *plans.Plan) bool {
	if b == nil || !plans.SameUS(a.CCTUS, b.CCTUS) {
		return b == nil || a.CCTUS < b.CCTUS
	}
	return m.p.Final.Kind == plans.FinalInitial && Period(a) < Period(b)-tolerance(b.CCTUS)
}

// beginAtEnd lets a unit that has to return to free circuits begin where it ends and switch
// before its first transmit, if it is idle for long enough then. It reports whether
// that replaces the reset.
func (t *timeline) beginAtEnd(unit int) bool {
	m := t.m
	if m.p.Initial != nil || m.p.Final.Kind != plans.FinalInitial {
		return false
	}
	first, cost := math.Inf(1), 0.0
	for j := unit * m.unitPlanes; j < (unit+1)*m.unitPlanes; j++ {
		cost = math.Max(cost, plans.ReconfigUS(m.p, t.current[j], t.initial[j]))
		if len(t.planes[j]) > 0 {
			first = math.Min(first, t.planes[j][0].StartUS)
		}
	}
	if cost > first {
		return false
	}
	for j := unit * m.unitPlanes; j < (unit+1)*m.unitPlanes; j++ {
		t.planes[j] = slices.Insert(t.planes[j], 0, plans.Entry{Kind: plans.Reconfigure, To: t.initial[j], StartUS: 0,
			EndUS: cost})
		t.initial[j] = t.current[j]
	}
	return true
}

// climb goes from a pattern to better neighbours until none is better or spent returns true. It returns the best plan.
// emit returns nil if a neighbour needs no plan.
func climb[S any](m *model, at S, plan *plans.Plan, neighbours func(S) iter.Seq[S], emit func(S) *plans.Plan,
	spent func() bool) *plans.Plan {
	for found := true; found; {
		found = false
		for next := range neighbours(at) {
			if spent() {
				return plan
			}
			if p := emit(next); p != nil && m.better(p, plan) {
				at, plan, found = next, p, true
				break
			}
		}
	}
	return plan
}

// shortenPeriod looks for patterns that take no longer than plan, and whose reset is hidden.
func (w *swot) shortenPeriod(u pattern, plan *plans.Plan, b *meter, budget float64) *plans.Plan {
	if w.m.p.Final.Kind != plans.FinalInitial || Period(plan) <= plan.CCTUS {
		return plan
	}
	neighbours := func(u pattern) iter.Seq[pattern] {
		return func(yield func(pattern) bool) {
			for i := range u {
				for j := range w.m.units {
					next := slices.Clone(u)
					if next[i] ^= 1 << j; next[i] != 0 && !yield(next) {
						return
					}
					for k := range j {
						if next := slices.Clone(u); exchangeBits(next[i:], j, k) && !yield(next) {
							return
						}
					}
				}
			}
		}
	}
	emit := func(u pattern) *plans.Plan {
		timed := w.evaluate
		if !w.t.barriers() || w.t.solveFlops(len(u)) > budget {
			timed = func(u pattern, _ int, cutoff float64) (float64, bool) { return w.estimate(u, cutoff) }
		}
		if _, ok := timed(u, len(u), plan.CCTUS+2*tolerance(plan.CCTUS)); !ok {
			return nil
		}
		return w.emit(u, budget)
	}
	return climb(w.m, u, plan, neighbours, emit, b.spent)
}

// shortenPeriod is the same for layouts.
func (s *weaving) shortenPeriod(plan *plans.Plan, budget float64) *plans.Plan {
	w := s.w
	if w.m.p.Final.Kind != plans.FinalInitial || Period(plan) <= plan.CCTUS {
		return plan
	}
	units, steps := w.m.units, len(w.kind)
	neighbours := func(l layout) iter.Seq[layout] {
		return func(yield func(layout) bool) {
			for i := range steps {
				for u := range units {
					for _, c := range append([]cell{idle}, s.short[i]...) {
						next := slices.Clone(l)
						if s.setCell(next, i, u, c) && !yield(next) {
							return
						}
					}
					for v := range u {
						next := slices.Clone(l)
						if s.exchange(next, i, steps, u, v) && !yield(next) {
							return
						}
					}
				}
			}
		}
	}
	emit := func(l layout) *plans.Plan {
		if us, ok := s.evaluate(l, plan.CCTUS+2*tolerance(plan.CCTUS)); !ok || us > plan.CCTUS+2*tolerance(plan.CCTUS) {
			return nil
		}
		return w.emit(l, budget)
	}
	return climb(w.m, s.best.l, plan, neighbours, emit, s.meter.spent)
}

// exchangeBits swaps the steps of two units, and reports whether the pattern changed.
func exchangeBits(u pattern, a, b int) bool {
	changed := false
	for i := range u {
		if u[i]>>a&1 != u[i]>>b&1 {
			u[i] ^= 1<<a | 1<<b
			changed = true
		}
	}
	return changed
}
