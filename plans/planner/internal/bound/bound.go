package bound

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
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

// Prove sets the bound of a model: the best one over the ranks that it tries.
func Prove(m *model.Model) { m.Bound = compute(m.Unsplit()) }

// State writes the bound of m into one of its plans, unless the plan's planner proved a better one.
func State(m *model.Model, plan *plans.Plan) {
	if b := &m.Bound; b.Total > plan.LowerBoundUS || plan.BoundProof == "" {
		plan.LowerBoundUS, plan.BoundProof = b.Total, b.Proof
	}
	if plan.LowerBoundUS > plan.CCTUS { // rounding, at an optimum
		plan.LowerBoundUS = plan.CCTUS
	}
}

func compute(m *model.Model) model.Bound {
	ideal := ideals(m)
	best := bandwidthBound(ideal)
	if b, ok := forwardBound(m, ideal); ok && b.Total > best.Total+model.Tolerance(best.Total) {
		return b
	}
	if m.P.Forwarding || len(m.Steps) == 0 {
		return best
	}
	for _, seq := range allSequences(m) {
		b := pagingBound(m, seq, ideal)
		for i, v := range b.Suffix {
			best.Suffix[i] = math.Max(best.Suffix[i], v)
		}
		if b.Total > best.Total+model.Tolerance(best.Total) {
			best.Total, best.Proof = b.Total, b.Proof
		}
	}
	return best
}

func allSequences(m *model.Model) []sequence {
	var all []sequence
	for _, v := range views(m) {
		all = append(all, sequences(m, v)...)
	}
	if s, ok := pairSequence(m); ok {
		all = append(all, s)
	}
	return all
}

// pairSequence returns the sequence of the pairs of interleaved planes for a schedule of shifts. A circuit from r to s
// on one plane of a pair serves the flow from r to s. The other plane then serves the flow from s to r. All ranks see
// the same. So on average each rank has one circuit per pair, for the flow that it sends or for the one that it
// receives. A step takes one use of a pair, whose circuits are of a distance and its opposite. If the distance is half
// the ranks, both planes serve the flow.
func pairSequence(m *model.Model) (sequence, bool) {
	if m.P.Circuits != plans.Interleaved || m.Initial != nil {
		return sequence{}, false
	}
	n := m.P.Ranks
	s := sequence{view: view{verb: "exchanges with"}, planes: m.Units, priced: true}
	for i := range m.Steps {
		d, ok := shiftOf(&m.Steps[i])
		if !ok {
			return sequence{}, false
		}
		data := m.UsPerByte * m.Steps[i].Bytes
		if 2*d == n {
			data /= 2
		}
		s.peers, s.data = append(s.peers, []int{min(d, n-d)}), append(s.data, data)
	}
	return s, true
}

// shiftOf returns the distance of a step that is a shift of all ranks.
func shiftOf(st *model.Step) (d int, ok bool) {
	if st.Pattern == nil {
		return 0, false
	}
	d, ok = st.Pattern.Distance()
	return d, ok && d > 0
}

