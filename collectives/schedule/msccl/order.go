package msccl

import (
	"container/heap"
	"fmt"

	"lightpath/collectives/schedule"
)

// action is what a node does. A fused step is two nodes: it receives, then it sends.
type action uint8

const (
	doWait action = iota
	doSend
	doRecv // or receive and reduce
	doLocal
)

// node is an operation of one GPU.
type node struct {
	gpu, block, step int32
	do               action
	reduce           bool
	passing          bool         // of rrs: the receiving half keeps its sum for the sending one only
	src, dst         schedule.Ref // of what it reads and writes on its own GPU
	count            int
	match            int32   // the other end of a message
	prev             int32   // the one before in its thread block, -1 for none
	deps             []int32 // what its step depends on, and the waits before it
	level            int32   // the step of the schedule that it belongs to, see [graph.raise]
}

// graph is the nodes of a file, each GPU's in the order of thread blocks and steps.
type graph struct {
	file   *File
	inARow bool // see [graph.raise]
	nodes  []node
	order  []int32 // all nodes, each after those that it waits for
}

// newGraph connects the operations of a valid file and puts them in an order in which they can
// run. Errors: [ErrFormat] for messages without another end, [ErrDeadlock].
func newGraph(f *File, inARow bool) (*graph, error) {
	g := &graph{file: f, inARow: inARow}
	first := g.addNodes()
	if err := g.matchMessages(); err != nil {
		return nil, err
	}
	// Dependencies are stated between steps: the waiting step begins when the other has ended.
	for i := range g.nodes {
		x := &g.nodes[i]
		st := g.step(x)
		begins := x.do != doSend || !st.Kind.receives()
		if st.DepBlock >= 0 && begins {
			x.deps = append(x.deps, first[x.gpu][st.DepBlock][st.DepStep+1]-1)
		}
		if x.prev >= 0 && g.nodes[x.prev].do == doWait {
			x.deps = append(x.deps, g.nodes[x.prev].deps...)
		}
	}
	return g, g.sort()
}

func (g *graph) step(x *node) *Step {
	return &g.file.GPUs[x.gpu].Blocks[x.block].Steps[x.step]
}

// addNodes makes the nodes and chains those of a thread block. It returns the first node of
// every (GPU, thread block, step), with one more per thread block for the end of the last.
func (g *graph) addNodes() [][][]int32 {
	first := make([][][]int32, len(g.file.GPUs))
	for r := range g.file.GPUs {
		blocks := g.file.GPUs[r].Blocks
		first[r] = make([][]int32, len(blocks))
		for t := range blocks {
			begin := len(g.nodes)
			for s := range blocks[t].Steps {
				first[r][t] = append(first[r][t], int32(len(g.nodes)))
				st := &blocks[t].Steps[s]
				x := node{gpu: int32(r), block: int32(t), step: int32(s), src: st.Src, dst: st.Dst, count: st.Count, match: -1}
				switch {
				case st.Kind.local():
					x.do, x.reduce = doLocal, st.Kind.reduces()
				case st.Kind.receives():
					x.do, x.reduce, x.passing = doRecv, st.Kind.reduces(), st.Kind == RRS
					if st.Kind.sends() {
						g.nodes = append(g.nodes, x)
						x = node{gpu: x.gpu, block: x.block, step: x.step, do: doSend, src: st.Dst, count: st.Count, match: -1, passing: x.passing}
					}
				case st.Kind.sends():
					x.do = doSend
				}
				g.nodes = append(g.nodes, x)
			}
			first[r][t] = append(first[r][t], int32(len(g.nodes)))
			for i := begin; i < len(g.nodes); i++ {
				g.nodes[i].prev = int32(i - 1)
			}
			if begin < len(g.nodes) {
				g.nodes[begin].prev = -1
			}
		}
	}
	return first
}

// matchMessages joins the two ends of every message: the k-th send of a connection is the k-th
// receive.
func (g *graph) matchMessages() error {
	type connection struct{ src, dst, channel int }
	sends := map[connection][]int32{}
	for i := range g.nodes {
		x := &g.nodes[i]
		if b := &g.file.GPUs[x.gpu].Blocks[x.block]; x.do == doSend {
			c := connection{int(x.gpu), b.Send, b.Chan}
			sends[c] = append(sends[c], int32(i))
		}
	}
	for i := range g.nodes {
		x := &g.nodes[i]
		if x.do != doRecv {
			continue
		}
		b := &g.file.GPUs[x.gpu].Blocks[x.block]
		c := connection{b.Recv, int(x.gpu), b.Chan}
		waiting := sends[c]
		if len(waiting) == 0 {
			return fmt.Errorf("%w: %v receives from gpu %d on channel %d what that never sends", ErrFormat, g.name(i), b.Recv, b.Chan)
		}
		other := &g.nodes[waiting[0]]
		if other.count != x.count {
			return fmt.Errorf("%w: %v: cnt: receives %d chunks, but %v sends %d", ErrFormat, g.name(i), x.count, g.name(int(waiting[0])), other.count)
		}
		x.match, other.match = waiting[0], int32(i)
		sends[c] = waiting[1:]
	}
	for i := range g.nodes {
		if x := &g.nodes[i]; x.do == doSend && x.match < 0 {
			b := &g.file.GPUs[x.gpu].Blocks[x.block]
			return fmt.Errorf("%w: %v sends to gpu %d on channel %d what that never receives", ErrFormat, g.name(i), b.Send, b.Chan)
		}
	}
	return nil
}

