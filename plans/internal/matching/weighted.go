package matching

// Weighted finds matchings of maximum weight in a sparse bipartite graph by shortest
// augmenting paths in reduced costs (the Hungarian method in the form of Jonker and
// Volgenant). A matching need not be perfect. To cover a node, give its edges a weight above the sum of all others. A
// call begins with the prices of the one before, so a sequence of similar weights is cheap. Not safe for concurrent
// use. After Reset, it allocates only to grow buffers.
type Weighted struct {
	n      int
	ends   [2][]int32   // per side: edge -> vertex
	start  [2][]int32   // per side: vertex -> index into list
	list   [2][]int32   // per side: edges by vertex
	price  [2][]float64 // per side: never negative; sum over an edge at least its weight
	mate   [2][]int32   // per side: vertex -> edge, or None
	weight []float64    // of the current call

	// The search. Its far side is opposite to its root.
	dist  []float64 // far vertex -> distance
	via   []int32   // far vertex -> edge by which it was reached
	seen  []int32   // far vertex -> search that reached it
	done  []int32   // far vertex -> search that settled it
	round int32
	heap  []reached
	path  []int32 // far vertices settled, in order
	work  int64
}

type reached struct {
	dist float64
	far  int32
}

// Reset selects a graph with n senders and n receivers: to[start[u]:start[u+1]] are the
// receivers of sender u, and the index into to is the number of an edge. The slices are
// kept and must not change.
func (w *Weighted) Reset(n int, start, to []int32) {
	w.n = n
	m := len(to)
	w.start[0], w.ends[1] = start, to
	w.ends[0], w.list[0], w.list[1] = resize(w.ends[0], m), resize(w.list[0], m), resize(w.list[1], m)
	w.start[1] = resize(w.start[1], n+1)
	clear(w.start[1])
	for u := range n {
		for e := start[u]; e < start[u+1]; e++ {
			w.ends[0][e], w.list[0][e] = int32(u), e
			w.start[1][to[e]+1]++
		}
	}
	for v := range n {
		w.start[1][v+1] += w.start[1][v]
	}
	w.seen = resize(w.seen, n)
	copy(w.seen, w.start[1][:n])
	for e, v := range to {
		w.list[1][w.seen[v]] = int32(e)
		w.seen[v]++
	}
	for side := range w.price {
		w.price[side], w.mate[side] = resize(w.price[side], n), resize(w.mate[side], n)
		clear(w.price[side])
	}
	w.dist, w.via, w.done = resize(w.dist, n), resize(w.via, n), resize(w.done, n)
	clear(w.seen)
	clear(w.done)
	w.round = 0
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Edge returns the edge that matches sender u in the last matching, or [None].
func (w *Weighted) Edge(u int) int { return int(w.mate[0][u]) }

// Work counts the edges looked at so far: a clock that is the same on every machine.
func (w *Weighted) Work() int64 { return w.work }

// Solve finds a matching of maximum weight. weight[e], not negative, is the weight of edge e; the slice must not change
// until the next call. A matching may contain edges of weight 0.
func (w *Weighted) Solve(weight []float64) {
	w.weight = weight
	for side := range w.mate {
		for u := range w.mate[side] {
			w.mate[side][u] = None
		}
	}
	w.begin()
	for side := range w.mate {
		for u, e := range w.mate[side] {
			if e == None && w.price[side][u] > 0 {
				w.search(side, int32(u))
			}
		}
	}
}

// begin keeps the receivers' prices, sets the least legal prices for senders, and matches tight edges between unmatched
// vertices.
func (w *Weighted) begin() {
	to, price := w.ends[1], w.price[1]
	for u := range w.n {
		best, at := 0.0, int32(None)
		for e := w.start[0][u]; e < w.start[0][u+1]; e++ {
			if gain := w.weight[e] - price[to[e]]; gain > best {
				best, at = gain, e
			} else if gain == best && gain > 0 && w.mate[1][to[e]] == None {
				at = e
			}
		}
		w.price[0][u] = best
		if at != None && w.mate[1][to[at]] == None {
			w.mate[0][u], w.mate[1][to[at]] = at, at
		}
	}
	w.work += int64(len(to))
}

// search makes an unmatched vertex with a price legal. It matches the vertex along the cheapest alternating path. The
// path ends at an unmatched vertex of the far side, or leaves a vertex of its own side, perhaps itself, unmatched at
// price 0.
func (w *Weighted) search(side int, root int32) {
	far := 1 - side
	w.round++
	w.heap, w.path = w.heap[:0], w.path[:0]
	near, d := root, 0.0
	limit, last := w.price[side][root], root // cheapest end on the near side
	end := int32(None)
	for {
		w.relax(side, near, d, limit)
		far1, ok := w.settle(limit)
		if !ok {
			d = limit
			break
		}
		d = w.dist[far1]
		if w.mate[far][far1] == None {
			end = far1
			break
		}
		near = w.ends[side][w.mate[far][far1]]
		if c := d + w.price[side][near]; c < limit {
			limit, last = c, near
		}
	}
	w.reprice(side, root, d)
	if end == None && last != root {
		e := w.mate[side][last]
		end = w.ends[far][e]
		w.mate[side][last] = None
		w.price[side][last] = 0
	} else if end == None {
		w.price[side][root] = 0
		return
	}
	for {
		e := w.via[end]
		at := w.ends[side][e]
		old := w.mate[side][at]
		w.mate[side][at], w.mate[far][end] = e, e
		if at == root {
			return
		}
		end = w.ends[far][old]
	}
}

// relax reaches the far ends of near's edges, near being at distance d, below limit.
func (w *Weighted) relax(side int, near int32, d, limit float64) {
	far := 1 - side
	ends, price := w.ends[far], w.price[far]
	base := d + w.price[side][near]
	list := w.list[side][w.start[side][near]:w.start[side][near+1]]
	w.work += int64(len(list))
	for _, e := range list {
		v := ends[e]
		to := max(d, base+price[v]-w.weight[e])
		if to >= limit || w.seen[v] == w.round && to >= w.dist[v] {
			continue
		}
		w.seen[v], w.dist[v], w.via[v] = w.round, to, e
		w.push(reached{to, v})
	}
}

// settle takes the nearest far vertex that is not settled yet; false if none is nearer than limit.
func (w *Weighted) settle(limit float64) (int32, bool) {
	for len(w.heap) > 0 {
		r := w.pop()
		if r.dist >= limit {
			return 0, false
		}
		if w.done[r.far] == w.round || r.dist > w.dist[r.far] {
			continue
		}
		w.done[r.far] = w.round
		w.path = append(w.path, r.far)
		return r.far, true
	}
	return 0, false
}

// reprice shifts the prices of the vertices that the search reached before distance d, so that every edge of its path
// becomes tight.
func (w *Weighted) reprice(side int, root int32, d float64) {
	far := 1 - side
	w.price[side][root] = max(0, w.price[side][root]-d)
	for _, v := range w.path {
		by := d - w.dist[v]
		if by <= 0 {
			continue
		}
		w.price[far][v] += by
		if e := w.mate[far][v]; e != None {
			u := w.ends[side][e]
			w.price[side][u] = max(0, w.price[side][u]-by)
		}
	}
}

func (w *Weighted) push(r reached) {
	h := append(w.heap, r)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].dist <= r.dist {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = r
	w.heap = h
}

func (w *Weighted) pop() reached {
	h := w.heap
	top, r := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	w.heap = h
	for i := 0; len(h) > 0; {
		c := 2*i + 1
		if c >= len(h) {
			h[i] = r
			break
		}
		if c+1 < len(h) && h[c+1].dist < h[c].dist {
			c++
		}
		if r.dist <= h[c].dist {
			h[i] = r
			break
		}
		h[i] = h[c]
		i = c
	}
	return top
}
