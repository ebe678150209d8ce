package bound

import (
	"encoding/binary"
	"fmt"
	"math"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
)

// The forwarding bound holds for every plan on a fabric whose ranks forward. Consider a window of steps in which q
// switches begin. A rank's k transmitters see at most k+q circuits, so at most k+q of its destinations are ever one
// hop away. Within one transmit a route stays on the circuits of that moment. So at most
// N_h(q) = min((k+q)^h, (q+1) k^h) destinations are ever h hops away (q+1 for a single plane, where only h = 1 circuit
// leads on from each rank). Every byte occupies one circuit per hop. A transmit takes at least as long as its average
// circuit is busy. Hence
//
//	k * window >= q*T + sum over steps of alpha + average over ranks of
//	              sum over destinations of (bytes * beta [+ hop]) * hops
//
// where the destinations with the most bytes are the nearest. The least of the right-hand
// side over q bounds the window, and the best partition into windows is summed. hop counts
// where a rank has one destination in a step: some transmit of the step is as long as its
// average route.
//
// Circuits to the destinations of a step serve it directly. Let m of a rank's planes hold one of them at some time in
// the step. The bytes on them are at most m times the bytes that one plane carries. All other bytes fill two circuits.
// Let X be the length of the step without alpha and hop, and w its data on one plane, averaged over the ranks:
//
//	k X >= 2 w - direct,  direct <= m X,  so X >= 2 w / (k + m), and X >= w / k.
//
// Over a window with q switches the m of all destinations add up to k + q at most. Divided among them as
// is best, that bounds the window too; the bound is the larger of the two, least over q.

const (
	forwardWindow  = 64      // longest window
	forwardStarts  = 64      // steps at which windows begin, where there are many
	forwardClasses = 16      // kinds of ranks; a schedule with more has no forwarding bound
	forwardWork    = 3e7     // operations
	forwardCells   = 1 << 22 // ranks x steps that are looked at
)

// reach is the destinations of the ranks of one kind, renumbered in the order in which they appear.
type reach struct {
	share float64 // of all ranks
	peers [][]int // per step
}

// forwardBound returns the bound, with suffixes per carrying step, or false if it does not apply.
func forwardBound(m *model.Model, ideal []float64) (model.Bound, bool) {
	n := len(m.Steps)
	if !m.P.Forwarding || n == 0 {
		return model.Bound{}, false
	}
	kinds := reaches(m)
	if len(kinds) == 0 {
		return model.Bound{}, false
	}
	f := &forwarding{m: m, kinds: kinds, weight: make([][]float64, len(kinds)), rank: make([][]int, len(kinds)),
		name: make([][]int, len(kinds))}
	window := min(n, forwardWindow)
	for window > 2 && float64(n*len(kinds))*math.Pow(float64(window), 3)/4 > forwardWork*float64(max(1, n/forwardStarts)) {
		window--
	}
	b := bandwidthBound(ideal)
	least := func(i, circuits int) float64 {
		best, serial := 0.0, 0.0
		f.reset()
		for e := i; e < min(n, i+window); e++ {
			serial += ideal[e]
			f.add(e)
			best = math.Max(best, math.Max(serial, f.least(circuits, serial))+b.Suffix[e+1])
		}
		return best
	}
	stride := max(1, n/forwardStarts)
	for i := n - 1; i >= 0; i-- {
		if b.Suffix[i] = b.Suffix[i+1] + ideal[i]; i%stride == 0 {
			b.Suffix[i] = math.Max(b.Suffix[i], least(i, m.P.Planes))
		}
	}
	if b.Total = b.Suffix[0]; m.P.Initial != nil {
		b.Total = math.Max(b.Total, least(0, litPlanes(m)))
	}
	b.Proof = fmt.Sprintf("forwarding: with q switches a rank has at most %d+q destinations one hop away, so many two "+
		"hops away, ...; every byte fills one circuit per hop; least over q, summed over windows of steps", m.P.Planes)
	return b, true
}

