package spectra

import (
	"math/rand/v2"
	"slices"
)

// layout is a schedule under construction: permutations with their weights, and the unit
// (a switch, or an interleaved pair) that holds each.
type layout struct {
	holds []hold
	unit  []int32
	span  float64 // makespan
}

func (l *layout) clone() *layout {
	return &layout{slices.Clone(l.holds), slices.Clone(l.unit), l.span}
}

// searcher improves layouts. A round takes time away from the permutations, so that the schedule would be shorter. It
// exchanges circuits until as little demand as possible is unserved. The linear program then finds the weights that
// the new permutations need.
type searcher struct {
	w       *network
	m       *matcher
	lp      weigher
	x       *exchanger
	units   int
	delta   float64
	perPort float64
	rng     *rand.Rand

	left     []float64 // per entry: demand minus what is held
	at       [][]int32 // per hold: edge of each port
	overhead []float64 // per unit
	load     []float64 // per unit
	share    []float64 // per hold
	need     []float64 // demands of a hold
	anew     []int     // holds
	covered  []bool    // per entry
	spent    int64     // work that no part counts itself
}

func newSearcher(w *network, units int, delta, perPort float64, seed int64) *searcher {
	s := &searcher{
		w: w, m: newMatcher(w), x: newExchanger(w), units: units, delta: delta, perPort: perPort,
		rng:      rand.New(rand.NewPCG(uint64(seed), 0x5bec)),
		left:     make([]float64, len(w.demand)),
		overhead: make([]float64, units),
		load:     make([]float64, units),
		covered:  make([]bool, len(w.demand)),
	}
	s.lp.setNetwork(w)
	return s
}

// work returns the work so far, in elementary operations.
func (s *searcher) work() int64 { return s.spent + s.m.work() + s.lp.lp.Work() + s.x.work }

// setup returns the cost of a permutation in addition to its weight.
func (s *searcher) setup(h *hold) float64 {
	return s.delta + s.perPort*float64(s.w.changes(h.edges))
}

// measure sets overhead and load to those of l.
func (s *searcher) measure(l *layout) {
	clear(s.overhead)
	for i := range l.holds {
		s.overhead[l.unit[i]] += s.setup(&l.holds[i])
	}
	copy(s.load, s.overhead)
	for i := range l.holds {
		s.load[l.unit[i]] += l.holds[i].weight
	}
}

// weigh sets the weights and the makespan. It returns false if no hold covers some entry.
func (s *searcher) weigh(l *layout) bool {
	clear(s.covered)
	missing := len(s.covered)
	for _, h := range l.holds {
		s.spent += int64(len(h.edges))
		for _, e := range h.edges {
			if !s.covered[s.w.entry[e]] {
				s.covered[s.w.entry[e]] = true
				missing--
			}
		}
	}
	if missing > 0 {
		return false
	}
	s.measure(l)
	s.spent += int64(2 * len(s.w.demand))
	l.span = s.lp.solve(l.holds, l.unit, s.overhead)
	return true
}

// squeeze changes weights so that every unit ends at target. It divides the change at random, mostly without regard to
// the weights: the spread of the demands in a permutation makes it too long, and does not grow with the demands. One
// hold may be excepted.
func (s *searcher) squeeze(l *layout, target float64, except int) {
	s.measure(l)
	s.share = resize(s.share, len(l.holds))
	total := make([]float64, s.units)
	even := s.rng.IntN(4) != 0
	for i := range l.holds {
		x := s.rng.ExpFloat64()
		if !even {
			x *= l.holds[i].weight + 1e-6*l.span
		}
		if i == except {
			x *= 1e-9
		}
		s.share[i] = x
		total[l.unit[i]] += x
	}
	for i := range l.holds {
		if u := l.unit[i]; total[u] > 0 {
			h := &l.holds[i]
			h.weight = max(0, h.weight+(target-s.load[u])*s.share[i]/total[u])
		}
	}
}

// lower shortens one permutation of each unit by enough to leave its largest few demands
// short: if few entries make a permutation long, it gets shorter only without all of them.
func (s *searcher) lower(l *layout) {
	s.w.uncovered(s.left, l.holds)
	s.spent += int64(len(l.holds)*s.w.n + len(s.left))
	done := make([]bool, s.units)
	for _, i := range s.rng.Perm(len(l.holds)) {
		h := &l.holds[i]
		if done[l.unit[i]] {
			continue
		}
		done[l.unit[i]] = true
		few := 1 + s.rng.IntN(mostLowered)
		s.need = s.need[:0]
		for _, e := range h.edges {
			s.need = append(s.need, s.left[s.w.entry[e]]+h.weight)
		}
		slices.Sort(s.need)
		weight := 0.0
		if at := len(s.need) - 1 - few; at >= 0 {
			weight = max(0, s.need[at])
		}
		h.weight = min(h.weight, weight)
	}
}

