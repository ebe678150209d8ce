package sim

import (
	"slices"

	"lightpath/plans/delta/dag"
)

// Network is a graph prepared for many runs. It is immutable and safe for concurrent use.
type Network struct {
	g *dag.Graph

	succ   []edge // by task, from begin[i] to begin[i+1]
	begin  []int32
	degree []int32 // how many dependencies end at each task

	pred      []edge // by task, from predBegin[i] to predBegin[i+1]; to is where the edge comes from
	predBegin []int32

	duration []float64 // of work
	perFlow  []float64 // bytes that each flow of a transfer carries
	flows    []float64 // 0 for work
	link     []int32   // directed link of a transfer, -1 for work

	nics   [][]int32 // by task: classes of NIC ends that it uses
	ends   int       // number of classes
	perNIC float64   // bytes per microsecond of a NIC, and of a circuit
}

type edge struct {
	to    int32
	delay float64
}

// New prepares a graph.
func New(g *dag.Graph) (*Network, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	n := len(g.Tasks)
	w := &Network{
		g:      g,
		degree: make([]int32, n), duration: make([]float64, n), perFlow: make([]float64, n), flows: make([]float64, n),
		link: make([]int32, n), perNIC: g.Gbps * dag.BytesPerUSPerGbps,
	}
	adj := g.Successors()
	w.begin = adj.Begin
	w.succ = make([]edge, len(adj.Deps))
	for k, d := range adj.Deps {
		dep := &g.Deps[d]
		w.succ[k] = edge{to: int32(dep.To), delay: dep.Delay}
		w.degree[dep.To]++
	}
	back := g.Predecessors()
	w.predBegin, w.pred = back.Begin, make([]edge, len(back.Deps))
	for k, d := range back.Deps {
		w.pred[k] = edge{to: int32(g.Deps[d].From), delay: g.Deps[d].Delay}
	}
	for i, l := range g.LinkOf() {
		t := &g.Tasks[i]
		w.link[i] = int32(l)
		w.duration[i] = t.Duration
		if t.Transfer() {
			w.flows[i] = float64(t.Flows)
			w.perFlow[i] = t.Bytes / w.flows[i]
		}
	}
	w.nics, w.ends = nicClasses(g)
	return w, nil
}

// nicClasses groups the ends of NICs (the sending and the receiving side of a GPU) that the
// same transfers use: they have the same load at all times, and one stands for all. A class that
// a single transfer uses limits it to its full rate, which it has anyway, and is left out.
func nicClasses(g *dag.Graph) (of [][]int32, classes int) {
	type end struct {
		gpu  int
		recv bool
	}
	users := make(map[end][]int32)
	var ends []end // in order of appearance: the result must not depend on map order
	for i := range g.Tasks {
		t := &g.Tasks[i]
		for side, gpus := range [][]int{t.Src, t.Dst} {
			for _, gpu := range gpus {
				e := end{gpu, side == 1}
				if users[e] == nil {
					ends = append(ends, e)
				}
				users[e] = append(users[e], int32(i))
			}
		}
	}
	of = make([][]int32, len(g.Tasks))
	known := make(map[uint64][][]int32)
	for _, e := range ends {
		tasks := users[e]
		key := hashTasks(tasks)
		if len(tasks) < 2 || slices.ContainsFunc(known[key], func(k []int32) bool { return slices.Equal(k, tasks) }) {
			continue
		}
		known[key] = append(known[key], tasks)
		for _, i := range tasks {
			of[i] = append(of[i], int32(classes))
		}
		classes++
	}
	return of, classes
}

// hashTasks is FNV-1a over task numbers.
func hashTasks(tasks []int32) uint64 {
	h := uint64(14695981039346656037)
	for _, i := range tasks {
		h = (h ^ uint64(uint32(i))) * 1099511628211
	}
	return h
}
