package milp

import (
	"math"
	"math/rand/v2"

	"lightpath/plans/delta/dag"
	"lightpath/plans/internal/lp"
)

// tiny is a graph of few transfers on three pods, with work before the first and after the
// last, and with GPUs that transfers share. Transfers are tasks 1 to n.
func tiny(rng *rand.Rand, n int) *dag.Graph {
	g := &dag.Graph{Gbps: 8, // 1000 bytes/us
		Pods: []dag.Pod{{Name: "a", Ports: 4}, {Name: "b", Ports: 4}, {Name: "c", Ports: 4}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}, {Pods: [2]int{1, 2}, Ports: [2]int{1, 1}},
			{Pods: [2]int{2, 0}, Ports: [2]int{1, 1}}},
	}
	g.Tasks = append(g.Tasks, dag.Task{Name: "load", Duration: float64(rng.IntN(3))})
	for i := range n {
		from := rng.IntN(3)
		t := dag.Task{Name: "t" + string(rune('0'+i)), From: from, To: (from + 1 + rng.IntN(2)) % 3, Flows: 1 + rng.IntN(3),
			Bytes: float64(1+rng.IntN(8)) * 1000}
		if rng.IntN(4) > 0 { // GPUs 0, 1, 2 of each pod
			for f := range t.Flows {
				t.Src, t.Dst = append(t.Src, 10*t.From+f), append(t.Dst, 10*t.To+f)
			}
		}
		g.Tasks = append(g.Tasks, t)
		if rng.IntN(2) == 0 {
			g.Deps = append(g.Deps, dag.Dep{From: 0, To: i + 1, Delay: float64(rng.IntN(2))})
		}
		if i > 0 && rng.IntN(2) == 0 {
			g.Deps = append(g.Deps, dag.Dep{From: 1 + rng.IntN(i), To: i + 1, Delay: float64(rng.IntN(3))})
		}
	}
	g.Tasks = append(g.Tasks, dag.Task{Name: "step", Duration: float64(rng.IntN(3))})
	g.Deps = append(g.Deps, dag.Dep{From: 1 + rng.IntN(n), To: n + 1})
	return g
}

// serial is the schedule of one task after the other on one circuit a link, each at its full
// rate there.
func serial(g *dag.Graph) *dag.Schedule {
	s := &dag.Schedule{Circuits: make(dag.Circuits, len(g.Links)), Spans: make([]dag.Span, len(g.Tasks))}
	for l := range s.Circuits {
		s.Circuits[l] = 1
	}
	now := 0.0
	for i := range g.Tasks {
		t := &g.Tasks[i]
		for _, d := range g.Deps {
			if d.To == i {
				now = math.Max(now, s.Spans[d.From].End+d.Delay)
			}
		}
		took := t.Duration
		if t.Transfer() {
			took = t.Bytes / (g.Gbps * dag.BytesPerUSPerGbps)
			s.Spans[i].Segments = []dag.Segment{{Start: now, End: now + took, Bytes: t.Bytes}}
		}
		s.Spans[i].Start, s.Spans[i].End = now, now+took
		now += took
	}
	s.Makespan = now
	return s
}

// oracle finds the least makespan of a tiny graph. It tries every topology and every order of starts and ends, each by
// a linear program that is stated without the model's code.
type oracle struct {
	g       *dag.Graph
	n       int
	fair    bool
	c       dag.Circuits
	order   []int // events: 2m is the start of transfer m+1, 2m+1 its end
	program lp.Program
	best    float64
}

func optimum(g *dag.Graph, fair bool, fixed dag.Circuits) float64 {
	o := &oracle{g: g, n: len(g.Tasks) - 2, fair: fair, best: math.Inf(1)}
	if fixed != nil {
		o.c = fixed
		o.orders()
		return o.best
	}
	for a := 1; a <= 3; a++ {
		for b := 1; b <= 3; b++ {
			for c := 1; c <= 3; c++ {
				if o.c = (dag.Circuits{a, b, c}); g.CheckCircuits(o.c) == nil {
					o.orders()
				}
			}
		}
	}
	return o.best
}

func (o *oracle) orders() {
	if len(o.order) == 2*o.n {
		o.solve()
		return
	}
	seen := make([]bool, 2*o.n)
	for _, e := range o.order {
		seen[e] = true
	}
next:
	for e := range 2 * o.n {
		if seen[e] || e%2 == 1 && !seen[e-1] {
			continue
		}
		if e%2 == 0 {
			for _, d := range o.g.Deps {
				if d.To == e/2+1 && d.From > 0 && !seen[2*(d.From-1)+1] {
					continue next
				}
			}
		}
		o.order = append(o.order, e)
		o.orders()
		o.order = o.order[:len(o.order)-1]
	}
}

