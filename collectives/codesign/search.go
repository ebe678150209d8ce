package codesign

import (
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans"
)

// Division of the effort: first screening all alternatives, then other orders of the best ones. The final plans of the
// best get the rest.
const (
	screenShare  = 0.25
	reorderShare = 0.2 // of the effort after screening
	reordered    = 3   // number of alternatives whose orders are searched
	orderTries   = 24  // orders tried per alternative
	orderMisses  = 8   // consecutive orders without improvement after which the search of orders ends
	finalists    = 3   // number of alternatives planned with full effort
	leastEffort  = time.Millisecond
)

// screeners are the planners for screening. swot begins with periodic patterns, which need no search, and is never
// worse than perstep.
var screeners = []string{"swot", "static"}

// The time limit of one planner is slackFactor times its effort plus slackTime, or more if the caller allows the whole
// search more time than effort. Effort counts operations, so the machine's load does not change the result. The limit
// stops a planner that takes far longer than its effort.
const (
	slackFactor = 4
	slackTime   = 20 * time.Millisecond
)

// screen plans every alternative with little effort. It begins with small schedules, so that a plan exists early.
func (s *search) screen(names []string) {
	var cs []*candidate
	slices.SortStableFunc(names, s.bySize)
	budget := time.Duration(screenShare * float64(s.effort))
	s.effort -= budget
	each := max(leastEffort, budget/time.Duration(max(1, len(names))))
	for _, name := range names {
		c := s.add(name)
		cs = append(cs, c)
		s.plan(c, each)
		s.dropPlans()
	}
	if s.Planner != "auto" || !s.Fabric.Forwarding {
		return
	}
	slices.SortStableFunc(cs, byTime)
	for _, c := range cs {
		s.solve(c, "harvest", each)
		s.dropPlans()
	}
}

// plan plans a candidate with the requested planner, or with the screeners if that is auto.
func (s *search) plan(c *candidate, effort time.Duration) {
	if s.Planner != "auto" {
		s.solve(c, s.Planner, effort)
		return
	}
	for _, name := range screeners {
		s.solve(c, name, effort)
	}
}

// reorder searches for better orders of the steps of the best alternatives.
func (s *search) reorder() {
	each := max(leastEffort, time.Duration(reorderShare*float64(s.effort))/(reordered*orderTries))
	rng := rand.New(rand.NewPCG(uint64(s.Options.Seed), 0))
	bases := map[string]bool{}
	for _, c := range s.ranked() {
		if len(bases) == reordered {
			return
		}
		family := withoutOrder(c.Algorithm)
		order, err := schedule.StepOrder(s.Collective, c.Algorithm, s.Ranks)
		if bases[family] || err != nil || len(order) < 2 || s.optimal(c) {
			continue
		}
		bases[family] = true
		s.climb(c, each, rng)
	}
}

// climb is a hill climb over orders: it tries neighbours of a candidate at random and moves to the first better one.
func (s *search) climb(c *candidate, each time.Duration, rng *rand.Rand) {
	tries, misses := orderTries, 0
	for tries > 0 {
		moved := false
		for _, name := range sample(schedule.Neighbours(s.Collective, c.Algorithm, s.Ranks), tries, rng) {
			if s.over() {
				return
			}
			next := s.add(name)
			if !next.planned && next.Err == nil {
				if s.plan(next, each); s.Planner == "auto" && s.Fabric.Forwarding {
					s.solve(next, "harvest", each)
				}
				s.dropPlans()
				s.effort -= each
				tries--
				misses++
			}
			if next.planned && next.CCTUS < c.CCTUS-plans.Tolerance(next.CCTUS, c.CCTUS) {
				c, moved, misses = next, true, 0
				break
			}
			if misses == orderMisses {
				return
			}
		}
		if !moved {
			return
		}
	}
}

// sample returns at most k of the names, chosen uniformly at random (reservoir sampling).
func sample(names iter.Seq[string], k int, rng *rand.Rand) []string {
	var out []string
	seen := 0
	for name := range names {
		seen++
		if len(out) < k {
			out = append(out, name)
		} else if at := rng.IntN(seen); at < k {
			out[at] = name
		}
	}
	return out
}

// optimal reports whether a candidate's plan has reached its lower bound.
func (s *search) optimal(c *candidate) bool {
	return c.CCTUS <= c.LowerBoundUS+plans.Tolerance(c.CCTUS, c.LowerBoundUS)
}

// finish plans the finalists. The first gets half of the effort, and each further one half of the rest. finish skips
// an alternative whose lower bound is not below the best completion time.
func (s *search) finish() {
	left := finalists
	for _, c := range s.ranked() {
		best := s.ranked()[0]
		switch {
		case left == 0:
			return
		case c != best && c.LowerBoundUS >= best.CCTUS-plans.Tolerance(best.CCTUS, c.LowerBoundUS):
			continue
		}
		left--
		if !s.optimal(c) {
			if left > 0 {
				s.effort /= 2
			}
			s.solve(c, s.Planner, s.effort)
		}
		c.Final = !s.over() || c.Final
	}
}