// eachFlow calls f with every flow of a step, and whether the step has the flow back as well.
func eachFlow(m *model.Model, st *model.Step, f func(src, dst int, back bool)) {
	if c := st.Pattern; c != nil {
		for r, s := range c {
			if s != circuit.Dark {
				f(r, s, c[s] == r)
			}
		}
		return
	}
	n := m.P.Ranks
	there := make([]uint64, n*n/64+1)
	for _, flow := range st.Flows {
		at := flow[0]*n + flow[1]
		there[at/64] |= 1 << (at % 64)
	}
	for _, flow := range st.Flows {
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
func leastUS(m *model.Model, st *model.Step) float64 {
	n := m.P.Ranks
	if st.Pattern != nil && (m.P.Circuits == plans.Simplex || m.P.Forwarding) {
		return m.DirectUS + m.UsPerByte*st.Bytes/float64(m.P.Planes)
	}
	out, in, back := make([]int, n), make([]int, n), make([]int, n)
	flows := 0
	eachFlow(m, st, func(src, dst int, both bool) {
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
		if m.P.Circuits == plans.Duplex && !m.P.Forwarding {
			degree = max(degree, out[r]+in[r]-back[r])
		}
		if out[r]+in[r] > 0 {
			served += 1 + min(1, back[r])
		}
	}
	k, wire := float64(m.P.Planes), m.UsPerByte*st.Bytes
	least := m.DirectUS + wire*float64(degree)/k
	if m.P.Forwarding {
		return least
	}
	if degree > 1 { // every peer of a rank costs a transmit of its own
		least = math.Max(least, float64(degree)*(m.DirectUS+wire)/k)
	}
	if m.P.Circuits == plans.Interleaved {
		least = math.Max(least, m.DirectUS+wire*float64(flows)/(k/2*float64(served)))
	}
	return least
}

// ideals returns leastUS by step.
func ideals(m *model.Model) []float64 {
	var kinds model.Kinds
	var known []float64
	ideal := make([]float64, len(m.Steps))
	for i := range m.Steps {
		st := &m.Steps[i]
		if st.Pattern == nil {
			ideal[i] = leastUS(m, st)
			continue
		}
		kind, fresh := kinds.Add(st)
		if fresh {
			known = append(known, leastUS(m, st))
		}
		ideal[i] = known[kind]
	}
	return ideal
}

func bandwidthBound(ideal []float64) model.Bound {
	b := model.Bound{
		Suffix: make([]float64, len(ideal)+1),
		Proof:  "bandwidth: every step costs alpha and hop and its busiest port's bytes over all planes",
	}
	for i := len(ideal) - 1; i >= 0; i-- {
		b.Suffix[i] = b.Suffix[i+1] + ideal[i]
	}
	b.Total = b.Suffix[0]
	return b
}

// view selects the peers of a rank: the ranks for which it needs separate circuits.
type view struct {
	out, in bool
	verb    string
}

func views(m *model.Model) []view {
	if m.P.Circuits == plans.Duplex {
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
func sequences(m *model.Model, v view) []sequence {
	stride := max(1, m.P.Ranks/64)
	slot := make([]int, m.P.Ranks) // rank -> index into all, or -1
	data := make([]float64, len(m.Steps))
	for i := range m.Steps {
		data[i] = m.UsPerByte * m.Steps[i].Bytes
	}
	var all []sequence
	for r := range slot {
		if slot[r] = -1; r%stride == 0 {
			slot[r] = len(all)
			s := sequence{view: v, rank: r, planes: m.P.Planes, peers: make([][]int, len(m.Steps)), data: data}
			if m.P.Initial != nil {
				s.held = slices.Repeat([]int{circuit.Dark}, m.P.Planes)
			}
			all = append(all, s)
		}
	}
	for i := range m.Steps {
		eachFlow(m, &m.Steps[i], func(src, dst int, back bool) {
			if at := slot[src]; v.out && at >= 0 {
				all[at].peers[i] = append(all[at].peers[i], dst)
			}
			if at := slot[dst]; v.in && at >= 0 && (!v.out || !back) {
				all[at].peers[i] = append(all[at].peers[i], src)
			}
		})
	}
	for j, c := range m.P.Initial {
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
	return distinct(all)
}

// distinct returns the first sequences of different structures, at most boundRanks.
func distinct(all []sequence) (out []sequence) {
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
func pagingBound(m *model.Model, s sequence, ideal []float64) model.Bound {
	n := len(m.Steps)
	next := nextUses(s.peers)
	reconfig := plans.ReconfigPortsUS(m.P, 1)
	cache := newPaging(s.planes)
	price := newPricing(m, &s, ideal)
	b := model.Bound{Suffix: make([]float64, n+1)}
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
				took = math.Max(took, reconfig+m.DirectUS+s.data[e]*peers/float64(s.planes))
			}
			serial += took
			if !s.priced {
				capacity += peers*(m.DirectUS+s.data[e]) + reconfig*float64(cache.request(s.peers[e], next[e]))
			}
			least := math.Max(serial, capacity/float64(s.planes))
			least = math.Max(least, price.add(i, e, held == nil))
			best = math.Max(best, least+b.Suffix[e+1])
		}
		return best
	}
	for i := n - 1; i >= 0; i-- {
		if b.Suffix[i] = b.Suffix[i+1] + ideal[i]; i%stride == 0 {
			b.Suffix[i] = math.Max(b.Suffix[i], window(i, nil))
		}
	}
	b.Total = b.Suffix[0]
	if s.held != nil {
		b.Total = math.Max(b.Total, window(0, s.held))
	}
	b.Proof = fmt.Sprintf("switching: whom rank %d %s is paging on %d planes or pairs of them; the planes' time must "+
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
