package weave

import (
	"iter"
	"slices"

	"lightpath/plans"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/timeline"
)

// shortenPeriod looks for layouts that take no longer than plan, and whose reset is hidden.
func (s *Search) shortenPeriod(plan *plans.Plan, budget float64) *plans.Plan {
	w := s.w
	units, steps := w.m.Units, len(w.kind)
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
		most := plan.CCTUS + 2*model.Tolerance(plan.CCTUS)
		if us, ok := s.Time(l, most); !ok || us > most {
			return nil
		}
		return w.emit(l, budget)
	}
	return timeline.ShortenPeriod(w.m, s.Best.Pattern, plan, neighbours, emit, s.Meter.Spent)
}
