package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// The bounds here hold for every plan of the problem, also for plans that no planner here
// makes (circuits that mix patterns, steps divided by flow).
//
//   - Bandwidth: a step costs alpha + hop, and the busiest port's bytes over all planes. The kind of
//     circuits limits the flows that a port can serve (leastUS).
//   - Switching, without forwarding: seen from one rank r, a plan is a schedule in which each
// of its planes holds the circuit to one peer. Serving r's sequence of peers is paging with as many slots as planes, so
// Belady's rule counts the fewest switches. Switches and transmits occupy the k planes. The bound of a window of
// consecutive steps begins with free circuits, and the bounds of the best partition into windows are summed.
//   - Pricing (pricing.go) weighs both.

const (
	boundWindow = 256     // longest window, and
	boundSteps  = 1 << 17 // steps of all windows together: with more steps, fewer and longer windows
	boundRanks  = 8       // ranks with distinct sequences that are tried, per direction
)

// bounds holds proven lower bounds of times.
type bounds struct {
	suffix []float64 // us from the end of step i-1 on, whatever the planes' state then
	total  float64   // from the start, with the given initial circuits
	proof  string
}

// finish sets the bound and the repetitions of a plan.
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

// lazyBound is the bound of a model, computed on first use.
type lazyBound struct {
	once sync.Once
	b    bounds
}

// bound returns the best bound over the ranks tried.
func (m *model) bound() bounds {
	whole := m.unsplit()
	m.proof.once.Do(func() { m.proof.b = whole.computeBound() })
	if whole != m {
		return m.spread(m.proof.b)
	}
	return m.proof.b
}

func (m *model) computeBound() bounds {
	ideal := m.ideals()
	best := bandwidthBound(ideal)
	if b, ok := m.forwardBound(ideal); ok && b.total > best.total+tolerance(best.total) {
		return b
	}
	if m.p.Forwarding || len(m.steps) == 0 {
		return best
	}
	for _, seq := range m.allSequences() {
		b := m.pagingBound(seq, ideal)
		for i, v := range b.suffix {
			best.suffix[i] = math.Max(best.suffix[i], v)
		}
		if b.total > best.total+tolerance(best.total) {
			best.total, best.proof = b.total, b.proof
		}
	}
	return best
}

func (m *model) allSequences() []sequence {
	var all []sequence
	for _, v := range m.views() {
		all = append(all, m.sequences(v)...)
	}
	if s, ok := m.pairSequence(); ok {
		all = append(all, s)
	}
	return all
}

// pairSequence returns the sequence of the pairs of interleaved planes for a schedule of shifts. A circuit from r to s
// on one plane of a pair serves the flow from r to s. The other plane then serves the flow from s to r. All ranks see
// the same. So on average each rank has one circuit per pair, for the flow that it sends or for the one that it
// receives. A step takes one use of a pair, whose circuits are of a distance and its opposite. If the distance is half
// the ranks, both planes serve the flow.
func (m *model) pairSequence() (sequence, bool) {
	if m.p.Circuits != plans.Interleaved || m.initial != nil {
		return sequence{}, false
	}
	n := m.p.Ranks
	s := sequence{view: view{verb: "exchanges with"}, planes: m.units, priced: true}
	for i := range m.steps {
		d, ok := m.steps[i].shift()
		if !ok {
			return sequence{}, false
		}
		data := m.usPerByte * m.steps[i].bytes
		if 2*d == n {
			data /= 2
		}
		s.peers, s.data = append(s.peers, []int{min(d, n-d)}), append(s.data, data)
	}
	return s, true
}

// shift returns the distance of a step that is a shift of all ranks.
func (st *step) shift() (d int, ok bool) {
	if st.pattern == nil {
		return 0, false
	}
	d, ok = st.pattern.Distance()
	return d, ok && d > 0
}

// eachFlow calls f with every flow of a step, and whether the step has the flow back as well.
func (m *model) eachFlow(st *step, f func(src, dst int, back bool)) {
	if c := st.pattern; c != nil {
		for r, s := range c {
			if s != circuit.Dark {
				f(r, s, c[s] == r)
			}
		}
		return
	}
	n := m.p.Ranks
	there := make([]uint64, n*n/64+1)
	for _, flow := range st.flows {
		at := flow[0]*n + flow[1]
		there[at/64] |= 1 << (at % 64)
	}
	for _, flow := range st.flows {
		at := flow[1]*n + flow[0]
		f(flow[0], flow[1], there[at/64]>>(at%64)&1 != 0)
	}
}

