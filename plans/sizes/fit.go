package sizes

import (
	"math"
	"slices"
	"strconv"

	"lightpath/plans"
	"lightpath/plans/internal/lp"
)

// Limits of the linear program of a pattern: beyond them only the proportional division is
// tried. They are counted, not timed, so that results repeat.
const (
	maxFitColumns = 1500
	maxFitRounds  = 200
	maxFitWork    = 1 << 29 // multiplications
	fitPivots     = 100     // between looks at the work
	// dust is the part of a step below which an entry is left empty: it would cost alpha for a rounding error.
	dust = 1e-9
)

// Fit returns the pattern of s on p with the fastest division of bytes. The fabric and flows of p are those of
// s.Problem. The linear program is over
//
//	D_i  the length of step i
//	x_v  the time on the wire of transmit v
//
// It minimizes the sum of D under two conditions. Every flow gets its bytes. A chain of activities is on one plane, or
// across planes that switch or transmit together. If it begins in step i and ends with a transmit of step j, it fits
// into D_i + ... + D_j. Fit never returns a plan slower than scale. The result may be faster than s.Plan on its own
// problem, because the program divides the bytes of any pattern anew.
//
// The result states no bound, carries no digest and shares circuits with s.Plan. Errors wrap [ErrPattern].
func Fit(s Sized, p *plans.Problem) (*plans.Plan, error) {
	scaled, err := scale(s, p)
	if err != nil || scaled.CCTUS <= 0 {
		return scaled, err
	}
	g, err := newGraph(p, scaled)
	if err != nil {
		return nil, err
	}
	f := &fit{graph: g, unit: scaled.CCTUS}
	factors := f.solve()
	if factors == nil {
		return scaled, nil
	}
	fitted, err := rewrite(p, scaled, func(j, i int, e *plans.Entry) { multiply(e, factors[j][i]) })
	if err != nil || fitted.CCTUS >= scaled.CCTUS-plans.Tolerance(fitted.CCTUS, scaled.CCTUS) {
		return scaled, nil // rounding: the proportional division is feasible
	}
	return fitted, nil
}

// fit is the linear program of a pattern. Columns: D_i is i, then x_v. Times are in units of
// the completion time of the proportional division, so that values are of the order of one.
type fit struct {
	*graph
	unit float64
	lp   lp.Program
	row  struct {
		cols []int32
		coef []float64
	}
	shares []share
}

// share is a row of conservation: the flows of a step that the same transmits carry, each
// the same part of them.
type share struct {
	step  int
	nodes []int
	part  []float64 // of the step's bytes that the node carries at the plan's division
}

// solve returns, by plane and entry, the factor for the bytes of the plan; nil
// if the program is too large or has not closed.
func (f *fit) solve() [][]float64 {
	columns := len(f.steps)
	for k := range f.nodes {
		if f.nodes[k].wire > 0 {
			f.nodes[k].column = columns
			columns++
		}
	}
	if columns == len(f.steps) || columns > maxFitColumns {
		return nil
	}
	cost := make([]float64, columns)
	for i := range f.steps {
		cost[i] = 1
	}
	f.lp.Lazy = true
	f.lp.Reset(cost)
	f.conserve()
	for k := range f.nodes {
		if n := &f.nodes[k]; n.column >= 0 {
			f.begin()
			f.term(n.step, 1)
			f.term(n.column, -1)
			f.atLeast(n.fixed / f.unit)
		}
	}
	for range maxFitRounds {
		status := lp.GaveUp
		for status == lp.GaveUp && f.lp.Work() < maxFitWork {
			_, status = f.lp.Solve(math.Inf(1), fitPivots)
		}
		if status != lp.Optimal {
			return nil
		}
		if !f.separate() {
			return f.factors()
		}
	}
	return nil
}

func (f *fit) begin() { f.row.cols, f.row.coef = f.row.cols[:0], f.row.coef[:0] }

func (f *fit) term(column int, coef float64) {
	f.row.cols, f.row.coef = append(f.row.cols, int32(column)), append(f.row.coef, coef)
}

func (f *fit) atLeast(rhs float64) { f.lp.Add(f.row.cols, f.row.coef, rhs) }

// conserve adds the rows of conservation. Flows that the same transmits carry in the same
// parts share one.
func (f *fit) conserve() {
	for i, step := range f.steps {
		seen := map[string]bool{}
		for _, s := range f.sharesOf(i, step) {
			key := ""
			for c := range s.nodes {
				key += strconv.Itoa(s.nodes[c]) + ":" + strconv.FormatFloat(s.part[c], 'g', 12, 64) + " "
			}
			if seen[key] || len(s.nodes) == 0 {
				continue
			}
			seen[key] = true
			f.shares = append(f.shares, s)
			f.begin()
			for c, k := range s.nodes {
				n := &f.nodes[k]
				f.term(n.column, s.part[c]*f.unit/n.wire)
			}
			f.atLeast(1)
		}
	}
}