// litPlanes counts the planes that begin with any circuit.
func litPlanes(m *model.Model) int {
	lit := 0
	for _, c := range m.P.Initial {
		for _, s := range c {
			if s != circuit.Dark {
				lit++
				break
			}
		}
	}
	return lit
}

// reaches groups the ranks by their destinations and bytes; nil if there are too many kinds.
func reaches(m *model.Model) []reach {
	if kind, ok := shifts(m); ok {
		return []reach{kind}
	}
	if len(m.Steps)*m.P.Ranks > forwardCells {
		return nil
	}
	out := fanouts(m)
	index := map[string]int{}
	var kinds []reach
	var key []byte
	seen, name := make([]int, m.P.Ranks), make([]int, m.P.Ranks) // rank that named it last, and how
	for r := range m.P.Ranks {
		key = key[:0]
		named := 0
		eachPeer(m, out, r, func(_, d int) {
			if seen[d] != r+1 {
				seen[d], name[d] = r+1, named
				named++
			}
			key = binary.LittleEndian.AppendUint16(key, uint16(name[d]))
		}, func() { key = append(key, 0xff, 0xff) })
		at, ok := index[string(key)]
		if !ok {
			if len(kinds) == forwardClasses {
				return nil
			}
			at = len(kinds)
			index[string(key)] = at
			kind := reach{peers: make([][]int, len(m.Steps))}
			eachPeer(m, out, r, func(i, d int) { kind.peers[i] = append(kind.peers[i], name[d]) }, func() {})
			kinds = append(kinds, kind)
		}
		kinds[at].share += 1 / float64(m.P.Ranks)
	}
	return kinds
}

// shifts returns the destinations of every rank if each step is a shift.
func shifts(m *model.Model) (reach, bool) {
	kind := reach{share: 1}
	names := map[int]int{}
	for i := range m.Steps {
		d, ok := shiftOf(&m.Steps[i])
		if !ok {
			return reach{}, false
		}
		if _, ok := names[d]; !ok {
			names[d] = len(names)
		}
		kind.peers = append(kind.peers, []int{names[d]})
	}
	return kind, true
}

// fanouts lists, per step without pattern, the destinations of each rank.
func fanouts(m *model.Model) [][][]int {
	out := make([][][]int, len(m.Steps))
	for i := range m.Steps {
		if m.Steps[i].Pattern != nil {
			continue
		}
		out[i] = make([][]int, m.P.Ranks)
		for _, f := range m.Steps[i].Flows {
			out[i][f[0]] = append(out[i][f[0]], f[1])
		}
	}
	return out
}

// eachPeer calls peer for each rank that r sends to, step by step, and end after each step.
func eachPeer(m *model.Model, out [][][]int, r int, peer func(step, d int), end func()) {
	for i := range m.Steps {
		if c := m.Steps[i].Pattern; c != nil {
			if c[r] != circuit.Dark {
				peer(i, c[r])
			}
		} else {
			for _, d := range out[i][r] {
				peer(i, d)
			}
		}
		end()
	}
}

// forwarding accumulates a window.
type forwarding struct {
	m        *model.Model
	kinds    []reach
	weight   [][]float64 // per kind: us per hop of every destination, by falling weight
	rank     [][]int     // per kind: destination -> index into weight
	name     [][]int     // per kind: index into weight -> destination
	overhead float64
	single   bool      // kind 0 is the only kind, and has one destination in each step
	data     []float64 // with single, by destination: us of data on one plane
	roots    float64   // the sum of the square roots of data
	direct   float64   // with single: alpha and hop of the steps
}

func (f *forwarding) reset() {
	f.overhead, f.roots, f.direct, f.single = 0, 0, 0, len(f.kinds) == 1
	f.data = f.data[:0]
	clear(f.rank)
	clear(f.name)
	for c := range f.weight {
		f.weight[c] = f.weight[c][:0]
	}
}

