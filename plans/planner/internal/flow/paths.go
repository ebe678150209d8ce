package flow

import "math"

// pather finds shortest paths of few hops. Of paths of the same length it prefers the one
// with fewest hops.
type pather struct {
	w      *network
	dist   []float64
	label  []int32 // rank -> its label, -1 where it was not reached
	hops   []int32 // rank -> hops of its label
	labels []label
	active []visit
	next   []int32
	marked []bool
	work   int64
}

// label says how a rank is reached: by edge, from the rank of label prev (-1: the source).
type label struct{ edge, prev int32 }

// visit is a rank whose distance fell in the last round, as it was at its end.
type visit struct {
	rank, label int32
	dist        float64
}

func newPather(w *network) *pather {
	n := len(w.dst)
	return &pather{w: w, dist: make([]float64, n), label: make([]int32, n), hops: make([]int32, n),
		marked: make([]bool, n)}
}

// from computes the shortest paths of at most limit hops from src to its flows' destinations. The length of an edge is
// that of its class. It runs the rounds of Bellman and Ford, one for each hop, without ranks that are at least as far
// as all destinations. Unless each is nil, from calls it after each round with the hops so far.
func (s *pather) from(src int32, length []float64, limit int, each func(hops int)) {
	for r := range s.dist {
		s.dist[r], s.label[r] = math.Inf(1), -1
	}
	s.labels = s.labels[:0]
	s.dist[src], s.hops[src] = 0, 0
	s.active = append(s.active[:0], visit{src, -1, 0})
	for h := 1; h <= limit && len(s.active) > 0; h++ {
		s.next = s.next[:0]
		far := s.farthest(src)
		for _, v := range s.active {
			if v.dist < far {
				s.relax(v, length, int32(h))
			}
		}
		s.active = s.active[:0]
		for _, r := range s.next {
			s.marked[r] = false
			s.active = append(s.active, visit{r, s.label[r], s.dist[r]})
		}
		if each != nil {
			each(h)
		}
	}
}

// farthest returns the distance of the farthest destination of src so far.
func (s *pather) farthest(src int32) float64 {
	far := 0.0
	for _, d := range s.w.dst[src] {
		if far = math.Max(far, s.dist[d]); far > math.MaxFloat64 {
			break
		}
	}
	return far
}

func (s *pather) relax(v visit, length []float64, hops int32) {
	lo, hi := s.w.first[v.rank], s.w.first[v.rank+1]
	class := s.w.class[lo:hi]
	for k, to := range s.w.head[lo:hi] {
		d := v.dist + length[class[k]]
		if d >= s.dist[to]*(1-1e-12) {
			continue
		}
		s.dist[to], s.label[to], s.hops[to] = d, int32(len(s.labels)), hops
		s.labels = append(s.labels, label{lo + int32(k), v.label})
		if !s.marked[to] {
			s.marked[to] = true
			s.next = append(s.next, to)
		}
	}
	s.work += 4 * int64(hi-lo)
}

// path appends to edges those of the path to dst, last one first.
func (s *pather) path(dst int32, edges []int32) []int32 {
	for l := s.label[dst]; l >= 0; l = s.labels[l].prev {
		edges = append(edges, s.labels[l].edge)
	}
	return edges
}
