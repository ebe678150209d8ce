package iteration

import (
	"math"

	"lightpath/plans"
)

// mode says when planes switch between calls.
type mode int

const (
	early  mode = iota // as soon as a plane has finished: the iteration plan
	late               // back as soon as a plane has finished, and on when the call has come: a setup reconfiguration
	never              // at no cost: free initial circuits of every call
	gratis             // neither between calls nor inside them: what switching costs is the difference
)

// timed is an iteration with its times. Its slices are by position in the order of grants.
type timed struct {
	start, end []float64
	byCall     []float64 // ends, by call
	us         float64
}

// rounds bounds the search for the begin of the first call; after that it takes a begin that is always possible.
const rounds = 64

// time fills t for an order of grants and a candidate for each position. The first call follows the last one of the
// iteration before, so its begin depends on the time of the iteration, and the other way round: the begin rises until
// they agree.
func (s *solver) time(t *timed, order, choice []int, m mode) float64 {
	n := len(order)
	if t.start == nil {
		t.start, t.end, t.byCall = make([]float64, n), make([]float64, n), make([]float64, n)
	}
	wrap := s.lagIn(m, choice[n-1], choice[0])
	begin := math.Inf(-1)
	for round := 0; ; round++ {
		s.run(t, order, choice, m, begin, wrap)
		if m == never || m == gratis || math.IsInf(wrap.early, -1) {
			return t.us
		}
		needed := t.end[n-1] - t.us + wrap.early
		if begin >= needed-plans.Tolerance(begin, needed)/2 {
			return t.us
		}
		if begin = needed; round >= rounds {
			begin = math.Max(needed, wrap.early-s.p.Trace.Calls[order[n-1]].TailUS)
			s.run(t, order, choice, m, begin, wrap)
			return t.us
		}
	}
}

// run times one iteration whose first call begins at begin or later.
func (s *solver) run(t *timed, order, choice []int, m mode, begin float64, wrap lag) {
	before := math.Inf(-1) // end of the call before
	for at, call := range order {
		ready := s.p.Trace.Ready(call, t.byCall)
		start := math.Max(ready, before)
		l := wrap
		if at > 0 {
			l = s.lagIn(m, choice[at-1], choice[at])
		}
		switch {
		case m == never || m == gratis:
		case at == 0:
			start = math.Max(start, begin) + l.setup
		default:
			start = math.Max(start, before+l.early) + l.setup
		}
		c := s.all[choice[at]]
		us := c.us
		if m == gratis {
			us = s.freeUS(c)
		}
		before = start + us
		t.start[at], t.end[at], t.byCall[call] = start, before, before
	}
	t.us = s.p.Trace.End(t.byCall)
}

// switching returns the time of an iteration in which planes switch: the longest of each gap, and the union inside
// calls.
func (s *solver) switching(choice []int, m mode) float64 {
	sum := 0.0
	for at := range choice {
		l := s.lagIn(m, choice[(at+len(choice)-1)%len(choice)], choice[at])
		sum += l.gap + l.setup + s.all[choice[at]].switching
	}
	return sum
}
