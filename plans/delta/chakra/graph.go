package chakra

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lightpath/plans/delta/dag"
)

// Options place the ranks in pods and give the rates.
type Options struct {
	Name       string
	GPUsPerPod int     // even; ranks fill pods in order
	Gbps       float64 // of a NIC, and of a circuit
	ScaleUpGBs float64 // GB/s per GPU and direction within a pod
	// Warn, unless nil, is called for every rank whose trace has control dependencies that cannot be met, and are
	// left out: see [Trace.dependencies].
	Warn func(text string)
}

// Graph makes the graph of the traces of ranks 0, 1, ... Errors wrap [ErrTrace], naming rank and
// node, or [dag.ErrGraph].
func Graph(traces []*Trace, o Options) (*dag.Graph, error) {
	switch {
	case o.GPUsPerPod < 2 || o.GPUsPerPod%2 != 0:
		return nil, fmt.Errorf("%w: gpus per pod: %d is not even and positive", ErrTrace, o.GPUsPerPod)
	case !(o.Gbps > 0) || !(o.ScaleUpGBs > 0) || math.IsInf(o.Gbps+o.ScaleUpGBs, 0):
		return nil, fmt.Errorf("%w: rates %v Gb/s, %v GB/s are not positive", ErrTrace, o.Gbps, o.ScaleUpGBs)
	case len(traces) == 0:
		return nil, fmt.Errorf("%w: no ranks", ErrTrace)
	}
	b := &builder{traces: traces, o: o, g: &dag.Graph{Name: o.Name, Gbps: o.Gbps}, links: make(map[[2]int]bool),
		begin: make([][]int, len(traces)), end: make([][]int, len(traces))}
	for p := range (len(traces) + o.GPUsPerPod - 1) / o.GPUsPerPod {
		b.g.Pods = append(b.g.Pods, dag.Pod{Name: fmt.Sprintf("pod%d", p), Ports: o.GPUsPerPod})
	}
	for r, t := range traces {
		b.begin[r], b.end[r] = make([]int, len(t.Nodes)), make([]int, len(t.Nodes))
		b.work(r)
	}
	if err := b.messages(); err != nil {
		return nil, err
	}
	if err := b.collectives(); err != nil {
		return nil, err
	}
	b.deps()
	return b.g, b.g.Validate()
}

// builder writes a graph. A node's begin is the task that waits for the node's dependencies. Its end is the task that
// the node's successors wait for.
type builder struct {
	traces     []*Trace
	o          Options
	g          *dag.Graph
	links      map[[2]int]bool
	begin, end [][]int
}

func (b *builder) pod(rank int) int { return rank / b.o.GPUsPerPod }

// inside returns how long bytes take from a GPU to another one of its pod, in us.
func (b *builder) inside(bytes float64) float64 { return bytes / (b.o.ScaleUpGBs * 1e3) }

func (b *builder) nodeName(r, i int) string {
	n := &b.traces[r].Nodes[i]
	return fmt.Sprintf("rank %d node %d %s", r, n.ID, n.Name)
}

func (b *builder) task(t dag.Task) int {
	b.g.Tasks = append(b.g.Tasks, t)
	return len(b.g.Tasks) - 1
}

// transfer adds a transfer and, where needed, its link.
func (b *builder) transfer(t dag.Task) int {
	pair := [2]int{min(t.From, t.To), max(t.From, t.To)}
	if !b.links[pair] {
		b.links[pair] = true
		b.g.Links = append(b.g.Links, dag.Link{Pods: pair, Ports: [2]int{1, 1}})
	}
	return b.task(t)
}

// work adds what a rank does alone.
func (b *builder) work(r int) {
	for i := range b.traces[r].Nodes {
		n := &b.traces[r].Nodes[i]
		switch n.Type {
		case Send, Receive, Together:
			continue
		}
		kind := "work"
		if n.Type == Compute {
			kind = "compute"
		}
		p := b.pod(r)
		at := b.task(dag.Task{Name: b.nodeName(r, i), Kind: kind, Duration: n.DurationUS, From: p, To: p})
		b.begin[r][i], b.end[r][i] = at, at
	}
}

// place is a node of a rank.
type place struct{ rank, node int }

