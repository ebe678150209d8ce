package flow

import (
	"math"
	"slices"

	"lightpath/plans/internal/lp"
)

// exact solves the dual of concurrent flow on a block,
//
//	minimize  sum over classes c of capacity[c]*y[c]
//	subject to  sum over flows f of z[f] >= flows,
//	            length(P, y) >= z[f]  for every path P of every flow f,
//
// adding rows as shortest paths violate them. The multiplier of a row is the flow on its path, so a basic solution uses
// at most as many paths as there are flows and classes.
type exact struct {
	s       *solver
	b       *block
	limit   int
	program lp.Program
	rows    []row
	length  []float64
	middle  []float64
	path    []int32
	coef    []float64 // class -> coefficient of the row in the making
	cols    []int32
	values  []float64
}

// row is a path of a flow and its row in the program.
type row struct {
	id    int // the latest: the program forgets rows that become slack
	flow  int
	edges []int32
}

// pivotsAtOnce is how many pivots pass between two looks at the work that is left.
const pivotsAtOnce = 32

func newExact(s *solver, b *block, limit int) *exact {
	x := &exact{s: s, b: b, limit: limit}
	k := len(b.capacity)
	x.length, x.middle, x.coef = make([]float64, k), make([]float64, k), make([]float64, k)
	x.program.Lazy = true
	x.program.Reset(append(append(make([]float64, 0, k+b.flows), b.capacity...), make([]float64, b.flows)...))
	for f := range b.flows {
		x.cols, x.values = append(x.cols, int32(k+f)), append(x.values, 1)
	}
	x.program.Add(x.cols, x.values, float64(b.flows))
	for f, flow := range b.parts {
		for _, p := range flow {
			x.rows = append(x.rows, row{x.state(f, p.edges), f, p.edges})
		}
	}
	return x
}

// solve starts with the paths that the block's routing uses. It ends with a gap of at most epsilon, when the work spent
// reaches until, or on numerical failure. The block holds the result.
func (x *exact) solve(epsilon float64, until int64) {
	for {
		before := x.program.Work()
		_, status := x.program.Solve(math.Inf(1), pivotsAtOnce)
		x.s.work += x.program.Work() - before
		out := x.s.spent() >= until
		if status == lp.GaveUp && !out {
			continue
		}
		if status != lp.Optimal {
			return
		}
		added := x.separate()
		if !added || out {
			x.extract()
		}
		if !added || out || x.b.gap() <= epsilon {
			return
		}
	}
}

// separate adds paths that violate the current lengths, and improves the bound on theta. It looks first at the known
// paths. Then it takes the shortest paths half way to the lengths that prove the best bound, because the optimum is
// there (the in-out separation of Ben-Ameur and Neto). The shortest paths themselves come last.
func (x *exact) separate() (added bool) {
	for c := range x.length {
		x.length[c] = x.program.Value(c)
	}
	for i := range x.rows {
		if r := &x.rows[i]; x.violated(r.flow, r.edges) {
			r.id = x.state(r.flow, r.edges)
			added = true
		}
	}
	return added || x.shortest(x.between()) || x.shortest(x.length)
}

// between returns the mean of the current lengths and the best, on one scale.
func (x *exact) between() []float64 {
	own, best := 0.0, 0.0
	for c, k := range x.b.capacity {
		own += k * x.length[c]
		best += k * x.b.length[c]
	}
	for c := range x.middle {
		x.middle[c] = x.length[c] + own/best*x.b.length[c]
	}
	return x.middle
}

func (x *exact) shortest(length []float64) (added bool) {
	total := 0.0
	x.s.trees(x.b, length, x.limit, func(f int, dst int32) {
		total += x.s.paths.dist[dst]
		x.path = x.s.paths.path(dst, x.path[:0])
		if x.violated(f, x.path) {
			edges := slices.Clone(x.path)
			x.rows = append(x.rows, row{x.state(f, edges), f, edges})
			added = true
		}
	})
	x.b.prove(length, total)
	return added
}

func (x *exact) violated(f int, edges []int32) bool {
	d := x.program.Value(len(x.length)+f) - 2*lp.Violation
	for _, e := range edges {
		if d -= x.length[x.s.w.class[e]]; d <= 0 {
			return false
		}
	}
	return true
}

// state adds to the program that z[f] is at most the length of a path.
func (x *exact) state(f int, edges []int32) int {
	for _, e := range edges {
		x.coef[x.s.w.class[e]]++
	}
	x.cols, x.values = x.cols[:0], x.values[:0]
	for _, e := range edges {
		c := x.s.w.class[e]
		if x.coef[c] != 0 { // not counted yet
			x.cols, x.values = append(x.cols, c), append(x.values, x.coef[c])
			x.coef[c] = 0
		}
	}
	x.cols, x.values = append(x.cols, int32(len(x.coef)+f)), append(x.values, -1)
	return x.program.Add(x.cols, x.values, 0)
}

// extract offers the block the flows on the rows' paths.
func (x *exact) extract() {
	parts := make([][]part, x.b.flows)
	for _, r := range x.rows {
		if share := x.program.Dual(r.id); share > 0 {
			parts[r.flow] = append(parts[r.flow], part{r.edges, share})
		}
	}
	for _, flow := range parts {
		if len(flow) == 0 {
			return
		}
	}
	x.b.take(x.s.w, parts)
}
