package dag

import "slices"

// Reduced is a smaller graph that takes the same times on every topology as the graph that was reduced.
type Reduced struct {
	*Graph
	// Origin is, by task, its index in the graph that was reduced; -1 for the virtual tasks at the begin and the end.
	Origin []int
}

// Reduce removes work whose time no topology changes. The result has delays between transfers, a virtual task
// before all others, and one after all others. It also has junctions: work of no duration, kept if the delays
// around it would be more than the edges at it. On any circuits, the ends of transfers and the makespan are
// those of g. g must be valid.
//
// Reduce eliminates work if the edges through it are not more than the edges at it. It drops an edge if
// another way through one task is never shorter.
func Reduce(g *Graph) *Reduced {
	r := newReducer(g)
	r.eliminate()
	for range pruneRounds {
		if r.prune() == 0 {
			break
		}
		r.eliminate()
	}
	return r.result()
}

// pruneRounds bounds how often dropped edges may make room for further elimination.
const pruneRounds = 8

type arc struct {
	node  int32
	delay float64
}

// reducer is the graph while it shrinks: n tasks, then begin, then end. Durations of work are in
// the delays of the edges that leave it.
type reducer struct {
	g          *Graph
	in, out    [][]arc
	begin, end int32
	gone       []bool
	least      []float64 // of transfers; 0 for work
}

func newReducer(g *Graph) *reducer {
	n := len(g.Tasks)
	r := &reducer{
		g: g, begin: int32(n), end: int32(n + 1),
		in: make([][]arc, n+2), out: make([][]arc, n+2), gone: make([]bool, n+2), least: make([]float64, n+2),
	}
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.Transfer() {
			r.least[i] = g.LeastTime(t)
		}
	}
	for _, d := range g.Deps {
		r.join(int32(d.From), int32(d.To), g.Tasks[d.From].Duration+d.Delay)
	}
	for i := range int32(n) {
		if len(r.in[i]) == 0 {
			r.join(r.begin, i, 0)
		}
		if len(r.out[i]) == 0 {
			r.join(i, r.end, g.Tasks[i].Duration)
		}
	}
	return r
}

// join adds an edge, or raises the delay of the existing one.
func (r *reducer) join(from, to int32, delay float64) {
	if k := slices.IndexFunc(r.out[from], func(a arc) bool { return a.node == to }); k >= 0 {
		if delay <= r.out[from][k].delay {
			return
		}
		r.out[from][k].delay = delay
		k = slices.IndexFunc(r.in[to], func(a arc) bool { return a.node == from })
		r.in[to][k].delay = delay
		return
	}
	r.out[from] = append(r.out[from], arc{to, delay})
	r.in[to] = append(r.in[to], arc{from, delay})
}

func (r *reducer) cut(from, to int32) {
	r.out[from] = slices.DeleteFunc(r.out[from], func(a arc) bool { return a.node == to })
	r.in[to] = slices.DeleteFunc(r.in[to], func(a arc) bool { return a.node == from })
}

// eliminate removes work as long as no edges are added.
func (r *reducer) eliminate() {
	queue := make([]int32, 0, len(r.g.Tasks))
	for i := range r.g.Tasks {
		queue = append(queue, int32(i))
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		in, out := len(r.in[i]), len(r.out[i])
		if r.gone[i] || r.g.Tasks[i].Transfer() || in*out > in+out {
			continue
		}
		r.gone[i] = true
		before, after := slices.Clone(r.in[i]), slices.Clone(r.out[i])
		for _, a := range before {
			r.cut(a.node, i)
		}
		for _, z := range after {
			r.cut(i, z.node)
		}
		for _, a := range before {
			for _, z := range after {
				r.join(a.node, z.node, a.delay+z.delay)
			}
		}
		for _, list := range [][]arc{before, after} {
			for _, e := range list {
				if e.node < r.begin {
					queue = append(queue, e.node)
				}
			}
		}
	}
}

// prune drops edges if there is another way, through one task, that is never shorter.
func (r *reducer) prune() int {
	cut := 0
	direct := make([]float64, len(r.out)) // by node: delay of the edge from the node at hand
	for i := range r.out {
		direct[i] = -1
	}
	for i := range r.out {
		for _, e := range r.out[i] {
			direct[e.node] = e.delay
		}
		for _, e := range slices.Clone(r.out[i]) {
			for _, f := range r.out[e.node] {
				if d := direct[f.node]; d >= 0 && e.delay+r.least[e.node]+f.delay >= d {
					r.cut(int32(i), f.node)
					direct[f.node] = -1
					cut++
				}
			}
		}
		for _, e := range r.out[i] {
			direct[e.node] = -1
		}
	}
	return cut
}

func (r *reducer) result() *Reduced {
	g := &Graph{Name: r.g.Name, Gbps: r.g.Gbps, Pods: r.g.Pods, Links: r.g.Links}
	out := &Reduced{Graph: g}
	place := make([]int, len(r.gone))
	add := func(node int32, t Task, origin int) {
		place[node] = len(g.Tasks)
		g.Tasks = append(g.Tasks, t)
		out.Origin = append(out.Origin, origin)
	}
	add(r.begin, Task{Name: "begin", Kind: "begin"}, -1)
	for i := range r.g.Tasks {
		if r.gone[i] {
			continue
		}
		t := r.g.Tasks[i]
		if !t.Transfer() {
			t.Kind, t.Duration = "junction", 0
		}
		add(int32(i), t, i)
	}
	add(r.end, Task{Name: "end", Kind: "end"}, -1)
	for i := range r.out {
		for _, e := range r.out[i] {
			g.Deps = append(g.Deps, Dep{From: place[i], To: place[e.node], Delay: e.delay})
		}
	}
	return out
}
