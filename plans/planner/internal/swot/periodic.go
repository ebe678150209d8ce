package swot

import (
	"cmp"
	"context"
	"math"
	"slices"

	"lightpath/plans/planner/internal/model"
)

// Searches begin with periodic patterns. These take no search, so they exist for any number of ranks and planes.
// Every planner that may switch planes one by one returns a plan no worse than the best of them. Consecutive steps
// on one page are a turn. A unit serves a turn without a switch:
//
//   - rotation g x m: group i mod g serves turn i. A group has m units, and g x m is at most the number of units.
//     Lockstep is the rotation of one group of all units. Striped is the rotation of as many groups as units.
//   - by class g x m: every page has its group, page q group q mod g. If every page has a group of its own ("one
//     plane for each distance"), no unit switches.
//   - dealt c: each step takes c units. Units that hold its page come first, then the units that have been idle for
//     longest. If c is a fraction, some steps take one unit more than others.
//
// The best number of units of a step weighs the time of the step against that of switches. If the steps hide the
// switches, the best periodic pattern is near the bound by pricing of package bound.
type periodic struct {
	us    float64 // estimate
	build func(w *swot) pattern
}

// turns numbers, by step, the runs of steps on one page.
func (w *swot) turns() []int {
	turns := make([]int, len(w.page))
	for i := 1; i < len(turns); i++ {
		turns[i] = turns[i-1]
		if w.page[i] != w.page[i-1] {
			turns[i]++
		}
	}
	return turns
}

// grouped serves every step by the group whose number is that of its class, modulo the groups.
func (w *swot) grouped(class []int, groups, width int) pattern {
	u := make(pattern, len(class))
	for i, c := range class {
		u[i] = (uint64(1)<<width - 1) << (c % groups * width)
	}
	return u
}

// dealt gives each step width units on average: first units that hold its page, then the units idle for longest.
func (w *swot) dealt(width float64) pattern {
	return w.rotation(math.Inf(1), func(i int) int {
		return int(float64(i+1)*width) - int(float64(i)*width)
	}, true)
}

// fractions is the number of widths tried between two whole widths, up to mostFractional. Beyond that, one unit more or
// less makes little difference.
const (
	fractions      = 8
	mostFractional = 16
)

// periodics lists the patterns, the most promising first.
func (w *swot) periodics() []periodic {
	units := w.m.Units
	var all []periodic
	add := func(groups, width float64, build func(*swot) pattern) {
		all = append(all, periodic{w.estimatePeriodic(groups, width), build})
	}
	turns := w.turns()
	for width := 1; width <= units; width++ {
		for groups := 1; groups*width <= units; groups++ {
			add(float64(groups), float64(width), func(w *swot) pattern { return w.grouped(turns, groups, width) })
		}
		groups := units / width
		add(float64(groups), float64(width), func(w *swot) pattern { return w.grouped(w.page, groups, width) })
		for part := range fractions {
			c := float64(width) + float64(part)/fractions
			if c <= float64(units) && (part == 0 || width <= mostFractional) {
				add(float64(units)/c, c, func(w *swot) pattern { return w.dealt(c) })
			}
		}
	}
	slices.SortStableFunc(all, func(a, b periodic) int { return cmp.Compare(a.us, b.us) })
	return all
}

// estimatePeriodic returns the time of all steps if each turn has width units, which switch after it and next serve the
// turn groups later. It is near the time of a pattern whose pages differ. The sub-steps of a step are served side by
// side as far as there are groups.
func (w *swot) estimatePeriodic(groups, width float64) float64 {
	us := 0.0
	for i := 0; i < len(w.page); {
		took, turns := 0.0, 0.0
		for from := i; i == from || i < len(w.page) && w.t.Follows(i); i++ {
			took = math.Max(took, w.m.DirectUS+w.t.Work[i]/width)
			if i > 0 && w.page[i] != w.page[i-1] {
				turns++
			}
		}
		us += math.Max(took*math.Max(1, turns/groups), (w.m.P.ReconfigUS+took)*turns/groups)
	}
	return us
}

// bestPeriodic returns the periodic pattern with the least greedy time, or nil if none is below known, and all patterns
// that it tried, best first. When ctx ends, it returns the best so far. It tries at least one.
func (w *swot) bestPeriodic(ctx context.Context, known float64) (best scored, tried []scored) {
	best.US = known
	for i, p := range w.periodics() {
		if i > 0 && ctx.Err() != nil {
			break
		}
		u := p.build(w)
		us, ok := w.estimate(u, best.US)
		if !ok {
			continue
		}
		tried = append(tried, scored{u, us})
		if us < best.US-model.Tolerance(us) {
			best = scored{u, us}
		}
	}
	slices.SortStableFunc(tried, func(a, b scored) int { return cmp.Compare(a.US, b.US) })
	return best, tried
}
