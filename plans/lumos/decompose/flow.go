package decompose

import (
	"cmp"
	"fmt"
	"slices"

	"lightpath/plans/internal/network"
	"lightpath/plans/lumos/matrix"
)

// take removes from links one of parts parts.
func (s *splitter) take(links []link, parts int) (part, rest []link) {
	f := s.flow(links, parts, nil)
	if !f.Circulate() {
		panic("decompose: taking a part of everything is a flow, so an integral one exists")
	}
	return f.part()
}

// run is the links of one entry of the matrix; its arcs are numbered from first to the first of the next.
type run struct {
	link
	count, first int
}

// flow is the flow of one part: all -> groups -> rows -> columns -> groups -> all.
type flow struct {
	*network.Graph
	runs []run // and one after the last
}

// flow bounds everything by its parts-th part, rounded down and up. Every link costs 1, or -1 where the
// old part, if there is one, has it.
func (s *splitter) flow(links []link, parts int, old *matrix.Matrix) flow {
	groups := s.size
	for _, g := range s.group {
		groups = max(groups, g+1)
	}
	// Nodes: the rows, the columns, the groups of either, and one for all.
	col, rowGroup, colGroup, all := s.size, 2*s.size, 2*s.size+groups, 2*s.size+2*groups
	f := flow{Graph: network.New(all+1, len(links)+2*s.size+2*groups), runs: runsOf(links)}
	sums, arcs := make([]int, all), 0
	for r := range f.runs[:len(f.runs)-1] {
		l := &f.runs[r]
		l.first = arcs
		row, column := int(l.row), int(l.col)
		lower, upper, kept := l.count/parts, (l.count+parts-1)/parts, 0
		if old != nil {
			kept = max(0, min(old.At(row, column), upper))
		}
		if kept > 0 {
			arcs = 1 + f.Arc(row, col+column, min(lower, kept), kept, -1)
		}
		if upper > kept {
			arcs = 1 + f.Arc(row, col+column, max(0, lower-kept), upper-kept, 1)
		}
		for _, v := range []int{row, col + column, rowGroup + s.groupOf(l.row), colGroup + s.groupOf(l.col)} {
			sums[v] += l.count
		}
	}
	f.runs[len(f.runs)-1].first = arcs
	for v, sum := range sums {
		if sum == 0 {
			continue
		}
		from, to := all, v // of a group of rows
		switch {
		case v < col:
			from = rowGroup + s.groupOf(int32(v))
		case v < rowGroup:
			from, to = v, colGroup+s.groupOf(int32(v-col))
		case v >= colGroup:
			from, to = v, all
		}
		f.Arc(from, to, sum/parts, (sum+parts-1)/parts, 0)
	}
	return f
}

// runsOf sorts links and counts equal links.
func runsOf(links []link) []run {
	slices.SortFunc(links, func(x, y link) int { return cmp.Or(cmp.Compare(x.row, y.row), cmp.Compare(x.col, y.col)) })
	var runs []run
	for _, l := range links {
		if len(runs) == 0 || runs[len(runs)-1].link != l {
			runs = append(runs, run{link: l})
		}
		runs[len(runs)-1].count++
	}
	return append(runs, run{})
}

// part returns the links that the flow takes, and the others.
func (f flow) part() (part, rest []link) {
	for r, l := range f.runs[:len(f.runs)-1] {
		taken := 0
		for arc := l.first; arc < f.runs[r+1].first; arc++ {
			taken += f.Flow(arc)
		}
		for i := range l.count {
			if i < taken {
				part = append(part, l.link)
			} else {
				rest = append(rest, l.link)
			}
		}
	}
	return part, rest
}

// HalveByFlow is [Halve], without groups, by a flow of least cost: all -> unordered pairs of rows -> columns
// -> all (LumosCore, Fig. 11). A unit of old costs -1, a new unit 1. So if old is the A in use, few of its
// entries change. old may be nil.
func HalveByFlow(c, old *matrix.Matrix) (*matrix.Matrix, error) {
	if err := halvable(c); err != nil {
		return nil, err
	}
	n := c.Size()
	type way struct{ row, col, arc int }
	var ways []way
	pairs, cells := 0, 0
	for i := range n {
		cells += len(c.Row(i))
	}
	// Nodes: the columns, one for all, then the pairs.
	g := network.New(n+1+cells, 3*cells+n)
	for i := range n {
		for _, cell := range c.Row(i) {
			j, pair := cell.Col, n+1+pairs
			if i > j {
				continue
			}
			pairs++
			if i == j { // half is all that A can have
				ways = append(ways, way{i, i, g.Arc(n, i, cell.Count/2, cell.Count/2, 0)})
				continue
			}
			g.Arc(n, pair, cell.Count, cell.Count, 0)
			for _, w := range []way{{i, j, 0}, {j, i, 0}} {
				kept := 0
				if old != nil {
					kept = min(old.At(w.row, w.col), cell.Count)
				}
				if kept > 0 {
					w.arc = g.Arc(pair, w.col, 0, kept, -1)
					ways = append(ways, w)
				}
				if kept < cell.Count {
					w.arc = g.Arc(pair, w.col, 0, cell.Count-kept, 1)
					ways = append(ways, w)
				}
			}
		}
	}
	for j, sum := range c.ColSums() {
		g.Arc(j, n, sum/2, (sum+1)/2, 0)
	}
	if !g.Cheapest() {
		panic("decompose: half of everything is a flow, so an integral one exists")
	}
	a := matrix.New(n)
	for _, w := range ways {
		a.Add(w.row, w.col, g.Flow(w.arc))
	}
	return a, nil
}

// SplitByFlow is [Split], without groups, one part after the other by flows of least cost; each keeps
// what it can of its old one; of those there may be fewer than parts.
func SplitByFlow(a *matrix.Matrix, parts int, old []*matrix.Matrix) ([]*matrix.Matrix, error) {
	if err := a.NonNegative(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMatrix, err)
	}
	if parts < 1 {
		return nil, fmt.Errorf("%w: %d parts", ErrMatrix, parts)
	}
	s := newSplitter(a, parts, nil)
	links := s.links
	for p := range parts {
		var want *matrix.Matrix
		if p < len(old) {
			want = beyond(old[p], s.parts[p])
		}
		f := s.flow(links, parts-p, want)
		if !f.Cheapest() {
			panic("decompose: taking a part of everything is a flow, so an integral one exists")
		}
		var part []link
		part, links = f.part()
		s.give(part, s.parts[p])
	}
	return s.parts, nil
}

// beyond returns what old has more than common, and below 0 where it has less.
func beyond(old, common *matrix.Matrix) *matrix.Matrix {
	m := old.Clone()
	for i := range common.Size() {
		for _, c := range common.Row(i) {
			m.Add(i, c.Col, -c.Count)
		}
	}
	return m
}
