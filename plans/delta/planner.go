package delta

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/sim"
)

// Sharing is how transfers that compete share bandwidth.
type Sharing string

const (
	// Fair gives max-min fair shares per flow, as networks do.
	Fair Sharing = "fair"
	// Critical gives bandwidth to the transfers first that everything waits for.
	Critical Sharing = "critical"
)

// ParseSharing reads the name of a rule.
func ParseSharing(s string) (Sharing, error) {
	switch Sharing(s) {
	case Fair, Critical:
		return Sharing(s), nil
	}
	return "", fmt.Errorf("%q is not %s or %s", s, Fair, Critical)
}

// Planner answers questions about one job. It is safe for concurrent use.
type Planner struct {
	g   *dag.Graph // the job
	red *dag.Reduced
	net *sim.Network // of red

	ranks   []float64 // where Critical begins, by task of red
	lower   float64
	ideal   Ideal
	volumes []float64
}

// NewPlanner prepares a job.
func NewPlanner(g *dag.Graph) (*Planner, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	p := &Planner{g: g, red: dag.Reduce(g)}
	var err error
	if p.net, err = sim.New(p.red.Graph); err != nil {
		return nil, err
	}
	p.ranks = startRanks(p.red.Graph)
	p.lower = p.red.LongestPath(p.red.LeastTime)
	p.volumes = linkVolumes(p.red.Graph)
	return p, p.runIdeal()
}

// runIdeal measures the ideal iteration. It needs the whole job: reduction may drop one of two critical paths.
func (p *Planner) runIdeal() error {
	s, err := p.Schedule(&Plan{})
	if err != nil {
		return err
	}
	_, most := p.g.Critical(s)
	p.ideal = Ideal{
		Makespan: p.net.NewRunner().Fair(nil), Communication: most, LeastCommunication: p.g.LeastCommunication(s),
	}
	return nil
}

// Graph returns the job.
func (p *Planner) Graph() *dag.Graph { return p.g }

// LowerBound is a time that no topology and no rates can beat, in microseconds: the longest path where
// every transfer has its full rate.
func (p *Planner) LowerBound() float64 { return p.lower }

// Ideal returns an iteration on a non-blocking network. It is the planner's, and does not change.
func (p *Planner) Ideal() *Ideal { return &p.ideal }

// Plan is a topology and what is known about it.
type Plan struct {
	Circuits dag.Circuits
	Sharing  Sharing
	Makespan float64   // microseconds
	ranks    []float64 // by task of the reduced job; nil where shares are fair
}

// Evaluate runs a topology under a rule.
func (p *Planner) Evaluate(c dag.Circuits, sharing Sharing) (*Plan, error) {
	if err := p.g.CheckCircuits(c); err != nil {
		return nil, err
	}
	return p.polish(context.Background(), c, sharing), nil
}

// polish judges a topology with all the effort that the rule allows, or with the search's once the context has ended.
func (p *Planner) polish(ctx context.Context, c dag.Circuits, sharing Sharing) *Plan {
	j := p.newJudge(sharing)
	if ctx.Err() == nil {
		j.rounds = polishRounds
	}
	makespan, ranks := j.run(c)
	return &Plan{Circuits: slices.Clone(c), Sharing: sharing, Makespan: makespan, ranks: slices.Clone(ranks)}
}

// Schedule runs a plan on the whole job and returns when everything happens.
func (p *Planner) Schedule(plan *Plan) (*dag.Schedule, error) {
	net, err := sim.New(p.g)
	if err != nil {
		return nil, err
	}
	var ranks []float64
	if plan.ranks != nil {
		ranks = make([]float64, len(p.g.Tasks))
		for k, i := range p.red.Origin {
			if i >= 0 {
				ranks[i] = plan.ranks[k]
			}
		}
	}
	return net.NewRunner().Record(plan.Circuits, ranks), nil
}

// score orders topologies: by makespan, then by ports.
type score struct {
	makespan float64
	ports    int
	critical []int32 // links that delay transfers of the critical path
}

func (s *score) better(t *score) bool {
	if math.Abs(s.makespan-t.makespan) > equalTimes*s.makespan {
		return s.makespan < t.makespan
	}
	return s.ports < t.ports
}

// equalTimes is how far makespans may differ, relatively, and be the same: rounding.
const equalTimes = 1e-9

// evaluateAll judges topologies side by side. Results are in the order of the topologies,
// and do not depend on how many judge.
func (p *Planner) evaluateAll(ctx context.Context, judges []*judge, topologies []dag.Circuits) []score {
	scores := make([]score, len(topologies))
	work := make(chan int)
	var wg sync.WaitGroup
	for _, j := range judges {
		wg.Go(func() {
			for k := range work {
				makespan, _ := j.run(topologies[k])
				used, _ := p.red.TotalPorts(topologies[k])
				scores[k] = score{makespan: makespan, ports: used, critical: j.criticalLinks()}
			}
		})
	}
	for k := range topologies {
		if ctx.Err() != nil {
			scores[k] = score{makespan: math.Inf(1)}
			continue
		}
		work <- k
	}
	close(work)
	wg.Wait()
	return scores
}

// judges makes as many as work side by side; 0 workers are as many as there are cores.
func (p *Planner) judges(workers int, sharing Sharing) []*judge {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	list := make([]*judge, workers)
	for k := range list {
		list[k] = p.newJudge(sharing)
	}
	return list
}