// leastUS returns the least time of a step on all planes, in us.
//
// On duplex planes a circuit has both directions, so a port serves the ranks that it sends to and receives from one
// after the other. The planes of an interleaved pair hold a map and its inverse: of a circuit from r to s both are of
// use only if r and s send to each other. So a pair serves at most one flow per rank that takes part, two where a rank
// has such a peer.
func (m *model) leastUS(st *step) float64 {
	n := m.p.Ranks
	if st.pattern != nil && (m.p.Circuits == plans.Simplex || m.p.Forwarding) {
		return m.directUS + m.usPerByte*st.bytes/float64(m.p.Planes)
	}
	out, in, back := make([]int, n), make([]int, n), make([]int, n)
	flows := 0
	m.eachFlow(st, func(src, dst int, both bool) {
		flows++
		out[src]++
		in[dst]++
		if both {
			back[src]++
		}
	})
	degree, served := 1, 0
	for r := range n {
		degree = max(degree, out[r], in[r])
		if m.p.Circuits == plans.Duplex && !m.p.Forwarding {
			degree = max(degree, out[r]+in[r]-back[r])
		}
		if out[r]+in[r] > 0 {
			served += 1 + min(1, back[r])
		}
	}
	k, wire := float64(m.p.Planes), m.usPerByte*st.bytes
	least := m.directUS + wire*float64(degree)/k
	if m.p.Forwarding {
		return least
	}
	if degree > 1 { // every peer of a rank costs a transmit of its own
		least = math.Max(least, float64(degree)*(m.directUS+wire)/k)
	}
	if m.p.Circuits == plans.Interleaved {
		least = math.Max(least, m.directUS+wire*float64(flows)/(k/2*float64(served)))
	}
	return least
}

// ideals returns leastUS by step.
func (m *model) ideals() []float64 {
	var kinds stepKinds
	var known []float64
	ideal := make([]float64, len(m.steps))
	for i := range m.steps {
		st := &m.steps[i]
		if st.pattern == nil {
			ideal[i] = m.leastUS(st)
			continue
		}
		kind, fresh := kinds.add(st)
		if fresh {
			known = append(known, m.leastUS(st))
		}
		ideal[i] = known[kind]
	}
	return ideal
}

func bandwidthBound(ideal []float64) bounds {
	b := bounds{
		suffix: make([]float64, len(ideal)+1),
		proof:  "bandwidth: every step costs alpha and hop and its busiest port's bytes over all planes",
	}
	for i := len(ideal) - 1; i >= 0; i-- {
		b.suffix[i] = b.suffix[i+1] + ideal[i]
	}
	b.total = b.suffix[0]
	return b
}

// view selects the peers of a rank: the ranks for which it needs separate circuits.
type view struct {
	out, in bool
	verb    string
}

func (m *model) views() []view {
	if m.p.Circuits == plans.Duplex {
		return []view{{true, true, "exchanges with"}}
	}
	return []view{{true, false, "sends to"}, {false, true, "receives from"}}
}

// sequence is a schedule seen from one rank: its peers in each step.
type sequence struct {
	view
	rank   int
	planes int
	peers  [][]int   // per step
	data   []float64 // per step: us of a peer's bytes on one plane
	held   []int     // per plane: the peer its initial circuits give; nil: free
	// priced means that only the bound by pricing holds, because the sequence is an average over ranks.
	priced bool
}

// sequences returns the sequences of a few ranks, which all differ.
func (m *model) sequences(v view) []sequence {
	stride := max(1, m.p.Ranks/64)
	slot := make([]int, m.p.Ranks) // rank -> index into all, or -1
	data := make([]float64, len(m.steps))
	for i := range m.steps {
		data[i] = m.usPerByte * m.steps[i].bytes
	}
	var all []sequence
	for r := range slot {
		if slot[r] = -1; r%stride == 0 {
			slot[r] = len(all)
			s := sequence{view: v, rank: r, planes: m.p.Planes, peers: make([][]int, len(m.steps)), data: data}
			if m.p.Initial != nil {
				s.held = slices.Repeat([]int{circuit.Dark}, m.p.Planes)
			}
			all = append(all, s)
		}
	}
	for i := range m.steps {
		m.eachFlow(&m.steps[i], func(src, dst int, back bool) {
			if at := slot[src]; v.out && at >= 0 {
				all[at].peers[i] = append(all[at].peers[i], dst)
			}
			if at := slot[dst]; v.in && at >= 0 && (!v.out || !back) {
				all[at].peers[i] = append(all[at].peers[i], src)
			}
		})
	}
	for j, c := range m.p.Initial {
		for src, dst := range c {
			if dst == circuit.Dark {
				continue
			}
			if at := slot[src]; v.out && at >= 0 {
				all[at].held[j] = dst
			} else if at := slot[dst]; !v.out && at >= 0 {
				all[at].held[j] = src
			}
		}
	}
	var out []sequence
	seen := map[string]bool{}
	for _, s := range all {
		if key := s.structure(); !seen[key] && len(out) < boundRanks {
			seen[key] = true
			out = append(out, s)
		}
	}
	return out
}

// structure names peers in order of appearance, so that equal structures compare equal.
func (s *sequence) structure() string {
	names := map[int]rune{circuit.Dark: 0}
	var key []rune
	for _, list := range append(slices.Clone(s.peers), s.held) {
		for _, v := range list {
			if _, ok := names[v]; !ok {
				names[v] = rune(len(names))
			}
			key = append(key, names[v]+1)
		}
		key = append(key, 0)
	}
	return string(key)
}

