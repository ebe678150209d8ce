package delta

import (
	"cmp"
	"context"
	"slices"

	"lightpath/plans/delta/dag"
)

// bounds returns, by link, the number of useful circuits for a topology whose makespan is at most limit
// (microseconds). It is the number of flows that can be in flight at once in one direction of the link
// (DELTA, Alg. 2). Once the context has ended, bounds use time windows only.
//
// A transfer can be in flight only between its earliest start and its latest end, by longest paths. It is
// never in flight together with its successors. So transfers in flight at once are an antichain of the
// partial order, and their windows have a common moment. The bound is the heaviest such antichain, weighed by
// flows. The paper uses an independent set of a conflict graph. On a partial order that is a minimum flow
// (antichain.go).
func bounds(ctx context.Context, g *dag.Graph, limit float64) []int {
	b := &bounder{ctx: ctx, g: g, begin: g.Heads(g.LeastTime), end: g.Tails(g.LeastTime)}
	for i := range b.end {
		b.end[i] = (limit - b.end[i]) * (1 + equalTimes)
	}
	byWay := make([][]int, 2*len(g.Links))
	for i, l := range g.LinkOf() {
		if l >= 0 && g.Tasks[i].Bytes > 0 {
			byWay[l] = append(byWay[l], i)
		}
	}
	b.order = newPrecedence(g)
	bounds := make([]int, len(g.Links))
	for l := range bounds {
		bounds[l] = max(1, b.most(byWay[2*l]), b.most(byWay[2*l+1]))
	}
	return bounds
}

type bounder struct {
	ctx        context.Context
	g          *dag.Graph
	begin, end []float64 // windows
	order      *precedence
}

// most returns the largest number of flows of the given transfers that can be in flight at once.
func (b *bounder) most(tasks []int) int {
	type event struct {
		at    float64
		enter bool
		task  int
	}
	events := make([]event, 0, 2*len(tasks))
	for _, i := range tasks {
		events = append(events, event{b.begin[i], true, i}, event{max(b.begin[i], b.end[i]), false, i})
	}
	slices.SortFunc(events, func(x, y event) int {
		switch {
		case x.at != y.at:
			return cmp.Compare(x.at, y.at)
		case x.enter != y.enter: // windows are closed: who enters meets who leaves
			if x.enter {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.task, y.task)
	})
	most, grown := 0, false
	var open []int
	for _, e := range events {
		if e.enter {
			open, grown = append(open, e.task), true
			continue
		}
		if grown { // the set was the largest for now
			most, grown = max(most, b.heaviest(open, most)), false
		}
		open = slices.DeleteFunc(open, func(i int) bool { return i == e.task })
	}
	return most
}

// heaviest returns the weight of the heaviest antichain among open, unless this cannot exceed known.
func (b *bounder) heaviest(open []int, known int) int {
	weights, sum := make([]int, len(open)), 0
	for k, i := range open {
		weights[k] = b.g.Tasks[i].Flows
		sum += weights[k]
	}
	if sum <= known || b.order == nil || b.ctx.Err() != nil {
		return sum
	}
	return heaviestAntichain(weights, func(x, y int) bool { return b.order.before(open[x], open[y]) })
}

// precedence records which transfers end before which others start: a bit set of successors by task.
type precedence struct {
	column []int32 // by task: its bit
	words  int
	after  []uint64
}

// maxPrecedence bounds the memory of the bit sets, in words. For larger graphs, bounds use time windows only.
const maxPrecedence = 1 << 25

func newPrecedence(g *dag.Graph) *precedence {
	p := &precedence{column: make([]int32, len(g.Tasks))}
	n := 0
	for i := range g.Tasks {
		p.column[i] = -1
		if g.Tasks[i].Transfer() {
			p.column[i] = int32(n)
			n++
		}
	}
	p.words = (n + 63) / 64
	if p.words*len(g.Tasks) > maxPrecedence {
		return nil
	}
	p.after = make([]uint64, p.words*len(g.Tasks))
	order, _ := g.Order()
	succ := g.Successors()
	for _, i := range slices.Backward(order) {
		mine := p.row(i)
		for _, d := range succ.Of(i) {
			to := g.Deps[d].To
			for w, bits := range p.row(to) {
				mine[w] |= bits
			}
			if c := p.column[to]; c >= 0 {
				mine[c/64] |= 1 << (c % 64)
			}
		}
	}
	return p
}

func (p *precedence) row(i int) []uint64 { return p.after[i*p.words : (i+1)*p.words] }

// before reports whether transfer y cannot start until transfer x has ended.
func (p *precedence) before(x, y int) bool {
	c := p.column[y]
	return p.row(x)[c/64]>>(c%64)&1 != 0
}
