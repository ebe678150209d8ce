package train

import (
	"fmt"

	"lightpath/plans/delta/dag"
)

// Generate writes the graph of one iteration of c.
func Generate(c Config) (*dag.Graph, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b := &builder{c: &c, costs: c.costs(), g: &dag.Graph{Name: c.Model.Name, Gbps: c.Gbps},
		previous: map[int]int{}, next: map[int]int{}}
	replicas := 1
	if c.Full {
		replicas = c.Replicas()
	}
	b.pods(replicas)
	for r := range replicas {
		b.pipeline(r)
	}
	if c.Replicas() > 1 {
		for r := range replicas {
			b.gradients(r)
		}
	}
	return b.g, b.g.Validate()
}

// builder writes a graph.
type builder struct {
	c     *Config
	costs []Costs // by stage
	g     *dag.Graph
	// last is, by replica and stage, the backward of the last micro-batch.
	last [][]int
	// previous and next are, by computation, those before and after it on its stage.
	previous, next map[int]int
}

// pod returns the index of the pod of a stage. Images of a projection follow the pods.
func (b *builder) pod(replica, stage int) int {
	per := b.c.podsPerReplica()
	return replica%b.c.Replicas()*per + stage/b.c.stagesPerPod()
}

func podName(replica, pod int) string { return fmt.Sprintf("r%d.p%d", replica, pod) }

// pods writes pods and links: pipelines between neighbours, rings over replicas.
func (b *builder) pods(replicas int) {
	c, all := b.c, b.c.Replicas()
	per := c.podsPerReplica()
	projected := !c.Full && all > 1
	for r := range replicas {
		for p := range per {
			stages := min(c.stagesPerPod(), c.PP-p*c.stagesPerPod())
			pod := dag.Pod{Name: podName(r, p), Ports: stages * c.stageGPUs()}
			if projected {
				for copied := range all {
					pod.Copies = append(pod.Copies, podName(copied, p))
				}
			}
			b.g.Pods = append(b.g.Pods, pod)
		}
	}
	for r := range replicas {
		for p := range per - 1 {
			link := dag.Link{Pods: [2]int{r*per + p, r*per + p + 1}, Ports: [2]int{1, 1}}
			if projected {
				for copied := range all {
					link.Copies = append(link.Copies, [2]string{podName(copied, p), podName(copied, p+1)})
				}
			}
			b.g.Links = append(b.g.Links, link)
		}
	}
	switch {
	case projected:
		b.images()
	case all > 1:
		b.rings()
	}
}

// images writes the next replica's pods as images, and the rings' links to them.
func (b *builder) images() {
	all, per := b.c.Replicas(), b.c.podsPerReplica()
	for p := range per {
		b.g.Pods = append(b.g.Pods, dag.Pod{Name: podName(1, p), Image: true})
		link := dag.Link{Pods: [2]int{p, per + p}, Ports: [2]int{min(2, all-1), 0}}
		for r := range b.pairs() {
			link.Copies = append(link.Copies, [2]string{podName(r, p), podName((r+1)%all, p)})
		}
		b.g.Links = append(b.g.Links, link)
	}
}

// pairs returns how many pairs of neighbours a ring of all replicas has.
func (b *builder) pairs() int {
	if all := b.c.Replicas(); all > 2 {
		return all
	}
	return 1
}

// rings writes the links of all replicas.
func (b *builder) rings() {
	all, per := b.c.Replicas(), b.c.podsPerReplica()
	for r := range b.pairs() {
		for p := range per {
			b.g.Links = append(b.g.Links, dag.Link{Pods: [2]int{r*per + p, (r+1)%all*per + p}, Ports: [2]int{1, 1}})
		}
	}
}

// gpus returns the numbers of the GPUs from..to of a stage.
func (b *builder) gpus(replica, stage, from, to int) []int {
	first := (replica*b.c.PP + stage) * b.c.stageGPUs()
	list := make([]int, 0, to-from)
	for k := from; k < to; k++ {
		list = append(list, first+k)
	}
	return list
}

func (b *builder) task(t dag.Task) int {
	b.g.Tasks = append(b.g.Tasks, t)
	return len(b.g.Tasks) - 1
}

func (b *builder) dep(from, to int, delay float64) {
	b.g.Deps = append(b.g.Deps, dag.Dep{From: from, To: to, Delay: delay})
}

// step is one computation of a stage.
type step struct {
	backward bool
	batch    int
}