// solve states the program. Variable k < 2n is the time before event k since the one before it. Then come volumes of
// transfers in those intervals, in us of one circuit, then the makespan.
func (o *oracle) solve() {
	events := 2 * o.n
	volume := func(m, k int) int32 { return int32(events + m*events + k) }
	makespan := int32(events + o.n*events)
	cost := make([]float64, makespan+1)
	cost[makespan] = 1
	p := &o.program
	p.Reset(cost)
	at := make([]int, events)
	for k, e := range o.order {
		at[e] = k
	}
	// later: the sum of intervals from+1..to, or from the beginning, is at least rhs.
	later := func(from, to int, sign float64, rhs float64, extra ...int32) {
		var cols []int32
		var coef []float64
		for k := from + 1; k <= to; k++ {
			cols, coef = append(cols, int32(k)), append(coef, sign)
		}
		for _, c := range extra {
			cols, coef = append(cols, c), append(coef, 1)
		}
		p.Add(cols, coef, rhs)
	}
	load := o.g.Tasks[0].Duration
	for _, d := range o.g.Deps {
		switch last := o.n + 1; {
		case d.From == 0:
			later(-1, at[2*(d.To-1)], 1, load+d.Delay)
		case d.To == last:
			later(-1, at[2*(d.From-1)+1], -1, d.Delay+o.g.Tasks[last].Duration, makespan)
		default:
			later(at[2*(d.From-1)+1], at[2*(d.To-1)], 1, d.Delay)
		}
	}
	p.Add([]int32{makespan}, []float64{1}, load)
	for m := range o.n {
		later(-1, at[2*m+1], -1, 0, makespan)
		var cols []int32
		var coef []float64
		for k := at[2*m] + 1; k <= at[2*m+1]; k++ {
			cols, coef = append(cols, volume(m, k)), append(coef, 1)
		}
		p.Add(cols, coef, o.g.Tasks[m+1].Bytes/(o.g.Gbps*dag.BytesPerUSPerGbps))
	}
	o.rates(at, volume)
	switch value, status := p.Solve(o.best, 10000); status {
	case lp.Optimal:
		o.best = min(o.best, value)
	case lp.GaveUp:
		panic("oracle: out of pivots")
	case lp.Cutoff, lp.Infeasible:
	}
}

// rates adds what limits volumes in each interval: circuits, NICs, and equal shares.
func (o *oracle) rates(at []int, volume func(m, k int) int32) {
	for k := range at {
		links := make(map[[2]int][]int)
		nics := make(map[[2]int][]int)
		for m := range o.n {
			if t := &o.g.Tasks[m+1]; at[2*m] < k && k <= at[2*m+1] {
				links[[2]int{t.From, t.To}] = append(links[[2]int{t.From, t.To}], m)
				for side, gpus := range [][]int{t.Src, t.Dst} {
					for _, gpu := range gpus {
						nics[[2]int{side, gpu}] = append(nics[[2]int{side, gpu}], m)
					}
				}
				nics[[2]int{-1, m}] = []int{m}
			}
		}
		bound := func(tasks []int, each func(m int) float64, capacity float64) {
			cols, coef := []int32{int32(k)}, []float64{capacity}
			for _, m := range tasks {
				cols, coef = append(cols, volume(m, k)), append(coef, -each(m))
			}
			o.program.Add(cols, coef, 0)
		}
		flows := func(m int) float64 { return float64(o.g.Tasks[m+1].Flows) }
		for pods, tasks := range links {
			for l, link := range o.g.Links {
				if link.Pods == pods || link.Pods == [2]int{pods[1], pods[0]} {
					bound(tasks, func(int) float64 { return 1 }, float64(o.c[l]))
				}
			}
			for _, m := range tasks[1:] {
				if o.fair {
					a, b := volume(tasks[0], k), volume(m, k)
					o.program.Add([]int32{a, b}, []float64{1 / flows(tasks[0]), -1 / flows(m)}, 0)
					o.program.Add([]int32{a, b}, []float64{-1 / flows(tasks[0]), 1 / flows(m)}, 0)
				}
			}
		}
		for _, tasks := range nics {
			bound(tasks, func(m int) float64 { return 1 / flows(m) }, 1)
		}
	}
}
