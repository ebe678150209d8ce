package iteration

import (
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/packets"
)

// OnPackets is the plan of a call on packet planes, in [Placed].
const OnPackets = -1

// UsePackets lets calls use packet planes of the given costs where these are faster. Call it once, after [Pose].
func (p *Problem) UsePackets(costs packets.Costs) {
	p.packets, p.packetUS = &costs, nil
	for _, x := range p.asks {
		p.packetUS = append(p.packetUS, costs.US(x.Rounds, x.Bytes))
	}
	p.choose()
}

// choose decides which shapes use packet planes.
func (p *Problem) choose() {
	p.onPackets = make([]bool, len(p.Shapes))
	for shape, problem := range p.Shapes {
		p.onPackets[shape] = p.packets.Faster(p.packetUS[shape], problem, problem.Planes)
	}
}

// PacketUS returns the time of a call on packet planes; false if it uses circuits.
func (p *Problem) PacketUS(call int) (float64, bool) {
	shape := p.Of[call]
	if p.onPackets == nil || !p.onPackets[shape] {
		return 0, false
	}
	return p.packetUS[shape], true
}

// onCircuits returns the problem of the calls on circuits, and their numbers. The others are parts of its gaps, since
// they wait for no planes.
func (p *Problem) onCircuits() (*Problem, []int) {
	take := make([]float64, len(p.Of))
	for i := range take {
		us, ok := p.PacketUS(i)
		if take[i] = us; !ok {
			take[i] = trace.Stays
		}
	}
	t, left := p.Trace.Without(take)
	own := &Problem{Fabric: p.Fabric, Digest: p.Digest, Trace: t, chain: true, numbers: left}
	shapes := map[int]int{}
	for i, call := range left {
		at, ok := shapes[p.Of[call]]
		if !ok {
			at, shapes[p.Of[call]] = len(own.Shapes), len(own.Shapes)
			own.Shapes = append(own.Shapes, p.Shapes[p.Of[call]])
		}
		own.Of = append(own.Of, at)
		own.chain = own.chain && waitsForLast(t.Calls[i].After, i)
	}
	return own, left
}

// idle is the comparison of an iteration without calls on circuits.
func (p *Problem) idle() *Comparison {
	us := p.Trace.ComputeUS // which contains the calls on packet planes
	c := &Comparison{Plan: &Plan{IterationUS: us, LowerBoundUS: us, Fabric: p.Digest}}
	for _, name := range []string{PerCall, Greedy, Static, Iteration, Free} {
		c.Outcomes = append(c.Outcomes, Outcome{Name: name, IterationUS: us})
	}
	return c
}

// complete adds the calls on packet planes to a plan of the calls on circuits, whose numbers are left.
func (p *Problem) complete(plan *Plan, left []int) {
	circuits := plan.Calls
	plan.Trace, plan.ComputeUS, plan.Calls = p.Trace, p.Trace.Longest(nil), nil
	end := make([]float64, len(p.Of))
	for at := range circuits {
		circuits[at].Call = left[circuits[at].Call]
		end[circuits[at].Call] = circuits[at].EndUS
	}
	placed := make([]bool, len(p.Of))
	var place func(call int)
	place = func(call int) { // after the calls on packet planes for which it waits
		us, ok := p.PacketUS(call)
		if !ok || placed[call] {
			return
		}
		placed[call] = true
		for _, a := range p.Trace.Calls[call].After {
			if a.Call != trace.Begin {
				place(a.Call)
			}
		}
		start := p.Trace.Ready(call, end)
		end[call] = start + us
		plan.Calls = append(plan.Calls, Placed{Call: call, Plan: OnPackets, StartUS: start, EndUS: end[call]})
	}
	for at := range circuits {
		for _, a := range p.Trace.Calls[circuits[at].Call].After {
			if a.Call != trace.Begin {
				place(a.Call)
			}
		}
		plan.Calls = append(plan.Calls, circuits[at])
	}
	for call := range p.Of {
		place(call)
	}
}

// packetWay times all calls on packet planes, one after the other in the order of the plan. Without stated costs these
// have the bandwidth of the circuits.
func (p *Problem) packetWay(plan *Plan) Outcome {
	us := p.packetUS
	if us == nil {
		for _, shape := range p.Shapes {
			us = append(us, withoutSwitches(shape))
		}
	}
	end, before := make([]float64, len(p.Of)), 0.0
	for _, c := range plan.Calls {
		before = math.Max(before, p.Trace.Ready(c.Call, end)) + us[p.Of[c.Call]]
		end[c.Call] = before
	}
	return Outcome{Name: Packet, IterationUS: p.Trace.End(end)}
}

// withoutSwitches returns the time of a shape if each plane joined all ranks. A step takes alpha, one hop, and the
// bytes of its busiest port.
func withoutSwitches(p *plans.Problem) (us float64) {
	us = plans.WireUS(p, plans.Busiest(p.Demand)) / float64(p.Planes)
	for i := range p.Steps {
		s := &p.Steps[i]
		us += plans.TransmitUS(p, 1, degree(p.Ranks, s.FlowList()), s.Bytes/float64(p.Planes))
	}
	return us
}

// degree returns the largest number of flows that a rank sends or receives.
func degree(ranks int, flows [][2]int) int {
	out, in := make([]int, ranks), make([]int, ranks)
	for _, f := range flows {
		out[f[0]]++
		in[f[1]]++
	}
	return max(slices.Max(out), slices.Max(in))
}
