package place

import "fmt"

// Arrangement is the placement of the ranks of a job's grid: the communication domains of pipelines, replicas and
// experts.
type Arrangement struct {
	Grid   Grid
	Server []int32 // of rank p DP + d
	// Mirrored says that the GPUs of a server with odd numbers go round every ring the other way
	// (Eq. 43 over the GPUs of a server): each link between pods is then used both ways.
	Mirrored bool
}

// Flow is from one GPU to another. Share is its part of what a GPU sends in the phase.
type Flow struct {
	From, To int32
	Share    float64
}

// Phase is a part of an iteration whose flows are on the network together.
type Phase int

// The phases of an iteration.
const (
	Forward  Phase = iota // activations, from each stage to the next
	Tokens                // all-to-all of experts
	Backward              // gradients of activations, from each stage to the one before
	Replicas              // ring AllReduce of gradients among the replicas of a stage
	NumPhases
)

var phaseNames = [NumPhases]string{"forward", "tokens", "backward", "replicas"}

func (p Phase) String() string { return phaseNames[p] }

// Arrange puts a grid on servers, in the order of their pods. There must be as many servers as the grid has.
// Arrange tries two ways to fill the grid: stage by stage and pipeline by pipeline. It takes the way that the
// links of the job's own GPUs slow down less (see Requirement.fit). Of equal ways it takes the one with
// fewer links between pods. Groups of EP servers are consecutive in both.
func Arrange(shape Shape, grid Grid, servers []int32, shares Volume) (*Arrangement, error) {
	if err := grid.Check(); err != nil {
		return nil, err
	}
	if len(servers) != grid.Servers() {
		return nil, fmt.Errorf("place: %d servers for PP %d x DP %d", len(servers), grid.PP, grid.DP)
	}
	byStage := &Arrangement{Grid: grid, Server: servers, Mirrored: true}
	if grid.PP == 1 || grid.DP == grid.EP {
		return byStage, nil // one way only
	}
	byPipeline := &Arrangement{Grid: grid, Server: make([]int32, len(servers)), Mirrored: true}
	k := 0
	for d := 0; d < grid.DP; d += grid.EP {
		for p := range grid.PP {
			k += copy(byPipeline.Server[p*grid.DP+d:][:grid.EP], servers[k:])
		}
	}
	a, slowA, err := byStage.Fitted(shape, shares)
	if err != nil {
		return byPipeline, nil //nolint:nilerr // its Requirement returns the error
	}
	b, slowB, err := byPipeline.Fitted(shape, shares)
	if err == nil && (slowB < slowA || slowB == slowA && b.Links() < a.Links()) {
		return byPipeline, nil
	}
	return byStage, nil
}

// Fitted returns the requirement. If a leaf would need more links than the job has GPUs there, flows share links.
// Fitted also returns by how much that prolongs an iteration.
func (a *Arrangement) Fitted(shape Shape, shares Volume) (*Requirement, float64, error) {
	r := a.Requirement(shape)
	if len(r.Pairs) == 0 {
		return r, 0, nil
	}
	gpus := map[int32]int{}
	for _, s := range a.Server {
		gpus[int32(shape.Of(Leaf, s))] += shape.ServerGPUs
	}
	longer, err := r.fit(func(leaf int32) int { return gpus[leaf] }, shares)
	return r, longer, err
}

// Naive returns the servers in their order as ranks, stage by stage. All GPUs go round their rings in one
// direction. It is the baseline for [Arrange].
func Naive(grid Grid, servers []int32) *Arrangement {
	return &Arrangement{Grid: grid, Server: servers}
}

// Flows appends the flows of a phase. Flows inside a server are left out.
func (a *Arrangement) Flows(shape Shape, phase Phase, to []Flow) []Flow {
	g := a.Grid
	edge := func(from, dst int, share float64, gpu int) {
		to = append(to, Flow{a.Server[from]*int32(shape.ServerGPUs) + int32(gpu),
			a.Server[dst]*int32(shape.ServerGPUs) + int32(gpu), share})
	}
	gpus := shape.ServerGPUs
	switch phase {
	case Forward, Backward:
		for r := range g.Servers() - g.DP {
			from, dst := r, r+g.DP
			if phase == Backward {
				from, dst = dst, from
			}
			for k := range gpus {
				edge(from, dst, 1, k)
			}
		}
	case Tokens:
		for r := range g.Servers() {
			for e := 1; e < g.EP; e++ {
				first := r - r%g.EP
				for k := range gpus {
					edge(r, first+(r-first+e)%g.EP, 1/float64(g.EP-1), k)
				}
			}
		}
	case Replicas:
		if g.DP == 1 {
			break
		}
		for r := range g.Servers() {
			first := r - r%g.DP
			next := first + (r-first+1)%g.DP
			for k := range gpus {
				if a.Mirrored && k%2 == 1 {
					edge(next, r, 1, k)
				} else {
					edge(r, next, 1, k)
				}
			}
		}
	}
	return to
}
