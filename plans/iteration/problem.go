package iteration

import (
	"errors"
	"fmt"

	"lightpath/internal/decode"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/packets"
)

// ErrProblem is wrapped by errors about a trace that has no problem on a fabric. The message names the call.
var ErrProblem = errors.New("bad iteration")

// Problem is a trace on a fabric. It is not changed after [Pose].
type Problem struct {
	Fabric *plans.Problem // costs, ranks and planes; without steps
	Digest string         // of the fabric file; "" where there is none
	Trace  *trace.Trace
	// Shapes are the different problems of calls, on all ranks of the fabric, with free initial and final circuits. Flows
	// of different sizes are a demand, whose plan begins with a switch, on any circuits: ranks know the sizes when they
	// call.
	Shapes []*plans.Problem
	Of     []int // call -> its shape
	chain  bool  // each call waits for the call before, and for no other: the order is fixed

	asks      []Exchange     // by shape; without steps
	packets   *packets.Costs // nil: all calls use circuits
	packetUS  []float64      // by shape: on packet planes
	onPackets []bool         // by shape
	numbers   []int          // of the calls in the trace of which this is a part; nil: the trace is whole
}

// Exchange is what a call asks of a fabric, for the ranks 0..n-1 of one communicator.
type Exchange struct {
	Steps []plans.Step // on circuits
	// On packet planes: the rounds, and the bytes of the busiest rank. Only [Problem.UsePackets] needs them.
	Rounds int
	Bytes  float64
}

// ExchangeOf returns what a collective asks of a fabric.
type ExchangeOf func(c *trace.Call, ranks int) (Exchange, error)

// Pose returns the problem of a valid trace. fabric has no steps; its initial and final circuits do not count. Errors
// wrap [ErrProblem], or [plans.ErrProblem] if the fabric is not valid.
func Pose(fabric *plans.Problem, digest string, t *trace.Trace, of ExchangeOf) (*Problem, error) {
	template := *fabric
	template.Initial, template.Final, template.Steps, template.Demand = nil, plans.Final{}, nil, nil
	if err := template.Validate(); err != nil {
		return nil, err
	}
	if t.Ranks > template.Ranks {
		return nil, fmt.Errorf("%w: %w", ErrProblem, decode.At("ranks", "%d on a fabric of %d", t.Ranks, template.Ranks))
	}
	p := &Problem{Fabric: &template, Digest: digest, Trace: t, Of: make([]int, len(t.Calls)), chain: true}
	shapes := map[string]int{}
	for i := range t.Calls {
		c := &t.Calls[i]
		p.chain = p.chain && waitsForLast(c.After, i)
		key := fmt.Sprint(c.Communicator, c.Collective, " ", c.Algorithm, " ", c.Root, c.Bytes, c.Flows, c.FlowBytes)
		at, ok := shapes[key]
		if !ok {
			shape, asks, err := p.shape(c, of)
			if err != nil {
				return nil, p.bad(i, err)
			}
			at, shapes[key] = len(p.Shapes), len(p.Shapes)
			p.Shapes, p.asks = append(p.Shapes, shape), append(p.asks, asks)
		}
		p.Of[i] = at
	}
	return p, nil
}

// bad is the error of a call.
func (p *Problem) bad(call int, err error) error {
	number := call
	if p.numbers != nil {
		number = p.numbers[call]
	}
	return fmt.Errorf("%w: calls[%d] (%s): %w", ErrProblem, number, p.Trace.Calls[call].Kind(), err)
}

// waitsForLast reports whether call i waits for the call before it, and for no other.
func waitsForLast(after []trace.After, i int) bool {
	last := i == 0
	for _, a := range after {
		last = last || a.Call == i-1
		if a.Call != i-1 && a.Call != trace.Begin {
			return false
		}
	}
	return last
}

// shape returns the problem of a call, and its exchange without steps.
func (p *Problem) shape(c *trace.Call, of ExchangeOf) (*plans.Problem, Exchange, error) {
	comm := &p.Trace.Communicators[c.Communicator]
	asks := Exchange{Steps: []plans.Step{{Bytes: c.Bytes, Flows: c.Flows}}, Rounds: 1, Bytes: c.Busiest()}
	if c.Collective != "" {
		var err error
		if asks, err = of(c, comm.Size()); err != nil {
			return nil, asks, err
		}
	}
	local := asks.Steps
	asks.Steps = nil
	shape := *p.Fabric
	if c.FlowBytes != nil {
		shape.Demand = demand(c, comm, &shape)
		return &shape, asks, shape.Validate()
	}
	shape.Steps = make([]plans.Step, 0, len(local))
	for i := range local {
		shape.Steps = append(shape.Steps, spread(&local[i], comm, shape.Ranks))
	}
	return &shape, asks, shape.Validate()
}

// demand returns the bytes between ranks of the fabric in a call of flows. A demand has no alpha and no hops, so flows
// have as many bytes more.
func demand(c *trace.Call, comm *trace.Communicator, p *plans.Problem) [][]float64 {
	d := make([][]float64, p.Ranks)
	for r := range d {
		d[r] = make([]float64, p.Ranks)
	}
	more := (p.AlphaUS + p.HopUS) / plans.WireUS(p, 1)
	for _, group := range comm.Groups {
		for k, f := range c.Flows {
			if bytes := c.BytesOf(k); bytes > 0 {
				d[group[f[0]]][group[f[1]]] = bytes + more
			}
		}
	}
	return d
}

// spread returns a step of one communicator as the step of all its groups, on the ranks of the fabric. A step whose
// flows are a partial permutation becomes a map.
func spread(s *plans.Step, comm *trace.Communicator, ranks int) plans.Step {
	local := s.FlowList()
	to, from, single := circuit.AllDark(ranks), circuit.AllDark(ranks), true
	flows := make([][2]int, 0, len(local)*len(comm.Groups))
	for _, group := range comm.Groups {
		for _, f := range local {
			src, dst := group[f[0]], group[f[1]]
			flows = append(flows, [2]int{src, dst})
			single = single && to[src] == circuit.Dark && from[dst] == circuit.Dark
			to[src], from[dst] = dst, src
		}
	}
	if single {
		return plans.Step{Bytes: s.Bytes, To: to}
	}
	return plans.Step{Bytes: s.Bytes, Flows: flows}
}