// mostLowered is the largest number of demands that lower leaves short in a permutation.
const mostLowered = 6

// exchangePasses bounds the exchanges of one round: more rounds are worth more than passes.
const exchangePasses = 2

// adapt computes new circuits for the holds anew, and then exchanges circuits between permutations, given the weights.
func (s *searcher) adapt(l *layout, anew []int) {
	n := len(l.holds)
	s.w.uncovered(s.left, l.holds)
	for len(s.at) < n {
		s.at = append(s.at, make([]int32, s.x.ports))
	}
	for _, i := range anew {
		s.rematch(&l.holds[i])
	}
	for i, h := range l.holds {
		s.x.spread(h.edges, s.at[i])
	}
	s.spent += int64(n*s.x.ports + len(s.left))
	s.x.relieve(l.holds, s.at, s.left, exchangePasses)
	for i := range l.holds {
		l.holds[i].edges = s.x.gather(s.at[i])
	}
}

// rematch gives a hold the circuits that reduce the shortfall most.
func (s *searcher) rematch(h *hold) {
	for _, e := range h.edges {
		s.left[s.w.entry[e]] += h.weight
	}
	for e, entry := range s.w.entry {
		s.m.weight[e] = max(0, min(h.weight, s.left[entry]))
	}
	h.edges = s.m.heaviest()
	for _, e := range h.edges {
		s.left[s.w.entry[e]] -= h.weight
	}
}

// farthest is the largest part of the makespan that a round tries to save.
const farthest = 0.02

// round tries one change of cur and returns the new layout, or nil.
func (s *searcher) round(cur *layout) *layout {
	s.spent += int64(500 + 50*len(cur.holds)) // work that is not counted elsewhere
	next := cur.clone()
	if s.units > 1 && s.rng.IntN(4) == 0 {
		s.regroup(next)
	}
	anew := s.anew[:0]
	switch u := s.rng.Float64(); s.rng.IntN(4) {
	case 0:
		s.lower(next)
	case 1: // one hold gets time of the others, and other circuits for it
		i := s.rng.IntN(len(next.holds))
		next.holds[i].weight += s.rng.ExpFloat64() * mean(next.holds) / 3
		anew = append(anew, i)
		s.squeeze(next, cur.span*(1-farthest*u*u), i)
	default:
		s.squeeze(next, cur.span*(1-farthest*u*u), -1)
	}
	for range max(0, s.rng.IntN(5)-2) {
		anew = append(anew, s.rng.IntN(len(next.holds)))
	}
	s.anew = anew
	s.adapt(next, anew)
	if !s.weigh(next) {
		return nil
	}
	return next
}

// mean returns the average weight.
func mean(holds []hold) float64 {
	total := 0.0
	for i := range holds {
		total += holds[i].weight
	}
	return total / float64(len(holds))
}

// regroup moves a hold to another unit, or exchanges two.
func (s *searcher) regroup(l *layout) {
	i, j := s.rng.IntN(len(l.holds)), s.rng.IntN(len(l.holds))
	if l.unit[i] != l.unit[j] && s.rng.IntN(3) > 0 {
		l.unit[i], l.unit[j] = l.unit[j], l.unit[i]
		return
	}
	l.unit[i] = int32(s.rng.IntN(s.units))
}

// extend adds count permutations to a copy of l, each a copy of another one with part of
// its weight, on the unit that ends first.
func (s *searcher) extend(l *layout, count int) *layout {
	next := l.clone()
	s.measure(next)
	for range count {
		from := 0
		for i := range next.holds {
			if next.holds[i].weight > next.holds[from].weight {
				from = i
			}
		}
		u := extreme(s.load, -1)
		h := &next.holds[from]
		move := h.weight / 2
		next.holds = append(next.holds, hold{h.edges, move})
		next.unit = append(next.unit, int32(u))
		next.holds[from].weight -= move
		s.load[next.unit[from]] -= move
		s.load[u] += move + s.setup(h)
	}
	return next
}