// add extends the window by a step.
func (f *forwarding) add(step int) {
	m := f.m
	f.overhead += m.P.AlphaUS
	perHop := m.UsPerByte * m.Steps[step].Bytes
	single := true
	for c := range f.kinds {
		single = single && len(f.kinds[c].peers[step]) <= 1
	}
	if single {
		perHop += m.P.HopUS
	} else {
		f.overhead += m.P.HopUS
	}
	for c := range f.kinds {
		for _, d := range f.kinds[c].peers[step] {
			f.grow(c, d, perHop)
		}
	}
	if f.single = f.single && len(f.kinds[0].peers[step]) == 1; f.single {
		d := f.kinds[0].peers[step][0]
		for len(f.data) <= d {
			f.data = append(f.data, 0)
		}
		f.roots -= math.Sqrt(f.data[d])
		f.data[d] += m.UsPerByte * m.Steps[step].Bytes
		f.roots += math.Sqrt(f.data[d])
		f.direct += m.DirectUS
	}
}

// grow adds to the weight of a destination and keeps the order.
func (f *forwarding) grow(c, d int, us float64) {
	for len(f.rank[c]) <= d {
		f.rank[c] = append(f.rank[c], -1)
	}
	at := f.rank[c][d]
	if at < 0 {
		at = len(f.weight[c])
		f.weight[c] = append(f.weight[c], 0)
		f.name[c] = append(f.name[c], d)
	}
	f.weight[c][at] += us
	w, name := f.weight[c], f.name[c]
	for ; at > 0 && w[at-1] < w[at]; at-- {
		w[at-1], w[at] = w[at], w[at-1]
		name[at-1], name[at] = name[at], name[at-1]
		f.rank[c][name[at]] = at
	}
	f.rank[c][d] = at
}

// least returns the least time of the window over all numbers of switches, if it begins with the given number of usable
// planes. serial is the least time of its steps on any circuits.
func (f *forwarding) least(circuits int, serial float64) float64 {
	reconfig, k := plans.ReconfigPortsUS(f.m.P, 1), float64(f.m.P.Planes)
	most := 0 // switches after which every destination is one hop away
	for c := range f.kinds {
		most = max(most, len(f.weight[c]))
	}
	best, far := math.Inf(1), 0.0
	for q := 0; ; q++ {
		if q <= most {
			far = 0
			for c := range f.kinds {
				far += f.kinds[c].share * f.distance(f.weight[c], circuits, q)
			}
		}
		planes := (float64(q)*reconfig + far + f.overhead) / k
		if q == most+switchesBeyond {
			return math.Min(best, math.Max(serial, planes))
		}
		own := f.ownCircuits(q)
		best = math.Min(best, math.Max(planes, own))
		if planes >= math.Min(best, own) && (q >= most || float64(q)*reconfig >= best*k) {
			return best
		}
	}
}

// switchesBeyond is how many switches beyond the number of destinations are counted exactly.
const switchesBeyond = 64

// ownCircuits bounds the window by the capacity of circuits to a step's own destinations: q switches allow k+q. It
// returns 0 if ranks differ or have several destinations at a time.
//
// The sum over destinations of 2 w / (k+m) is at least 2 (sum of sqrt w)^2 / sum of (k+m) (Cauchy).
func (f *forwarding) ownCircuits(q int) float64 {
	if !f.single {
		return 0
	}
	k := float64(f.m.P.Planes)
	return f.direct + 2*f.roots*f.roots/(float64(len(f.weight[0]))*k+k+float64(q))
}

// distance sums weight times hops, with the heaviest destinations nearest.
func (f *forwarding) distance(weight []float64, circuits, q int) float64 {
	sum, hops, room := 0.0, 1, circuits+q
	for _, w := range weight {
		for room == 0 {
			if circuits+q == 0 {
				return math.Inf(1)
			}
			hops++
			room = f.within(circuits, q, hops)
		}
		room--
		sum += float64(hops) * w
	}
	return sum
}

// within returns N_h(q), the most destinations at the given number of hops.
func (f *forwarding) within(circuits, q, hops int) int {
	k := f.m.P.Planes
	if k == 1 {
		return circuits + q
	}
	most := math.Min(math.Pow(float64(circuits+q), float64(hops)), float64(q+1)*math.Pow(float64(k), float64(hops)))
	return int(math.Min(most, 1<<30))
}
