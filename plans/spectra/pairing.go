package spectra

import "slices"

// pairing finds heavy matchings of a general graph, for duplex planes: a greedy one, improved by exchanges of up to
// three edges until none helps. Self-loops are edges with one end. The exact algorithm (blossoms) would cost more than
// it gains: a matching is one move of a search, and no proof relies on it.
type pairing struct {
	ends  [][2]int32
	start []int32 // vertex -> index into list
	list  []int32 // edges by vertex
	mate  []int32 // vertex -> edge or -1
	order []int32
	work  int64
}

func (p *pairing) reset(w *network) {
	p.ends = make([][2]int32, len(w.to))
	p.start = make([]int32, w.n+1)
	for e := range p.ends {
		u, v := w.from[e], w.to[e]
		p.ends[e] = [2]int32{u, v}
		p.start[u+1]++
		if u != v {
			p.start[v+1]++
		}
	}
	for v := range w.n {
		p.start[v+1] += p.start[v]
	}
	p.list = make([]int32, p.start[w.n])
	fill := slices.Clone(p.start)
	for e, end := range p.ends {
		for i, v := range end {
			if i == 0 || v != end[0] {
				p.list[fill[v]] = int32(e)
				fill[v]++
			}
		}
	}
	p.mate = make([]int32, w.n)
	p.order = make([]int32, len(w.to))
}

// heavy returns the edges of a matching.
func (p *pairing) heavy(weight []float64) (edges []int32) {
	for v := range p.mate {
		p.mate[v] = -1
	}
	for e := range p.order {
		p.order[e] = int32(e)
	}
	slices.SortStableFunc(p.order, func(a, b int32) int {
		switch {
		case weight[a] > weight[b]:
			return -1
		case weight[a] < weight[b]:
			return 1
		}
		return 0
	})
	for _, e := range p.order {
		if u, v := p.ends[e][0], p.ends[e][1]; weight[e] > 0 && p.mate[u] < 0 && p.mate[v] < 0 {
			p.mate[u], p.mate[v] = e, e
		}
	}
	p.work += 4 * int64(len(p.order))
	for range 8 { // passes; the first few find nearly everything
		if !p.exchange(weight) {
			break
		}
	}
	for v, e := range p.mate {
		if e >= 0 && int(p.ends[e][0]) == v {
			edges = append(edges, e)
		}
	}
	return edges
}

// exchange tries every edge outside the matching once: it displaces the edges at its ends,
// whose other ends then take the best free neighbour each.
func (p *pairing) exchange(weight []float64) bool {
	improved := false
	for _, e := range p.order {
		u, v := p.ends[e][0], p.ends[e][1]
		if weight[e] <= 0 || p.mate[u] == e {
			continue
		}
		gain := weight[e]
		a, b := p.displaced(u, e), p.displaced(v, e)
		gain -= p.weightAt(u, weight)
		if v == u {
			b = -1
		} else {
			gain -= p.weightAt(v, weight)
		}
		fa, ga := p.rescue(a, u, v, -1, weight)
		fb, gb := p.rescue(b, u, v, p.other(fa, a), weight)
		if gain+ga+gb <= 1e-12*weight[e] {
			continue
		}
		p.unmatch(u)
		p.unmatch(v)
		p.match(e)
		if fa >= 0 {
			p.match(fa)
		}
		if fb >= 0 && fb != fa {
			p.match(fb)
		}
		improved = true
	}
	return improved
}

// displaced returns the vertex that loses its edge when e takes v, or -1.
func (p *pairing) displaced(v, e int32) int32 {
	m := p.mate[v]
	if m < 0 || m == e {
		return -1
	}
	return p.other(m, v)
}

// other returns the far end of e, or -1 for a self-loop.
func (p *pairing) other(e, v int32) int32 {
	if e < 0 {
		return -1
	}
	a, b := p.ends[e][0], p.ends[e][1]
	if a == b {
		return -1
	}
	return a ^ b ^ v
}

func (p *pairing) weightAt(v int32, weight []float64) float64 {
	if p.mate[v] < 0 {
		return 0
	}
	return weight[p.mate[v]]
}

// rescue finds the best edge from a to a free vertex other than those taken.
func (p *pairing) rescue(a, u, v, taken int32, weight []float64) (edge int32, gain float64) {
	if a < 0 || a == u || a == v || a == taken {
		return -1, 0
	}
	edge = -1
	for _, e := range p.list[p.start[a]:p.start[a+1]] {
		c := p.other(e, a)
		if c >= 0 && (c == u || c == v || c == taken || p.mate[c] >= 0) {
			continue
		}
		if weight[e] > gain {
			edge, gain = e, weight[e]
		}
	}
	p.work += int64(p.start[a+1] - p.start[a])
	return edge, gain
}

func (p *pairing) unmatch(v int32) {
	if e := p.mate[v]; e >= 0 {
		p.mate[p.ends[e][0]], p.mate[p.ends[e][1]] = -1, -1
	}
}

func (p *pairing) match(e int32) { p.mate[p.ends[e][0]], p.mate[p.ends[e][1]] = e, e }
