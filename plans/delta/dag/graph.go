package dag

// Version is the version of the job file.
const Version = 1

// Limits of what a graph may hold.
const (
	maxPods  = 4096
	maxTasks = 1 << 20
	maxDeps  = 1 << 23
	MaxPorts = 1 << 16
)

// BytesPerUSPerGbps converts Gb/s to bytes per microsecond.
const BytesPerUSPerGbps = 125.0

// Graph is one training iteration as a directed acyclic graph. Work takes a fixed time in a pod: computation,
// and communication that stays in the pod. The time of a transfer between pods depends on the number of
// circuits between them. A graph is not changed after [Graph.Validate], and is then safe for concurrent use.
//
// A graph may be the projection of a job whose replicas do the same work at the same time. Its pods then
// stand for several. A pod of another replica appears only as an image, a place where transfers end (see
// [Pod], [Link]).
type Graph struct {
	Name string
	// Gbps is the rate of one circuit, and of one NIC: a flow never exceeds it.
	Gbps  float64
	Pods  []Pod
	Links []Link // every pair of pods that a transfer needs, once
	Tasks []Task
	Deps  []Dep
}

// Pod is a group of GPUs behind one electrical fabric, with ports on the optical layer.
type Pod struct {
	Name string
	// Ports is how many circuits may end here: each has both directions. Even, since ports come
	// in pairs; 0 only for an image.
	Ports int
	// Copies names the pods of the job that this one stands for, itself included, if the graph is a projection; else
	// nil.
	Copies []string
	// Image: the pod is a copy of another one of the graph. It receives or sends. Its ports are counted at that pod,
	// and its GPUs have the numbers of that pod's GPUs.
	Image bool
}

// Link is a pair of pods that circuits may join: one variable of the topology. A circuit of
// it carries the graph's rate in both directions.
type Link struct {
	Pods [2]int // indices into Graph.Pods, different
	// Ports is how many ports one circuit takes at either pod: 1, except in projections. There a ring of replicas takes
	// 2 at the pod (one towards each neighbour) and 0 at its image.
	Ports [2]int
	// Copies names the pairs of pods of the job that this link stands for; nil if only for its own pair.
	Copies [][2]string
}

// Task is a node: a transfer where Flows > 0, else work that takes Duration.
type Task struct {
	Name string
	// Kind groups tasks in pictures: "forward", "backward", "pp", "dp", ...
	Kind string

	// Duration is how long work takes, in microseconds. 0 for transfers.
	Duration float64

	// From and To are the pods of a transfer, different. For work both are the pod where it is
	// done.
	From, To int
	// Flows is how many pairs of GPUs transfer at once; each has its NICs' rate at most. 0 for work.
	Flows int
	// Bytes is the sum over all flows.
	Bytes float64
	// Src and Dst are the numbers, within the job, of the GPUs that send and receive: Flows each, without repetition.
	// Nil if unknown: then the transfer shares no NIC.
	Src, Dst []int
}

// Transfer reports whether the task is a transfer.
func (t *Task) Transfer() bool { return t.Flows > 0 }

// Dep lets task To start Delay after task From has ended.
type Dep struct {
	From, To int
	Delay    float64
}

// Circuits is a topology: the number of circuits of every link, by its index in Graph.Links.
type Circuits []int

// PortsUsed returns how many ports of every pod the circuits take.
func (g *Graph) PortsUsed(c Circuits) []int {
	used := make([]int, len(g.Pods))
	for l, n := range c {
		for side, p := range g.Links[l].Pods {
			used[p] += n * g.Links[l].Ports[side]
		}
	}
	return used
}

// TotalPorts returns how many ports the circuits take in the whole job, copies included, and
// how many there are.
func (g *Graph) TotalPorts(c Circuits) (used, all int) {
	for p, n := range g.PortsUsed(c) {
		copies := max(1, len(g.Pods[p].Copies))
		used += n * copies
		all += g.Pods[p].Ports * copies
	}
	return used, all
}

// LinkOf returns, for every transfer, its directed link: 2*l from Links[l].Pods[0] to
// Pods[1], 2*l+1 the other way; -1 for work. The graph is valid.
func (g *Graph) LinkOf() []int {
	index := make(map[[2]int]int, 2*len(g.Links))
	for l, k := range g.Links {
		index[k.Pods] = 2 * l
		index[[2]int{k.Pods[1], k.Pods[0]}] = 2*l + 1
	}
	of := make([]int, len(g.Tasks))
	for i := range g.Tasks {
		of[i] = -1
		if t := &g.Tasks[i]; t.Transfer() {
			of[i] = index[[2]int{t.From, t.To}]
		}
	}
	return of
}

// FullRate returns the rate of a transfer that only its own NICs limit, in bytes per microsecond.
func (g *Graph) FullRate(t *Task) float64 {
	return float64(t.Flows) * g.Gbps * BytesPerUSPerGbps
}

// LeastTime returns the time of a task at its full rate, in microseconds.
func (g *Graph) LeastTime(t *Task) float64 {
	if !t.Transfer() {
		return t.Duration
	}
	return t.Bytes / g.FullRate(t)
}