// messages pairs sends and receives.
func (b *builder) messages() error {
	type key struct {
		src, dst int
		tag      int64
	}
	sends := make(map[key][]place)
	b.each(Send, func(r, i int, n *Node) {
		sends[key{n.Src, n.Dst, n.Tag}] = append(sends[key{n.Src, n.Dst, n.Tag}], place{r, i})
	})
	var failure error
	fail := func(r, i int, format string, args ...any) {
		if failure == nil {
			failure = fmt.Errorf("%w: %s: %s", ErrTrace, b.nodeName(r, i), fmt.Sprintf(format, args...))
		}
	}
	b.each(Receive, func(r, i int, n *Node) {
		k := key{n.Src, n.Dst, n.Tag}
		if n.Dst != r {
			fail(r, i, "comm_dst: a receive of rank %d", n.Dst)
			return
		}
		if len(sends[k]) == 0 {
			fail(r, i, "no rank sends its message (from %d, tag %d)", n.Src, n.Tag)
			return
		}
		s := sends[k][0]
		sends[k] = sends[k][1:]
		sent := &b.traces[s.rank].Nodes[s.node]
		switch {
		case s.rank != sent.Src:
			fail(s.rank, s.node, "comm_src: a send of rank %d", sent.Src)
		case sent.Bytes != n.Bytes && n.Bytes != 0:
			fail(r, i, "comm_size: %g, but %g are sent", n.Bytes, sent.Bytes)
		}
		at := b.message(s, sent)
		b.begin[r][i], b.end[r][i] = at, at
		b.begin[s.rank][s.node], b.end[s.rank][s.node] = at, at
	})
	b.each(Send, func(r, i int, n *Node) {
		if left := sends[key{n.Src, n.Dst, n.Tag}]; len(left) > 0 && left[0] == (place{r, i}) {
			fail(r, i, "no rank receives its message (to %d, tag %d)", n.Dst, n.Tag)
		}
	})
	return failure
}

// message adds the transfer, or the work, of a send and its receive.
func (b *builder) message(s place, n *Node) int {
	from, to := b.pod(n.Src), b.pod(n.Dst)
	if from == to {
		return b.task(dag.Task{Name: b.nodeName(s.rank, s.node), Kind: "pp", Duration: b.inside(n.Bytes), From: from, To: to})
	}
	return b.transfer(dag.Task{Name: b.nodeName(s.rank, s.node), Kind: "pp", From: from, To: to, Flows: 1, Bytes: n.Bytes,
		Src: []int{n.Src}, Dst: []int{n.Dst}})
}

// each calls f for all nodes of a type, in order.
func (b *builder) each(kind Type, f func(r, i int, n *Node)) {
	for r, t := range b.traces {
		for i := range t.Nodes {
			if t.Nodes[i].Type == kind {
				f(r, i, &t.Nodes[i])
			}
		}
	}
}

// collectives puts the nodes of each collective together.
func (b *builder) collectives() error {
	members := make(map[string][][]int) // by group and rank, the nodes
	var groups []string
	b.each(Together, func(r, i int, n *Node) {
		if members[n.Group] == nil {
			members[n.Group] = make([][]int, len(b.traces))
			groups = append(groups, n.Group)
		}
		members[n.Group][r] = append(members[n.Group][r], i)
	})
	for _, group := range groups {
		var ranks []int
		for r, nodes := range members[group] {
			if len(nodes) > 0 || group == "" {
				ranks = append(ranks, r)
			}
		}
		for at := range members[group][ranks[0]] {
			var parts []place
			for _, r := range ranks {
				if at >= len(members[group][r]) {
					return fmt.Errorf("%w: rank %d has %d collectives of group %q, rank %d more", ErrTrace, r, len(members[group][r]),
						group, ranks[0])
				}
				parts = append(parts, place{r, members[group][r][at]})
			}
			if err := b.collective(parts); err != nil {
				return err
			}
		}
		for _, r := range ranks {
			if extra := len(members[group][ranks[0]]); extra < len(members[group][r]) {
				return fmt.Errorf("%w: %s: rank %d has no such collective of group %q", ErrTrace,
					b.nodeName(r, members[group][r][extra]), ranks[0], group)
			}
		}
	}
	return nil
}

