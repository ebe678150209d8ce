package msccl

import (
	"fmt"

	"lightpath/collectives/schedule"
	"lightpath/internal/heap"
)

// action is the action of a node. A fused step has two nodes: the first receives and the second sends.
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
	forwards         bool         // of rrs: the sum is only sent, not stored
	src, dst         schedule.Ref // on its own GPU
	count            int
	match            int32 // the send or receive of the same message
	prev             int32 // the previous node of its thread block, -1 for none
	// deps are the nodes on which its step depends. Those of a wait also are those of the next node that is no wait.
	deps  []int32
	level int32 // step of the schedule, see [graph.raise]
}

// graph holds the nodes of a file, ordered by GPU, thread block and step.
type graph struct {
	file       *File
	batchSends bool // see [graph.raise]
	nodes      []node
	order      []int32 // all nodes, each after the nodes that it waits for
}

// newGraph connects the nodes of a valid file and orders them. Errors: [ErrFormat] for a send without a receive or a
// receive without a send, [ErrDeadlock].
func newGraph(f *File, batchSends bool) (*graph, error) {
	g := &graph{file: f, batchSends: batchSends}
	first := g.addNodes()
	if err := g.matchMessages(); err != nil {
		return nil, err
	}
	// Dependencies are between steps: a waiting step begins when the other step has ended.
	for i := range g.nodes {
		x := &g.nodes[i]
		st := g.step(x)
		begins := x.do != doSend || !st.Kind.receives()
		if st.DepBlock >= 0 && begins {
			x.deps = append(x.deps, first[x.gpu][st.DepBlock][st.DepStep+1]-1)
		}
	}
	for i := range g.nodes {
		x := &g.nodes[i]
		// A wait before another wait comes before the node in any case.
		for at := x.prev; x.do != doWait && at >= 0 && g.nodes[at].do == doWait; at = g.nodes[at].prev {
			x.deps = append(x.deps, g.nodes[at].deps...)
		}
	}
	return g, g.sort()
}

func (g *graph) step(x *node) *Step {
	return &g.file.GPUs[x.gpu].Blocks[x.block].Steps[x.step]
}

// addNodes creates the nodes and connects those of a thread block. It returns the first node of every GPU, thread block
// and step. Each thread block has one more entry for the end of its last step.
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
				x := node{
					gpu: int32(r), block: int32(t), step: int32(s), src: st.Src, dst: st.Dst, count: st.Count, match: -1,
				}
				switch {
				case st.Kind.local():
					x.do, x.reduce = doLocal, st.Kind.reduces()
				case st.Kind.receives():
					x.do, x.reduce, x.forwards = doRecv, st.Kind.reduces(), st.Kind == RRS
					if st.Kind.sends() {
						g.nodes = append(g.nodes, x)
						x = node{
							gpu: x.gpu, block: x.block, step: x.step, do: doSend, src: st.Dst, count: st.Count, match: -1,
							forwards: x.forwards,
						}
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

// matchMessages connects the k-th send of a connection with its k-th receive.
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
			return fmt.Errorf("%w: %v receives from gpu %d on channel %d, which sends no more",
				ErrFormat, g.name(i), b.Recv, b.Chan)
		}
		other := &g.nodes[waiting[0]]
		if other.count != x.count {
			return fmt.Errorf("%w: %v: cnt: receives %d chunks, but %v sends %d",
				ErrFormat, g.name(i), x.count, g.name(int(waiting[0])), other.count)
		}
		x.match, other.match = waiting[0], int32(i)
		sends[c] = waiting[1:]
	}
	for i := range g.nodes {
		if x := &g.nodes[i]; x.do == doSend && x.match < 0 {
			b := &g.file.GPUs[x.gpu].Blocks[x.block]
			return fmt.Errorf("%w: %v sends to gpu %d on channel %d, which receives no more",
				ErrFormat, g.name(i), b.Send, b.Chan)
		}
	}
	return nil
}

// name returns the position of a node in the file.
func (g *graph) name(i int) string {
	x := &g.nodes[i]
	return fmt.Sprintf("gpu %d tb %d step %d", x.gpu, x.block, x.step)
}

// raise raises the level of a node, given a node that it waits for. The level is the earliest step in which the node
// can run. A send is one step after all nodes that it waits for; another node is in the same step as the last of them.
// A local move that waits for no node has level -1.
//
// A send also waits for the previous node of its thread block, as in a pipeline. With batchSends it does not, and
// consecutive sends of a thread block are one flow.
func (g *graph) raise(x *node, by int32) {
	level := g.nodes[by].level
	if x.do == doSend && (!g.batchSends || by != x.prev) {
		level++
	}
	x.level = max(x.level, level)
}

// sort orders the nodes so that each follows the nodes that it waits for, by level and then by position in the file. A
// receive waits for its send; a send does not wait for a receive.
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
	var ready heap.Heap[runnable]
	push := func(i int32) { ready.Push(runnable{g.nodes[i].level, i}) }
	for i := range g.nodes {
		if waits[i] == 0 {
			push(int32(i))
		}
	}
	for len(ready) > 0 {
		i := ready.Pop().node
		g.order = append(g.order, i)
		for _, j := range next[i] {
			g.raise(&g.nodes[j], i)
			if waits[j]--; waits[j] == 0 {
				push(j)
			}
		}
	}
	if len(g.order) < len(g.nodes) {
		return g.deadlock(waits)
	}
	return nil
}

// deadlock returns an error that names a cycle of waiting nodes. It follows the nodes from any waiting node to one that
// it waits for, until a node repeats.
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

// runnable is a node that can run.
type runnable struct{ level, node int32 }

// Before orders by level, then by position in the file.
func (a runnable) Before(b runnable) bool {
	return a.level < b.level || a.level == b.level && a.node < b.node
}