// steps returns the order of a stage's computations: one forward, one backward.
func (c *Config) steps(stage int) []step {
	m := c.MicroBatches
	warm := min(c.PP-1-stage, m)
	list := make([]step, 0, 2*m)
	for k := range m {
		list = append(list, step{false, k})
		if k >= warm {
			list = append(list, step{true, k - warm})
		}
	}
	for k := m - warm; k < m; k++ {
		list = append(list, step{true, k})
	}
	return list
}

// pipeline writes computations and transfers of one replica's pipeline.
func (b *builder) pipeline(r int) {
	c := b.c
	forward, backward := make([][]int, c.PP), make([][]int, c.PP)
	last := make([]int, c.PP)
	for s := range c.PP {
		cost := b.costs[s]
		forward[s], backward[s] = make([]int, c.MicroBatches), make([]int, c.MicroBatches)
		before := -1
		for _, st := range c.steps(s) {
			t := dag.Task{Name: b.name("F", r, s, st.batch), Kind: "forward", Duration: cost.Forward, From: b.pod(r, s),
				To: b.pod(r, s)}
			if st.backward {
				t.Name, t.Kind, t.Duration = b.name("B", r, s, st.batch), "backward", cost.Backward
			}
			i := b.task(t)
			if st.backward {
				backward[s][st.batch] = i
			} else {
				forward[s][st.batch] = i
			}
			if before >= 0 {
				b.dep(before, i, 0)
				b.previous[i], b.next[before] = before, i
			}
			before = i
		}
		last[s] = before
	}
	for s := range c.PP - 1 {
		for k := range c.MicroBatches {
			b.send("act", r, k, computation{s, forward[s][k]}, computation{s + 1, forward[s+1][k]})
			b.send("grad", r, k, computation{s + 1, backward[s+1][k]}, computation{s, backward[s][k]})
		}
	}
	b.last = append(b.last, last)
}

// name returns the name of a task, as "F3S1": micro-batch 3 on stage 1. batch is -1 if the task belongs to none.
func (b *builder) name(what string, replica, stage, batch int) string {
	if batch >= 0 {
		what = fmt.Sprintf("%s%d", what, batch)
	}
	if b.c.Full {
		return fmt.Sprintf("%sS%dR%d", what, stage, replica)
	}
	return fmt.Sprintf("%sS%d", what, stage)
}

// computation is a task of a stage.
type computation struct{ stage, task int }

// send writes the transfer between two computations of micro-batch k.
func (b *builder) send(what string, r, k int, from, to computation) {
	c := b.c
	t := dag.Task{Name: b.name(what, r, from.stage, k), Kind: "pp", From: b.pod(r, from.stage), To: b.pod(r, to.stage)}
	if t.From != t.To {
		n := c.stageGPUs()
		t.Flows, t.Bytes = n, c.boundary()
		t.Src, t.Dst = b.gpus(r, from.stage, 0, n), b.gpus(r, to.stage, 0, n)
	} else {
		t.Duration = c.insideTime()
	}
	i := b.task(t)
	b.dep(from.task, i, 0)
	b.dep(i, to.task, 0)
	if c.Overlap {
		return
	}
	if p, ok := b.previous[to.task]; ok {
		b.dep(p, i, 0)
	}
	if n, ok := b.next[from.task]; ok {
		b.dep(i, n, 0)
	}
}

// gradients writes the transfers of one replica after its last backward.
func (b *builder) gradients(r int) {
	c, all := b.c, b.c.Replicas()
	n := c.stageGPUs()
	for s := range c.PP {
		cost := b.costs[s]
		pod := b.pod(r, s)
		gather := b.task(dag.Task{Name: b.name("gather", r, s, -1), Kind: "gather", Duration: cost.Gather, From: pod,
			To: pod})
		ring := func(name string, from, to, toReplica, first, end int) {
			t := dag.Task{Name: b.name(name, r, s, -1), Kind: "dp", From: from, To: to, Flows: end - first,
				Bytes: float64(end-first) * cost.Flow}
			t.Src = b.gpus(r, s, first, end)
			if t.Dst = t.Src; c.Full {
				t.Dst = b.gpus(toReplica, s, first, end)
			}
			i := b.task(t)
			b.dep(b.last[r][s], i, cost.Scatter)
			b.dep(i, gather, 0)
		}
		up, down := (r+1)%all, (r+all-1)%all
		if all == 2 || n == 1 {
			ring("dp", pod, b.pod(up, s), up, 0, n)
			continue
		}
		ring("dp", pod, b.pod(up, s), up, 0, (n+1)/2)
		if c.Full {
			ring("dp-", pod, b.pod(down, s), down, (n+1)/2, n)
		} else { // the transfer from the next replica stands for the one to the replica before
			ring("dp-", b.pod(up, s), pod, r, (n+1)/2, n)
		}
	}
}