// collective adds one collective: a task that waits for all ranks, transfers between pods, and a
// task that all ranks wait for, which is as long as the part within pods.
func (b *builder) collective(parts []place) error {
	first := &b.traces[parts[0].rank].Nodes[parts[0].node]
	pods := make(map[int][]int)
	var order []int
	for _, p := range parts {
		n := &b.traces[p.rank].Nodes[p.node]
		if n.Collective != first.Collective || n.Bytes != first.Bytes {
			return fmt.Errorf("%w: %s: %s of %g bytes, but rank %d has %s of %g", ErrTrace, b.nodeName(p.rank, p.node),
				collectiveNames[n.Collective], n.Bytes, parts[0].rank, collectiveNames[first.Collective], first.Bytes)
		}
		if pods[b.pod(p.rank)] == nil {
			order = append(order, b.pod(p.rank))
		}
		pods[b.pod(p.rank)] = append(pods[b.pod(p.rank)], p.rank)
	}
	slices.Sort(order)
	name := b.nodeName(parts[0].rank, parts[0].node)
	kind := strings.ToLower(collectiveNames[first.Collective])
	home := b.pod(parts[0].rank)
	begin := b.task(dag.Task{Name: name + " begins", Kind: kind, From: home, To: home})
	most := 0
	for _, ranks := range pods {
		most = max(most, len(ranks))
	}
	end := b.task(dag.Task{Name: name + " ends", Kind: kind,
		Duration: b.inside(part(first.Collective, most) * first.Bytes), From: home, To: home})
	b.g.Deps = append(b.g.Deps, dag.Dep{From: begin, To: end})
	for _, t := range b.crossings(first, pods, order, len(parts)) {
		t.Name, t.Kind = fmt.Sprintf("%s, pod %d to %d", name, t.From, t.To), kind
		at := b.transfer(t)
		b.g.Deps = append(b.g.Deps, dag.Dep{From: begin, To: at}, dag.Dep{From: at, To: end})
	}
	for _, p := range parts {
		b.begin[p.rank][p.node], b.end[p.rank][p.node] = begin, end
	}
	return nil
}

// part returns the part of the buffer that each of n ranks sends in a ring.
func part(c Collective, n int) float64 {
	share := float64(n-1) / float64(n)
	switch c {
	case AllReduce:
		return 2 * share
	case Barrier:
		return 0
	case Broadcast, Reduce:
		if n == 1 {
			return 0
		}
		return 1
	case AllGather, Gather, Scatter, AllToAll, ReduceScatter, ReduceScatterBlock:
	}
	return share
}

// crossings returns the transfers of a collective of n ranks between pods in order.
func (b *builder) crossings(first *Node, pods map[int][]int, order []int, n int) []dag.Task {
	var all []dag.Task
	if len(order) < 2 || first.Collective == Barrier {
		return nil
	}
	between := func(from, to int, bytes float64) {
		flows := min(len(pods[from]), len(pods[to]))
		all = append(all, dag.Task{From: from, To: to, Flows: flows, Bytes: bytes, Src: pods[from][:flows],
			Dst: pods[to][:flows]})
	}
	if first.Collective == AllToAll {
		for _, from := range order {
			for _, to := range order {
				if from != to { // every rank sends 1/n of its buffer to every other one
					between(from, to, first.Bytes*float64(len(pods[from])*len(pods[to]))/float64(n))
				}
			}
		}
		return all
	}
	for i, from := range order {
		if i == len(order)-1 && (first.Collective == Broadcast || first.Collective == Reduce) {
			break // a chain
		}
		between(from, order[(i+1)%len(order)], first.Bytes*part(first.Collective, n))
	}
	return all
}

// deps adds the nodes' dependencies.
func (b *builder) deps() {
	for r, t := range b.traces {
		deps, odd := t.dependencies()
		for i, nodes := range deps {
			for _, from := range nodes {
				b.g.Deps = append(b.g.Deps, dag.Dep{From: b.end[r][from], To: b.begin[r][i]})
			}
		}
		if odd != "" && b.o.Warn != nil {
			b.o.Warn(fmt.Sprintf("rank %d: left out %s", r, odd))
		}
	}
}
