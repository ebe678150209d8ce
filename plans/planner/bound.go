package planner

import (
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The bounds here hold for every plan of the problem, also for plans that no planner here
// makes (circuits that mix patterns, steps divided by flow).
//
//   - Bandwidth: a step costs alpha + hop, and the busiest port's bytes over all planes.
//   - Switching, without forwarding: seen from one rank r, a plan is a schedule in which each
//     of its planes holds the circuit to one destination. Serving r's sequence of
//     destinations is paging with as many slots as planes, so Belady's rule counts the
//     fewest switches; switches and transmits all occupy planes, of which there are k. This
//     is applied to windows of consecutive steps, each beginning with free circuits (what
//     is counted lies within the window), and the best partition into windows is summed.
//   - Pricing (pricing.go) weighs both.

const (
	boundWindow = 256 // longest window
	boundRanks  = 8   // ranks with distinct sequences that are tried, per direction
)

// bounds is what the windows prove.
type bounds struct {
	suffix []float64 // us from the end of step i-1 on, whatever the planes' state then
	total  float64   // from the start, with the given initial circuits
	proof  string
}

// finish states the bound of a plan, and what of it repeats.
func (m *model) finish(plan *plans.Plan) {
	plan.FindRepeats()
	m.stateBound(plan)
}

// stateBound writes the lower bound of the problem into plan, unless the plan's planner
// proved a better one.
func (m *model) stateBound(plan *plans.Plan) {
	b := m.bound()
	if b.total > plan.LowerBoundUS || plan.BoundProof == "" {
		plan.LowerBoundUS, plan.BoundProof = b.total, b.proof
	}
	if plan.LowerBoundUS > plan.CCTUS { // rounding, at an optimum
		plan.LowerBoundUS = plan.CCTUS
	}
}

// bound returns the best bound over the ranks tried.
func (m *model) bound() bounds {
	if whole := m.unsplit(); whole != m {
		return m.spread(whole.bound())
	}
	best := m.bandwidthBound()
	if b, ok := m.forwardBound(); ok && b.total > best.total+tolerance(best.total) {
		return b
	}
	if m.p.Forwarding || len(m.steps) == 0 {
		return best
	}
	for _, recv := range []bool{false, true} {
		for _, seq := range m.sequences(recv) {
			b := m.pagingBound(seq)
			for i, v := range b.suffix {
				best.suffix[i] = math.Max(best.suffix[i], v)
			}
			if b.total > best.total+tolerance(best.total) {
				best.total, best.proof = b.total, b.proof
			}
		}
	}
	return best
}

// ideal is the least time a step can take on all planes.
func (m *model) ideal(st *step) float64 {
	degree := 1
	if st.pattern == nil {
		out, in := make([]int, m.p.Ranks), make([]int, m.p.Ranks)
		for _, f := range st.flows {
			out[f[0]]++
			in[f[1]]++
			degree = max(degree, out[f[0]], in[f[1]])
		}
	}
	return m.direct + m.usPerByte*st.bytes*float64(degree)/float64(m.p.Planes)
}

func (m *model) bandwidthBound() bounds {
	b := bounds{
		suffix: make([]float64, len(m.steps)+1),
		proof:  "bandwidth: every step costs alpha and hop and its busiest port's bytes over all planes",
	}
	for i := len(m.steps) - 1; i >= 0; i-- {
		b.suffix[i] = b.suffix[i+1] + m.ideal(&m.steps[i])
	}
	b.total = b.suffix[0]
	return b
}

// sequence is a schedule seen from one rank: whom it talks to in each step.
type sequence struct {
	rank    int
	receive bool
	peer    []int // per step; circuit.Dark where it has no single peer
	held    []int // per plane: the peer its initial circuits give; nil: free
}

// sequences returns the schedule as seen by a few ranks that see it differently.
func (m *model) sequences(receive bool) []sequence {
	stride := max(1, m.p.Ranks/64)
	slot := make([]int, m.p.Ranks) // rank -> index into all, or -1
	var all []sequence
	for r := range slot {
		if slot[r] = -1; r%stride == 0 {
			slot[r] = len(all)
			all = append(all, sequence{rank: r, receive: receive})
		}
	}
	see := func(c circuit.Permutation, put func(s *sequence, peer int)) {
		for a := range all {
			put(&all[a], circuit.Dark)
		}
		for src, dst := range c {
			if dst == circuit.Dark {
				continue
			}
			at, peer := src, dst
			if receive {
				at, peer = dst, src
			}
			if slot[at] >= 0 {
				put(&all[slot[at]], peer)
			}
		}
	}
	for a := range all {
		all[a].peer = make([]int, len(m.steps))
		if m.p.Initial != nil {
			all[a].held = make([]int, m.p.Planes)
		}
	}
	for i := range m.steps {
		see(m.steps[i].pattern, func(s *sequence, peer int) { s.peer[i] = peer })
	}
	for j, c := range m.p.Initial {
		see(c, func(s *sequence, peer int) { s.held[j] = peer })
	}
	var out []sequence
	seen := map[string]bool{}
	for _, s := range all {
		if key := canonical(s.peer, s.held); !seen[key] && len(out) < boundRanks {
			seen[key] = true
			out = append(out, s)
		}
	}
	return out
}

// canonical renames peers in order of appearance, so that equal structures compare equal.
func canonical(lists ...[]int) string {
	names := map[int]rune{circuit.Dark: 0}
	var key []rune
	for _, list := range lists {
		for _, v := range list {
			if _, ok := names[v]; !ok {
				names[v] = rune(len(names))
			}
			key = append(key, names[v]+1)
		}
		key = append(key, 'z')
	}
	return string(key)
}

// pagingBound applies the switching bound to one rank's sequence.
func (m *model) pagingBound(s sequence) bounds {
	n := len(m.steps)
	next := nextUses(s.peer)
	ideal := make([]float64, n)
	work := make([]float64, n) // plane time that the rank's own transfer needs
	for i := range m.steps {
		ideal[i] = m.ideal(&m.steps[i])
		if s.peer[i] != circuit.Dark {
			work[i] = m.direct + m.usPerByte*m.steps[i].bytes
		}
	}
	reconfig := plans.ReconfigPortsUS(m.p, 1)
	cache := newPaging(m.p.Planes)
	price := newPricing(m, &s)
	b := bounds{suffix: make([]float64, n+1)}
	// window returns the best bound of windows that begin at step i, each followed by the
	// bound of what remains.
	window := func(i int, held []int) float64 {
		cache.reset(held, s.peer)
		serial, capacity, best := 0.0, 0.0, 0.0
		blocked := held != nil && s.peer[i] != circuit.Dark && !cache.holds(s.peer[i])
		if blocked {
			serial = reconfig // nothing can be sent before the first switch
		}
		price.reset(held == nil, blocked)
		for e := i; e < n && e-i < boundWindow; e++ {
			serial += ideal[e]
			capacity += work[e]
			if s.peer[e] != circuit.Dark && cache.request(s.peer[e], e, next) {
				capacity += reconfig
			}
			least := math.Max(serial, capacity/float64(m.p.Planes))
			least = math.Max(least, price.add(i, e, held == nil))
			best = math.Max(best, least+b.suffix[e+1])
		}
		return best
	}
	for i := n - 1; i >= 0; i-- {
		b.suffix[i] = window(i, nil)
	}
	b.total = b.suffix[0]
	if s.held != nil {
		b.total = math.Max(b.total, window(0, s.held))
	}
	direction := "sends"
	if s.receive {
		direction = "receives"
	}
	b.proof = fmt.Sprintf("switching: what rank %d %s is paging on %d planes; the planes' time must hold its bytes, overheads, switches (Belady) and idle time, weighed against each step's own time and summed over windows of steps", s.rank, direction, m.p.Planes)
	return b
}

// nextUses returns, per step, the next step with the same peer (a large number if none).
func nextUses(peer []int) []int {
	last := map[int]int{}
	next := make([]int, len(peer))
	for i := len(peer) - 1; i >= 0; i-- {
		next[i] = math.MaxInt
		if at, ok := last[peer[i]]; ok {
			next[i] = at
		}
		last[peer[i]] = i
	}
	return next
}

// paging counts the fewest page loads (Belady's rule, optimal for every prefix).
type paging struct {
	peer []int // per plane, circuit.Dark when empty
	next []int // when the page is needed again
	free []bool
}

func newPaging(k int) *paging {
	return &paging{peer: make([]int, k), next: make([]int, k), free: make([]bool, k)}
}

// reset starts with given circuits, or (held nil) with planes whose first circuit is free
// of charge. Of planes that hold the same, one counts.
func (p *paging) reset(held, peers []int) {
	for j := range p.peer {
		p.peer[j], p.next[j], p.free[j] = circuit.Dark, math.MaxInt, held == nil
	}
	for j, have := range held {
		if have == circuit.Dark || p.holds(have) {
			continue
		}
		p.peer[j] = have
		for i, peer := range peers {
			if peer == have {
				p.next[j] = i
				break
			}
		}
	}
}

func (p *paging) holds(peer int) bool {
	for _, q := range p.peer {
		if q == peer {
			return true
		}
	}
	return false
}

// request serves step i and reports whether a plane had to switch for it.
func (p *paging) request(peer, i int, next []int) bool {
	for j, q := range p.peer {
		if q == peer {
			p.next[j] = next[i]
			return false
		}
	}
	victim := 0
	for j := range p.peer {
		if p.peer[j] == circuit.Dark || p.free[j] {
			victim = j
			break
		}
		if p.next[j] > p.next[victim] {
			victim = j
		}
	}
	charged := !p.free[victim]
	p.peer[victim], p.next[victim], p.free[victim] = peer, next[i], false
	return charged
}
