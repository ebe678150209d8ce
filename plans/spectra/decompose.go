package spectra

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/matching"
)

// Decompose covers d by as many permutations as its degree, the most positive entries of a row or column (Algorithm 1).
// Each permutation is a matching of maximum remaining demand. It uses an uncovered entry in every row and column that
// has the most of them. Weights are raised greedily (Algorithm 2).
//
// The weight of line 5 is taken literally: the smallest remaining demand over the whole
// permutation, which is 0 where the permutation has a cell without demand. Entries of the
// returned permutations that serve no demand are Dark.
func Decompose(d Matrix) Decomposition {
	w := newNetwork(d, plans.Simplex)
	holds := decompose(context.Background(), w, newMatcher(w), newBare(w, 0), nil, 0)
	refineGreedy(w, holds)
	return w.decomposition(holds)
}

// hold is a permutation, as edges of the network, and its weight.
type hold struct {
	edges  []int32
	weight float64
}

func (w *network) decomposition(holds []hold) Decomposition {
	d := Decomposition{Perms: make([]circuit.Permutation, len(holds)), Weights: make([]float64, len(holds))}
	for i, h := range holds {
		d.Perms[i], d.Weights[i] = w.permutation(h.edges), h.weight
	}
	return d
}

// matcher finds matchings of the network's circuits.
type matcher struct {
	w      *network
	simple matching.Weighted
	pairs  pairing
	weight []float64 // per edge
}

func newMatcher(w *network) *matcher {
	m := &matcher{w: w, weight: make([]float64, len(w.to))}
	if w.kind == plans.Duplex {
		m.pairs.reset(w)
	} else {
		m.simple.Reset(w.n, w.start, w.to)
	}
	return m
}

// heaviest returns the edges of the heaviest matching by m.weight; on duplex planes, of a heavy one.
func (m *matcher) heaviest() (edges []int32) {
	if m.w.kind == plans.Duplex {
		return m.pairs.heavy(m.weight)
	}
	m.simple.Solve(m.weight)
	for u := range m.w.n {
		if e := m.simple.Edge(u); e != matching.None && m.weight[e] > 0 {
			edges = append(edges, int32(e))
		}
	}
	return edges
}

// work returns the number of examined edges.
func (m *matcher) work() int64 { return m.simple.Work() + m.pairs.work }

// decompose is lines 2 to 10 of Algorithm 1, for every kind of plane. The
// permutations cover every entry at least once; their weights need a refinement. When stop returns true, it colours the
// rest, by durations that are worth a reconfiguration of delta. bare holds the entries to be covered (S_rem), at first
// the whole support.
func decompose(
	ctx context.Context, w *network, m *matcher, bare *bare, stop func() bool, delta float64,
) []hold {
	left := append([]float64(nil), w.demand...) // D_rem
	bonus := 0.0                                // above the weight of any matching
	for u := range w.n {
		most := 0.0
		for e := w.start[u]; e < w.start[u+1]; e++ {
			most = max(most, w.demand[w.entry[e]])
		}
		bonus += 2 * most
	}
	var holds []hold
	for bare.count > 0 {
		if stop != nil && stop() {
			return append(holds, bare.color(ctx, delta)...)
		}
		degree := bare.degree()
		for e, entry := range w.entry {
			m.weight[e] = left[entry]
			if w.kind == plans.Duplex && bare.served[entry] {
				m.weight[e] = 0 // a heavy matching need not cover what it could
			}
			if !bare.open[entry] || w.isExtra(int32(e)) {
				continue
			}
			m.weight[e] += bonus * float64((w.n+1)*bare.critical(w.from[e], w.to[e], degree))
			if w.kind == plans.Duplex && w.from[e] != w.to[e] {
				m.weight[e] += bonus // a circuit r -> r fits beside any pairs: it can wait
			}
		}
		edges := m.heaviest()
		least := 0.0
		if len(edges) == w.n {
			least = left[w.entry[edges[0]]]
			for _, e := range edges {
				least = min(least, left[w.entry[e]])
			}
		}
		for _, e := range edges {
			left[w.entry[e]] -= least
			bare.cover(e)
		}
		holds = append(holds, hold{edges, least})
	}
	return holds
}

// bare is the part of the support that must be covered, and that no permutation covers yet.
type bare struct {
	w      *network
	open   []bool  // per entry
	served []bool  // per entry: by some permutation, whether it had to be or not
	ports  []int32 // open entries of each sender and, from n on, receiver
	main   []int32 // per entry: its edge that is no extra
	far    int32   // n, or 0 where both ends of an entry are ports of the same side
	count  int     // of open entries
}

