package flow

import (
	"fmt"
	"slices"

	"lightpath/plans/circuit"
)

// network is the union of several planes' circuits, with the flows asked of it. Circuits
// of several planes between the same ranks are one edge of as much capacity.
type network struct {
	maps     []circuit.Permutation
	inverse  []circuit.Permutation
	head     []int32   // edge -> rank it leads to
	port     []int32   // edge -> the lowest plane that has it
	capacity []float64 // edge -> planes that have it
	first    []int32   // rank -> its first edge; rank n closes the last
	dst      [][]int32 // rank -> destinations of its flows, in the order given
	rep      []int32   // rank -> representative of its orbit, see symmetry.go; -1 outside of blocks
	class    []int32   // edge -> orbit, numbered within its block
	blocks   []*block
}

// block is a weakly connected component with flows, up to its symmetry: one source for each orbit of ranks and one
// class for each orbit of edges. All orbits of a block have the same size. Let a routing of the sources' flows load
// class c with x, counted over all of its edges. If every orbit copies the routing, each edge has load x.
type block struct {
	capacity []float64 // class -> capacity of one edge
	member   []int32   // class -> one of its edges
	sources  []int32   // representatives that have flows
	flows    int       // of the sources

	short [][]part // flow, in the order of parts -> a path of fewest hops
	hops  float64  // sum of theirs

	// Results of the last call of solver.solve.
	parts  [][]part  // flow, in the order of sources and their destinations -> its division
	theta  float64   // by parts
	upper  float64   // by length
	length []float64 // class -> length that proves upper
}

// part is what goes over one path: edges, last one first, and a fraction of the flow.
type part struct {
	edges []int32
	share float64
}

func newNetwork(maps []circuit.Permutation, flows [][2]int) (*network, error) {
	if len(maps) == 0 {
		return nil, fmt.Errorf("%w: no maps", ErrInput)
	}
	n := len(maps[0])
	w := &network{maps: maps, inverse: make([]circuit.Permutation, len(maps))}
	for j, p := range maps {
		if err := p.Validate(n); err != nil {
			return nil, fmt.Errorf("%w: maps[%d] %w", ErrInput, j, err)
		}
		w.inverse[j] = p.Inverse()
	}
	w.dst = make([][]int32, n)
	for i, f := range flows {
		if f[0] < 0 || f[0] >= n || f[1] < 0 || f[1] >= n || f[0] == f[1] {
			return nil, fmt.Errorf("%w: flows[%d]: %d -> %d of %d ranks", ErrInput, i, f[0], f[1], n)
		}
		w.dst[f[0]] = append(w.dst[f[0]], int32(f[1]))
	}
	if i := w.repeated(flows); i >= 0 {
		return nil, fmt.Errorf("%w: flows[%d]: %d -> %d is listed twice", ErrInput, i, flows[i][0], flows[i][1])
	}
	w.merge()
	w.compile()
	return w, nil
}

// repeated returns the index of a flow that is listed before, or -1.
func (w *network) repeated(flows [][2]int) int {
	seen := newPairs(len(w.dst))
	for i, f := range flows {
		if seen.has(int32(f[0]), int32(f[1])) {
			return i
		}
		seen.add(int32(f[0]), int32(f[1]))
	}
	return -1
}

// merge lists the edges by tail.
func (w *network) merge() {
	n := len(w.dst)
	w.first = make([]int32, n+1)
	for r := range n {
		w.first[r] = int32(len(w.head))
	ports:
		for j, p := range w.maps {
			if p[r] == circuit.Dark || p[r] == r {
				continue
			}
			for e := w.first[r]; int(e) < len(w.head); e++ {
				if int(w.head[e]) == p[r] {
					w.capacity[e]++
					continue ports
				}
			}
			w.head = append(w.head, int32(p[r]))
			w.port = append(w.port, int32(j))
			w.capacity = append(w.capacity, 1)
		}
	}
	w.first[n] = int32(len(w.head))
}

// compile finds the blocks, their orbits and classes.
func (w *network) compile() {
	n := len(w.dst)
	w.rep = slices.Repeat([]int32{-1}, n)
	w.class = make([]int32, len(w.head))
	sym := newSymmetry(w)
	seen := make([]bool, n)
	for r := range n {
		if seen[r] {
			continue
		}
		ranks := w.component(int32(r), seen)
		b := &block{}
		for _, u := range ranks {
			b.flows += len(w.dst[u])
		}
		if b.flows == 0 {
			continue
		}
		sym.orbits(ranks)
		w.classify(b, ranks)
		w.blocks = append(w.blocks, b)
	}
}

// component returns the ranks that circuits, followed either way, join to r.
func (w *network) component(r int32, seen []bool) []int32 {
	ranks := []int32{r}
	seen[r] = true
	for i := 0; i < len(ranks); i++ {
		for j := range w.maps {
			for _, v := range [2]int{w.maps[j][ranks[i]], w.inverse[j][ranks[i]]} {
				if v != circuit.Dark && !seen[v] {
					seen[v] = true
					ranks = append(ranks, int32(v))
				}
			}
		}
	}
	return ranks
}

// classify numbers the classes of the edges of a block: those out of one representative
// stand for those out of its orbit, plane by plane.
func (w *network) classify(b *block, ranks []int32) {
	b.flows = 0
	for _, u := range ranks {
		if w.rep[u] != u {
			continue
		}
		for e := w.first[u]; e < w.first[u+1]; e++ {
			w.class[e] = int32(len(b.capacity))
			b.capacity = append(b.capacity, w.capacity[e])
			b.member = append(b.member, e)
		}
		if len(w.dst[u]) > 0 {
			b.sources = append(b.sources, u)
			b.flows += len(w.dst[u])
		}
	}
	for _, u := range ranks {
		for k := range w.first[u+1] - w.first[u] {
			w.class[w.first[u]+k] = w.class[w.first[w.rep[u]]+k] // both lists are in the order of planes
		}
	}
}

// pairs is a set of pairs of ranks.
type pairs struct {
	n    int
	bits []uint64
}

func newPairs(n int) *pairs { return &pairs{n, make([]uint64, (n*n+63)/64)} }

func (p *pairs) add(a, b int32) { i := int(a)*p.n + int(b); p.bits[i/64] |= 1 << (i % 64) }

func (p *pairs) has(a, b int32) bool {
	i := int(a)*p.n + int(b)
	return p.bits[i/64]>>(i%64)&1 != 0
}
