package decompose

import (
	"cmp"
	"slices"
)

// take removes from links one of parts parts.
func (s *splitter) take(links []link, parts int) (part, rest []link) {
	f := s.flow(links, parts)
	if !f.circulate() {
		panic("decompose: taking a part of everything is a flow, so an integral one exists")
	}
	return f.part()
}

// run holds the links of one entry of the matrix, and the arc of that entry.
type run struct {
	link
	count, arc int
}

// flow is the flow of one part: all -> groups -> rows -> columns -> groups -> all.
type flow struct {
	*graph
	runs []run
}

// flow bounds every entry, row, column and group by its parts-th part, rounded down and up.
func (s *splitter) flow(links []link, parts int) flow {
	groups := s.size
	for _, g := range s.group {
		groups = max(groups, g+1)
	}
	// Nodes: the rows, the columns, the groups of either, and one for all.
	col, rowGroup, colGroup, all := s.size, 2*s.size, 2*s.size+groups, 2*s.size+2*groups
	f := flow{graph: newGraph(all+1, len(links)+2*s.size+2*groups), runs: runsOf(links)}
	sums := make([]int, all)
	for r := range f.runs {
		l := &f.runs[r]
		row, column := int(l.row), int(l.col)
		l.arc = f.arc(row, col+column, l.count/parts, (l.count+parts-1)/parts)
		for _, v := range []int{row, col + column, rowGroup + s.groupOf(l.row), colGroup + s.groupOf(l.col)} {
			sums[v] += l.count
		}
	}
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
		f.arc(from, to, sum/parts, (sum+parts-1)/parts)
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
	return runs
}

// part returns the links that the flow takes, and the others.
func (f flow) part() (part, rest []link) {
	for _, l := range f.runs {
		taken := f.carried(l.arc)
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
