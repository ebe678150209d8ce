package decompose

import (
	"cmp"
	"fmt"
	"slices"

	"lightpath/plans/lumos/matrix"
)

// Split returns A_1 ... A_parts, whose sum is A. In each of them, every entry, row and column is 1/parts of
// A's, rounded up or down. So are the sums over every group of rows and of columns. No entry may be negative.
// group is as in [Halve]. (LumosCore, Theorem 2.2; balanced edge colouring, de Werra.)
//
// Method: an Euler split halves an even number of parts. It pairs links at both ends: first equal links, then
// those of a row, then those of a group. The links of a cycle of pairs go to the two halves in turn. From an
// odd number of parts, a feasible flow first takes one part. The time is O(E log parts) for powers of two,
// with E links.
func Split(a *matrix.Matrix, parts int, group []int) ([]*matrix.Matrix, error) {
	if err := a.NonNegative(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMatrix, err)
	}
	if parts < 1 {
		return nil, fmt.Errorf("%w: %d parts", ErrMatrix, parts)
	}
	s := newSplitter(a, parts, group)
	s.divide(s.links, s.parts)
	return s.parts, nil
}

// link is one of the links that are divided.
type link struct{ row, col int32 }

type splitter struct {
	size  int
	group []int
	parts []*matrix.Matrix
	links []link
}

// newSplitter gives every part what all have in common, and keeps the rest.
func newSplitter(a *matrix.Matrix, parts int, group []int) *splitter {
	s := &splitter{size: a.Size(), group: group, parts: make([]*matrix.Matrix, parts)}
	for p := range s.parts {
		s.parts[p] = matrix.New(a.Size())
	}
	for i := range a.Size() {
		for _, c := range a.Row(i) {
			for p := range s.parts {
				s.parts[p].Add(i, c.Col, c.Count/parts)
			}
			for range c.Count % parts {
				s.links = append(s.links, link{int32(i), int32(c.Col)})
			}
		}
	}
	return s
}

// divide gives links to parts.
func (s *splitter) divide(links []link, parts []*matrix.Matrix) {
	for len(parts) > 1 && len(parts)%2 == 1 {
		var part []link
		part, links = s.take(links, len(parts))
		s.give(part, parts[0])
		parts = parts[1:]
	}
	if len(parts) == 1 {
		s.give(links, parts[0])
		return
	}
	low := s.halve(links)
	s.divide(links[:low], parts[:len(parts)/2])
	s.divide(links[low:], parts[len(parts)/2:])
}

func (s *splitter) give(links []link, part *matrix.Matrix) {
	for _, l := range links {
		part.Add(int(l.row), int(l.col), 1)
	}
}

func (s *splitter) groupOf(v int32) int {
	if s.group == nil {
		return int(v)
	}
	return s.group[v]
}

// halve reorders links so that the first low of them are one half.
func (s *splitter) halve(links []link) (low int) {
	byRow := s.pair(links, func(l link) (int32, int32) { return l.row, l.col })
	byCol := s.pair(links, func(l link) (int32, int32) { return l.col, l.row })
	const unset, first, second = 0, 1, 2
	half := make([]uint8, len(links))
	// A link without a partner at one end begins a path. The other links form cycles. Both alternate between
	// the ends, so cycles are even.
	along := func(e int32, partners ...[]int32) {
		for h, side := uint8(first), 0; e >= 0 && half[e] == unset; h, side = h^first^second, side^1 {
			half[e] = h
			e = partners[side][e]
		}
	}
	for e := range links {
		if byRow[e] < 0 {
			along(int32(e), byCol, byRow)
		} else if byCol[e] < 0 {
			along(int32(e), byRow, byCol)
		}
	}
	for e := range links {
		along(int32(e), byRow, byCol)
	}
	sorted := make([]link, 0, len(links))
	for _, h := range []uint8{first, second} {
		for e, l := range links {
			if half[e] == h {
				sorted = append(sorted, l)
			}
		}
		if h == first {
			low = len(sorted)
		}
	}
	copy(links, sorted)
	return low
}

// pair gives every link but at most one a partner at one end: one alike if it can, else one of
// its row, its group, any. ends returns a link's number at this end and at the other.
func (s *splitter) pair(links []link, ends func(link) (int32, int32)) []int32 {
	order := make([]int32, len(links))
	for e := range order {
		order[e] = int32(e)
	}
	slices.SortFunc(order, func(x, y int32) int {
		here, there := ends(links[x])
		here2, there2 := ends(links[y])
		return cmp.Or(cmp.Compare(s.groupOf(here), s.groupOf(here2)), cmp.Compare(here, here2), cmp.Compare(there, there2),
			cmp.Compare(x, y))
	})
	partner := slices.Repeat([]int32{-1}, len(links))
	alike := []func(x, y link) bool{
		func(x, y link) bool { return x == y },
		func(x, y link) bool { h, _ := ends(x); h2, _ := ends(y); return h == h2 },
		func(x, y link) bool { h, _ := ends(x); h2, _ := ends(y); return s.groupOf(h) == s.groupOf(h2) },
		func(link, link) bool { return true },
	}
	for _, same := range alike {
		left := order[:0]
		for i := 0; i < len(order); i++ {
			if i+1 < len(order) && same(links[order[i]], links[order[i+1]]) {
				partner[order[i]], partner[order[i+1]] = order[i+1], order[i]
				i++
				continue
			}
			left = append(left, order[i])
		}
		order = left
	}
	return partner
}