// name says where a node is in the file.
func (g *graph) name(i int) string {
	x := &g.nodes[i]
	return fmt.Sprintf("gpu %d tb %d step %d", x.gpu, x.block, x.step)
}

// raise lifts the level of a node to what one that it waits for demands. The level is the step in
// which it can run at the earliest: a send comes a step after all that it waits for, anything else
// in the step of the last that it waits for. Local work that waits for nothing is at level -1.
//
// What follows in a thread block without depending on what was before waits too, as in a pipeline
// where a chunk follows another. With inARow it does not: then what a thread block sends in a row is
// one flow.
func (g *graph) raise(x *node, by int32) {
	level := g.nodes[by].level
	if x.do == doSend && (!g.inARow || by != x.prev) {
		level++
	}
	x.level = max(x.level, level)
}

// sort orders the nodes so that each follows what it waits for, by level and then by place in
// the file. A receive waits for its send, a send for no receive.
func (g *graph) sort() error {
	waits := make([]int32, len(g.nodes))
	next := make([][]int32, len(g.nodes))
	edge := func(from int32, to int) {
		next[from] = append(next[from], int32(to))
		waits[to]++
	}
	for i := range g.nodes {
		x := &g.nodes[i]
		if x.prev >= 0 {
			edge(x.prev, i)
		}
		for _, j := range x.deps {
			edge(j, i)
		}
		x.level = -1
		switch x.do {
		case doRecv:
			edge(x.match, i)
		case doSend:
			x.level = 0
		}
	}
	ready := &queue{g: g}
	for i := range g.nodes {
		if waits[i] == 0 {
			ready.push(int32(i))
		}
	}
	for ready.Len() > 0 {
		i := heap.Pop(ready).(int32)
		g.order = append(g.order, i)
		for _, j := range next[i] {
			g.raise(&g.nodes[j], i)
			if waits[j]--; waits[j] == 0 {
				ready.push(j)
			}
		}
	}
	if len(g.order) < len(g.nodes) {
		return g.deadlock(waits)
	}
	return nil
}

// deadlock names a circle among the nodes that still wait: following anything that a node
// waits for must come back to where it was.
func (g *graph) deadlock(waits []int32) error {
	at := 0
	for waits[at] == 0 {
		at++
	}
	blocker := func(i int) int {
		x := &g.nodes[i]
		for _, j := range x.deps {
			if waits[j] > 0 {
				return int(j)
			}
		}
		if x.prev >= 0 && waits[x.prev] > 0 {
			return int(x.prev)
		}
		return int(x.match)
	}
	seen := make([]bool, len(g.nodes))
	for !seen[at] {
		seen[at] = true
		at = blocker(at)
	}
	text := g.name(at)
	for i, n := blocker(at), 0; ; i, n = blocker(i), n+1 {
		if n == 4 && i != at {
			text += " which waits for ..."
			break
		}
		if i == at {
			text += ", which waits for the first"
			break
		}
		if g.name(i) != g.name(at) {
			text += ", which waits for " + g.name(i)
		}
	}
	return fmt.Errorf("%w: %s", ErrDeadlock, text)
}

// queue is a heap of nodes that can run.
type queue struct {
	g     *graph
	items []int32
}

func (q *queue) push(i int32) { heap.Push(q, i) }

// Len implements heap.Interface, as do the methods below.
func (q *queue) Len() int { return len(q.items) }

// Less orders by level, then by place in the file.
func (q *queue) Less(a, b int) bool {
	x, y := q.items[a], q.items[b]
	if l, m := q.g.nodes[x].level, q.g.nodes[y].level; l != m {
		return l < m
	}
	return x < y
}

// Swap implements heap.Interface.
func (q *queue) Swap(a, b int) { q.items[a], q.items[b] = q.items[b], q.items[a] }

// Push implements heap.Interface.
func (q *queue) Push(x any) { q.items = append(q.items, x.(int32)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(q.items) - 1
	x := q.items[last]
	q.items = q.items[:last]
	return x
}