// sharesOf returns the row of every flow of step i, which is the problem's step; one for all
// where no transmit tells flows apart.
func (f *fit) sharesOf(i, step int) []share {
	bytes := f.p.Steps[step].Bytes
	all := share{step: i}
	var each flowShares
	for k := range f.nodes {
		n := &f.nodes[k]
		if n.step != i || n.column < 0 {
			continue
		}
		for _, m := range n.at {
			e := &f.plan.Planes[m[0]][m[1]]
			for r := range e.Routes {
				each.addFlow(&f.p.Steps[step], e.Routes[r].Flow, k, e.Routes[r].Bytes/bytes)
			}
			for _, flow := range e.Flows {
				each.add(flow, k, e.Bytes/bytes)
			}
			if e.Joint == "" && e.Flows == nil {
				all.nodes, all.part = append(all.nodes, k), append(all.part, e.Bytes/bytes)
			}
		}
	}
	if each.of == nil {
		return []share{all}
	}
	rows := make([]share, len(f.p.Steps[step].FlowList()))
	for flow := range rows {
		own := each.of[flow]
		rows[flow] = share{step: i, nodes: slices.Concat(all.nodes, own.nodes), part: slices.Concat(all.part, own.part)}
	}
	return rows
}

// flowShares gathers the shares of single flows of one step.
type flowShares struct {
	of    map[int]share
	index map[[2]int]int // of the step's flows; made for routes only
}

func (s *flowShares) add(flow, node int, part float64) {
	if s.of == nil {
		s.of = map[int]share{}
	}
	sh := s.of[flow]
	if c := len(sh.nodes) - 1; c >= 0 && sh.nodes[c] == node {
		sh.part[c] += part // another route of the same joint transmit
	} else {
		sh.nodes, sh.part = append(sh.nodes, node), append(sh.part, part)
	}
	s.of[flow] = sh
}

func (s *flowShares) addFlow(step *plans.Step, flow [2]int, node int, part float64) {
	if s.index == nil {
		s.index = map[[2]int]int{}
		for k, f := range step.FlowList() {
			s.index[f] = k
		}
	}
	s.add(s.index[flow], node, part)
}

// separate adds the chains that do not fit at the present values, the worst per step, and
// reports whether there were any.
func (f *fit) separate() bool {
	const slack = 1e-8
	begin := make([]float64, len(f.steps)+1) // of the steps
	for i := range f.steps {
		begin[i+1] = begin[i] + f.lp.Value(i)
	}
	end := make([]float64, len(f.nodes))
	from := make([]int, len(f.nodes)) // node that decides when this begins; -1: its step
	worst := slices.Repeat([]int{-1}, len(f.steps))
	for k := range f.nodes {
		n := &f.nodes[k]
		start, by := 0.0, -1
		if n.step >= 0 {
			start = begin[n.step]
		}
		for _, b := range n.before {
			if end[b] > start {
				start, by = end[b], b
			}
		}
		from[k], end[k] = by, start+n.fixed/f.unit
		if n.column < 0 {
			continue
		}
		end[k] += f.lp.Value(n.column)
		late := end[k] - begin[n.step+1]
		if w := worst[n.step]; late > slack && (w < 0 || end[k] > end[w]) {
			worst[n.step] = k
		}
	}
	found := false
	for i, k := range worst {
		if k >= 0 {
			f.chain(i, k, from)
			found = true
		}
	}
	return found
}

// chain adds the row of the chain that ends with node k of step i.
func (f *fit) chain(i, k int, from []int) {
	f.begin()
	fixed, first := 0.0, 0
	for at := k; at >= 0; at = from[at] {
		n := &f.nodes[at]
		fixed += n.fixed
		if n.column >= 0 {
			f.term(n.column, -1)
		}
		if from[at] < 0 && n.step >= 0 {
			first = n.step
		}
	}
	for d := first; d <= i; d++ {
		f.term(d, 1)
	}
	f.atLeast(fixed / f.unit)
}

// factors turns the solution into multiples of the plan's bytes, such that no flow is short.
func (f *fit) factors() [][]float64 {
	multiple := make([]float64, len(f.nodes))
	for k := range f.nodes {
		if n := &f.nodes[k]; n.column >= 0 {
			multiple[k] = f.lp.Value(n.column) * f.unit / n.wire
		}
	}
	for _, s := range f.shares {
		for c, k := range s.nodes {
			if multiple[k]*s.part[c] < dust {
				multiple[k] = 0
			}
		}
	}
	scale := make([]float64, len(f.steps))
	for _, s := range f.shares {
		carried := 0.0
		for c, k := range s.nodes {
			carried += multiple[k] * s.part[c]
		}
		if carried <= 0 {
			return nil
		}
		scale[s.step] = math.Max(scale[s.step], 1/carried)
	}
	out := make([][]float64, len(f.plan.Planes))
	for j := range out {
		out[j] = make([]float64, len(f.plan.Planes[j]))
	}
	for k := range f.nodes {
		if n := &f.nodes[k]; n.column >= 0 {
			for _, m := range n.at {
				out[m[0]][m[1]] = multiple[k] * scale[n.step]
			}
		}
	}
	return out
}
