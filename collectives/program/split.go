package program

// packetSplit divides a flow over packet planes, evenly or by shares.
type packetSplit struct {
	ranks    int
	planes   int
	use      []int // numbers of the planes; nil: 0 to planes-1
	shares   []int // by plane, if all planes are used; nil: even
	minPiece int64 // bytes
	elem     int64 // bytes per element
}

func (s packetSplit) cut(f *flow, step int, pieces []piece) ([]piece, error) {
	return s.spread(f.src, f.dst, step, f.elems, pieces), nil
}

// spread divides elems elements over the planes. If it uses all planes, plane i carries piece i. So the data of a ring
// stays on its plane, and no plane waits for another. If it uses fewer, concurrent flows begin with different planes.
// With shares, it then uses no slow plane.
func (s packetSplit) spread(src, dst, step int, elems int64, pieces []piece) []piece {
	n := min(max(elems*s.elem/s.minPiece, 1), int64(s.planes), max(elems, 1))
	first := 0
	switch {
	case s.shares != nil && n < int64(s.planes):
		s.use = s.fast()
		s.planes, s.shares = len(s.use), nil
		return s.spread(src, dst, step, elems, pieces)
	case s.shares != nil:
		return s.byShares(elems, pieces)
	case n < int64(s.planes):
		first = s.first(src, dst, step)
	}
	for i := int64(0); i < n; i++ {
		plane := (first + int(i)) % s.planes
		if s.use != nil {
			plane = s.use[plane]
		}
		pieces = append(pieces, piece{plane: plane, lo: part(elems, i, n), hi: part(elems, i+1, n)})
	}
	return pieces
}

// first returns the plane with which a small flow begins. It differs between flows to neighbouring ranks, from
// neighbouring ranks, and in consecutive steps of two ranks. Steps count only beyond the distance of the ranks. In a
// pairwise exchange, the distance grows with the step, and steps do not wait for each other. So the flows of a rank use
// all planes there, too.
func (s packetSplit) first(src, dst, step int) int {
	if step > 0 {
		step = max(step+1-(dst-src+s.ranks)%s.ranks, 0)
	}
	return (src + dst + step) % s.planes
}

// byShares divides elems elements over all planes in proportion to their shares. Shares are integers, so all ranks
// compute the same cuts.
func (s packetSplit) byShares(elems int64, pieces []piece) []piece {
	total, before := int64(0), int64(0)
	for _, w := range s.shares {
		total += int64(w)
	}
	for j, w := range s.shares {
		after := before + int64(w)
		pieces = append(pieces, piece{plane: j, lo: part(elems, before, total), hi: part(elems, after, total)})
		before = after
	}
	return pieces
}

// fast returns the planes with at least half of an even share.
func (s packetSplit) fast() (planes []int) {
	total := 0
	for _, w := range s.shares {
		total += w
	}
	for j, w := range s.shares {
		if 2*w*s.planes >= total {
			planes = append(planes, j)
		}
	}
	return planes
}

// part returns the start of part i of n of total elements, without overflow.
func part(total, i, n int64) int64 { return total/n*i + total%n*i/n }
