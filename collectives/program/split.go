package program

import "math/bits"

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
	pieces, of := s.shareOut(f.src, f.dst, step, f.elems, pieces)
	if k := int64(len(pieces)); k > 1 && f.elems*s.elem/k/int64(len(f.transfers)) >= s.minPiece/2 {
		f.deal(pieces, of, s.elem)
		return pieces, nil
	}
	return inElements(pieces, of, f.elems), nil
}

// spread divides elems elements over the planes.
func (s packetSplit) spread(src, dst int, elems int64, pieces []piece) []piece {
	pieces, of := s.shareOut(src, dst, 0, elems, pieces)
	return inElements(pieces, of, elems)
}

// inElements turns pieces of an interval of length of into pieces of elems elements.
func inElements(pieces []piece, of, elems int64) []piece {
	for i := range pieces {
		p := &pieces[i]
		p.lo, p.hi = part(elems, p.lo, of), part(elems, p.hi, of)
	}
	return pieces
}

// deal gives each piece its part of every transfer, and reorders the transfers by pieces. So bytes stay on their plane
// when steps combine them anew: no plane waits for another one, or sends data of a later step beside data of this one.
// Halving and doubling of 4 ranks on two planes takes 0.75 of the time. Each part is a frame, and short frames cost
// more than they save, so cut deals no flow of small transfers.
func (f *flow) deal(pieces []piece, of, elem int64) {
	all := f.transfers
	f.transfers = make([]transfer, 0, len(pieces)*len(all))
	at := int64(0)
	for i := range pieces {
		p := &pieces[i]
		lo, hi := p.lo, p.hi
		p.lo = at
		for _, x := range all {
			n := x.src.Len / elem
			from, to := part(n, lo, of), part(n, hi, of)
			if from < to {
				f.transfers = append(f.transfers, x.cut(from*elem, to*elem))
			}
			at += to - from
		}
		p.hi = at
	}
}

// shareOut returns the pieces of a flow of elems elements as parts of an interval of length of. If it uses all planes,
// plane i carries piece i. If it uses fewer, concurrent flows begin with different planes. With shares, it then uses no
// slow plane.
func (s packetSplit) shareOut(src, dst, step int, elems int64, pieces []piece) (_ []piece, of int64) {
	n := min(max(elems*s.elem/s.minPiece, 1), int64(s.planes), max(elems, 1))
	first := 0
	switch {
	case s.shares != nil && n < int64(s.planes):
		s.use = s.fast()
		s.planes, s.shares = len(s.use), nil
		return s.shareOut(src, dst, step, elems, pieces)
	case s.shares != nil:
		for j, w := range s.shares {
			pieces = append(pieces, piece{plane: j, lo: of, hi: of + int64(w)})
			of += int64(w)
		}
		return pieces, of
	case n < int64(s.planes):
		first = s.first(src, dst, step)
	}
	for i := int64(0); i < n; i++ {
		plane := (first + int(i)) % s.planes
		if s.use != nil {
			plane = s.use[plane]
		}
		pieces = append(pieces, piece{plane: plane, lo: i, hi: i + 1})
	}
	return pieces, n
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

// part returns total*i/n for i <= n, without overflow.
func part(total, i, n int64) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(i))
	q, _ := bits.Div64(hi, lo, uint64(n))
	return int64(q)
}