// windows returns the steps between two beginnings of windows, and the longest window.
func windows(n int) (stride, longest int) {
	if n <= boundWindow {
		return 1, n
	}
	// Windows from every stride-th step to the end: n/stride * n/2 steps.
	return max(1, n*n/2/boundSteps), n
}

// pagingBound applies the switching bound to one rank's sequence.
func (m *model) pagingBound(s sequence, ideal []float64) bounds {
	n := len(m.steps)
	next := nextUses(s.peers)
	reconfig := plans.ReconfigPortsUS(m.p, 1)
	cache := newPaging(s.planes)
	price := newPricing(m, &s, ideal)
	b := bounds{suffix: make([]float64, n+1)}
	stride, longest := windows(n)
	// window returns the best bound of windows that begin at step i, each followed by the bound of the remaining steps.
	window := func(i int, held []int) float64 {
		cache.reset(held, s.peers)
		serial, capacity, best := 0.0, 0.0, 0.0
		blocked := held != nil && len(s.peers[i]) > 0 && !slices.ContainsFunc(s.peers[i], cache.holds)
		price.reset(held == nil, blocked)
		for e := i; e < min(n, i+longest); e++ {
			peers := float64(len(s.peers[e]))
			took := ideal[e]
			if blocked && e == i { // the rank sends nothing before the first switch
				took = math.Max(took, reconfig+m.directUS+s.data[e]*peers/float64(s.planes))
			}
			serial += took
			if !s.priced {
				capacity += peers*(m.directUS+s.data[e]) + reconfig*float64(cache.request(s.peers[e], next[e]))
			}
			least := math.Max(serial, capacity/float64(s.planes))
			least = math.Max(least, price.add(i, e, held == nil))
			best = math.Max(best, least+b.suffix[e+1])
		}
		return best
	}
	for i := n - 1; i >= 0; i-- {
		if b.suffix[i] = b.suffix[i+1] + ideal[i]; i%stride == 0 {
			b.suffix[i] = math.Max(b.suffix[i], window(i, nil))
		}
	}
	b.total = b.suffix[0]
	if s.held != nil {
		b.total = math.Max(b.total, window(0, s.held))
	}
	b.proof = fmt.Sprintf("switching: whom rank %d %s is paging on %d planes or pairs of them; the planes' time must "+
		"hold its bytes, overheads, switches (Belady) and idle time, weighed against each step's own time and summed over "+
		"windows of steps", s.rank, s.verb, s.planes)
	return b
}

// nextUses returns, per step and peer of it, the next step with the same peer (a large number if none).
func nextUses(peers [][]int) [][]int {
	last := map[int]int{}
	next := make([][]int, len(peers))
	for i := len(peers) - 1; i >= 0; i-- {
		next[i] = make([]int, len(peers[i]))
		for k, peer := range peers[i] {
			next[i][k] = math.MaxInt
			if at, ok := last[peer]; ok {
				next[i][k] = at
			}
		}
		for _, peer := range peers[i] {
			last[peer] = i
		}
	}
	return next
}

// paging counts the fewest page loads (Belady's rule, optimal for every prefix). The requests of one step
// may come in any order. Peers that have a slot are served first. The other peers follow, the one that is needed
// again soonest last.
type paging struct {
	peer  []int // per plane, circuit.Dark when empty
	next  []int // when the page is needed again
	free  []bool
	order []int // scratch
}

func newPaging(k int) *paging {
	return &paging{peer: make([]int, k), next: make([]int, k), free: make([]bool, k)}
}

// reset starts with the held circuits or, if held is nil, with planes whose first circuit is free of charge. Planes
// that hold the same circuit count as one.
func (p *paging) reset(held []int, peers [][]int) {
	for j := range p.peer {
		p.peer[j], p.next[j], p.free[j] = circuit.Dark, math.MaxInt, held == nil
	}
	for j, have := range held {
		if have == circuit.Dark || p.holds(have) {
			continue
		}
		p.peer[j] = have
		for i := range peers {
			if slices.Contains(peers[i], have) {
				p.next[j] = i
				break
			}
		}
	}
}

func (p *paging) holds(peer int) bool { return slices.Contains(p.peer, peer) }

// request serves the peers of a step, which are needed again at next, and returns how many planes had to
// switch for them.
func (p *paging) request(peers, next []int) (charged int) {
	p.order = p.order[:0]
	for k, peer := range peers {
		if j := slices.Index(p.peer, peer); j >= 0 {
			p.next[j] = next[k]
		} else {
			p.order = append(p.order, k)
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return cmp.Compare(next[b], next[a]) })
	for _, k := range p.order {
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
		if !p.free[victim] {
			charged++
		}
		p.peer[victim], p.next[victim], p.free[victim] = peers[k], next[k], false
	}
	return charged
}