// newBare opens the entries of at least a demand.
func newBare(w *network, least float64) *bare {
	b := &bare{w: w, open: make([]bool, len(w.demand)), served: make([]bool, len(w.demand)), ports: make([]int32, 2*w.n),
		main: make([]int32, len(w.demand))}
	if w.kind != plans.Duplex {
		b.far = int32(w.n)
	}
	for e, entry := range w.entry {
		if !w.isExtra(int32(e)) {
			b.main[entry] = int32(e)
		}
	}
	b.reopen(least)
	return b
}

// reopen opens the entries that are not served and have at least the given demand.
func (b *bare) reopen(least float64) {
	for entry, e := range b.main {
		if !b.open[entry] && !b.served[entry] && b.w.demand[entry] >= least {
			b.open[entry] = true
			b.count++
			b.add(e, 1)
		}
	}
}

// add counts an edge at both its ports.
func (b *bare) add(edge, by int32) {
	u, v := b.w.from[edge], b.w.to[edge]+b.far
	b.ports[u] += by
	if u != v {
		b.ports[v] += by
	}
}

func (b *bare) cover(edge int32) {
	entry := b.w.entry[edge]
	b.served[entry] = true
	if b.open[entry] {
		b.open[entry] = false
		b.count--
		b.add(b.main[entry], -1)
	}
}

func (b *bare) degree() int32 {
	most := int32(0)
	for _, k := range b.ports {
		most = max(most, k)
	}
	return most
}

// critical counts the ports at the ends of a circuit that have as many open entries as the degree. A
// duplex circuit r -> r has one port.
func (b *bare) critical(u, v, degree int32) int {
	count := 0
	if b.ports[u] == degree {
		count++
	}
	if v+b.far != u && b.ports[v+b.far] == degree {
		count++
	}
	return count
}

// color covers the open entries by matchings of entries with similar demands. It sorts the entries and divides them
// into the best number of classes, into one if ctx has ended, each with as many matchings as its degree. On duplex planes
// an entry gets the first permutation in which both its ports are free, which needs less than twice as many.
func (b *bare) color(ctx context.Context, delta float64) []hold {
	var open []int32 // edges, each of its own entry
	for entry, e := range b.main {
		if b.open[entry] {
			open = append(open, e)
		}
	}
	demand := func(e int32) float64 { return b.w.demand[b.w.entry[e]] }
	slices.SortStableFunc(open, func(x, y int32) int { return cmp.Compare(demand(y), demand(x)) })
	var best []hold
	least := math.Inf(1)
	for classes := 1; classes <= 16; classes *= 2 {
		var holds []hold
		for c := range classes {
			holds = append(holds, b.matchings(open[c*len(open)/classes:(c+1)*len(open)/classes])...)
		}
		total := delta * float64(len(holds))
		for _, h := range holds {
			most := 0.0
			for _, e := range h.edges {
				most = max(most, demand(e))
			}
			total += most
		}
		if total >= least {
			break
		}
		if best, least = holds, total; ctx.Err() != nil {
			break
		}
	}
	return best
}

// matchings divides edges into permutations.
func (b *bare) matchings(edges []int32) []hold {
	ends := make([][2]int, len(edges))
	for i, e := range edges {
		ends[i] = [2]int{int(b.w.from[e]), int(b.w.to[e])}
	}
	if b.w.kind == plans.Duplex {
		return firstFit(b.w.n, edges, ends)
	}
	colors, degree := matching.Color(b.w.n, ends)
	holds := make([]hold, degree)
	for i, c := range colors {
		holds[c].edges = append(holds[c].edges, edges[i])
	}
	return holds
}

func firstFit(n int, edges []int32, ends [][2]int) []hold {
	var holds []hold
	busy := make([][]uint64, n) // per rank: permutations in which it has a partner
	for i, e := range edges {
		u, v := ends[i][0], ends[i][1]
		for word := 0; ; word++ {
			for _, r := range [2]int{u, v} {
				if word == len(busy[r]) {
					busy[r] = append(busy[r], 0)
				}
			}
			free := ^(busy[u][word] | busy[v][word])
			if free == 0 {
				continue
			}
			bit := bits.TrailingZeros64(free)
			busy[u][word] |= 1 << bit
			busy[v][word] |= 1 << bit
			c := 64*word + bit
			for c >= len(holds) {
				holds = append(holds, hold{})
			}
			holds[c].edges = append(holds[c].edges, e)
			break
		}
	}
	return holds
}

// refineGreedy raises the weights, in order, until they cover every entry (Algorithm 2).
func refineGreedy(w *network, holds []hold) {
	left := make([]float64, len(w.demand))
	w.uncovered(left, holds)
	for i := range holds {
		h := &holds[i]
		most := 0.0
		for _, e := range h.edges {
			most = max(most, left[w.entry[e]])
		}
		h.weight += most
		for _, e := range h.edges {
			left[w.entry[e]] -= most
		}
	}
}
