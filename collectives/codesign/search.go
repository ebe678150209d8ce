package codesign

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans"
)

// How the effort is divided: a part for screening all alternatives, one for other orders of
// the best, the rest for planning the best in earnest.
const (
	screenShare  = 0.25
	reorderShare = 0.2
	reordered    = 3  // alternatives whose orders are searched
	orderTries   = 24 // orders tried around each
	orderMisses  = 8  // after so many that are no better, the order is taken not to matter
	finalists    = 3
	leastEffort  = time.Millisecond
)

// screeners are the planners of a first look: swot begins with periodic patterns, which take no search, and
// is never worse than perstep.
var screeners = []string{"swot", "static"}

// slack is by how much longer than its effort one planner may take of the time that is left for
// all: a loaded machine changes nothing, one that measures without end does not hold up the rest.
const (
	slackFactor = 4
	slackTime   = 20 * time.Millisecond
)

// screen plans every alternative with a little effort, small schedules first: then there is
// something early, whatever the time limit.
func (s *search) screen() {
	var cs []*candidate
	names := s.names()
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(predictedFlows(a, s.Ranks), predictedFlows(b, s.Ranks)) })
	budget := time.Duration(screenShare * float64(s.effort))
	s.effort -= budget
	each := max(leastEffort, budget/time.Duration(max(1, len(names))))
	for _, name := range names {
		c := s.add(name)
		cs = append(cs, c)
		s.look(c, each)
		s.forget()
	}
	if s.Planner != "auto" || !s.Fabric.Forwarding {
		return
	}
	slices.SortStableFunc(cs, byTime)
	for _, c := range cs {
		s.solve(c, "harvest", each)
		s.forget()
	}
}

// look plans a candidate with a little effort.
func (s *search) look(c *candidate, effort time.Duration) {
	if s.Planner != "auto" {
		s.solve(c, s.Planner, effort)
		return
	}
	for _, name := range screeners {
		s.solve(c, name, effort)
	}
}

// reorder looks for better orders of the steps of the best alternatives: it walks to a
// neighbour wherever one is better.
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

// climb tries neighbours of a candidate, in a random order, and goes on from each better one.
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
				if s.look(next, each); s.Planner == "auto" && s.Fabric.Forwarding {
					s.solve(next, "harvest", each)
				}
				s.forget()
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

// sample returns at most k names, each equally likely (reservoir sampling).
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

// optimal reports whether a candidate's plan cannot be improved.
func (s *search) optimal(c *candidate) bool {
	return c.CCTUS <= c.LowerBoundUS+plans.Tolerance(c.CCTUS, c.LowerBoundUS)
}

// finish plans the best alternatives in earnest: the first with half of the effort, each further
// one with half of what is left. An alternative whose lower bound is no better than the best
// plan is left as it is.
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
