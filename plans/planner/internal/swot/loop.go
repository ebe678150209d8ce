package swot

import (
	"iter"
	"slices"

	"lightpath/plans"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/timing"
)

// shortenPeriod looks for patterns that take no longer than plan, and whose reset is hidden.
func (w *swot) shortenPeriod(u pattern, plan *plans.Plan, b *timing.Meter, budget float64) *plans.Plan {
	neighbours := func(u pattern) iter.Seq[pattern] {
		return func(yield func(pattern) bool) {
			for i := range u {
				for j := range w.m.Units {
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
		if !w.t.Exact(len(u), budget) {
			timed = func(u pattern, _ int, cutoff float64) (float64, bool) { return w.estimate(u, cutoff) }
		}
		if _, ok := timed(u, len(u), plan.CCTUS+2*model.Tolerance(plan.CCTUS)); !ok {
			return nil
		}
		return w.emit(u, budget)
	}
	return timeline.ShortenPeriod(w.m, u, plan, neighbours, emit, b.Spent)
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
