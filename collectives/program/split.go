package program

// packetSplit divides a flow over packet planes: evenly, or by their shares.
type packetSplit struct {
	planes   int
	use      []int // which planes these are; nil: the first
	shares   []int // of the planes, where all serve; nil: even
	minPiece int64 // bytes
	elem     int64 // bytes
}

func (s packetSplit) cut(f *flow, step int, pieces []piece) ([]piece, error) {
	return s.spread(f.src, f.dst, step, f.elems, pieces), nil
}

// spread cuts elems elements over planes. Where all planes serve, piece i is plane i's: the bytes
// that a ring passes on then stay on their plane, which so depends on no other. Where fewer do, the
// first is (src + dst + step) mod planes: what is under way at one time then spreads.
func (s packetSplit) spread(src, dst, step int, elems int64, pieces []piece) []piece {
	n := min(max(elems*s.elem/s.minPiece, 1), int64(s.planes), max(elems, 1))
	first := 0
	if n < int64(s.planes) {
		first = (src + dst + step) % s.planes
	} else if s.shares != nil {
		return s.byShares(elems, pieces)
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

// byShares cuts elems elements over all planes in proportion to their shares. Shares are whole numbers, so the cuts
// are the same on every machine.
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

// part returns the start of part i of n of total elements, without overflow.
func part(total, i, n int64) int64 { return total/n*i + total%n*i/n }
