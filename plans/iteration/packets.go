package iteration

import (
	"cmp"
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

// choose decides which shapes use packet planes. At run time, ranks of messages ask for circuits only if some matrix
// gains by these.
func (p *Problem) choose() {
	f := p.Fabric
	never := p.packets.AlwaysFaster(f.ReconfigUS+f.AlphaUS+f.HopUS, float64(f.Planes)*f.BandwidthGbps)
	p.onPackets = make([]bool, len(p.Shapes))
	for i, shape := range p.Of {
		messages := p.Trace.Calls[i].Collective == ""
		p.onPackets[shape] = p.onPackets[shape] || messages && never
	}
	for shape, problem := range p.Shapes {
		p.onPackets[shape] = p.onPackets[shape] || p.packets.Faster(p.packetUS[shape], problem, problem.Planes)
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
	placeBefore := func(call int) { // the calls on packet planes for which a call waits
		for _, a := range p.Trace.Calls[call].After {
			if a.Call != trace.Begin {
				place(a.Call)
			}
		}
	}
	place = func(call int) {
		us, ok := p.PacketUS(call)
		if !ok || placed[call] {
			return
		}
		placed[call] = true
		placeBefore(call)
		start := p.Trace.Ready(call, end)
		end[call] = start + us
		plan.Calls = append(plan.Calls, Placed{Call: call, Plan: OnPackets, StartUS: start, EndUS: end[call]})
	}
	for at := range circuits {
		placeBefore(circuits[at].Call)
		plan.Calls = append(plan.Calls, circuits[at])
	}
	for call := range p.Of {
		place(call)
	}
}

// packetWay times all calls on packet planes, in the order in which they start in the plan. A call waits for the calls
// before it that send from a rank from which it sends, or to a rank to which it sends. Without stated costs the planes
// have the bandwidth of the circuits.
func (p *Problem) packetWay(plan *Plan) Outcome {
	us := p.packetUS
	if us == nil {
		for _, shape := range p.Shapes {
			us = append(us, withoutSwitches(shape))
		}
	}
	order := slices.Clone(plan.Calls)
	slices.SortStableFunc(order, func(a, b Placed) int { return cmp.Compare(a.StartUS, b.StartUS) })
	ports := make([][]int, len(p.Shapes))
	for i, shape := range p.Shapes {
		ports[i] = portsOf(shape)
	}
	end, busy := make([]float64, len(p.Of)), make([]float64, 2*p.Fabric.Ranks)
	for _, c := range order {
		shape, start := p.Of[c.Call], p.Trace.Ready(c.Call, end)
		for _, port := range ports[shape] {
			start = math.Max(start, busy[port])
		}
		end[c.Call] = start + us[shape]
		for _, port := range ports[shape] {
			busy[port] = end[c.Call]
		}
	}
	return Outcome{Name: Packet, IterationUS: p.Trace.End(end)}
}

// portsOf returns what a call uses of packet planes: 2r if rank r sends, 2r+1 if it receives.
func portsOf(p *plans.Problem) (list []int) {
	uses := make([]bool, 2*p.Ranks)
	for i := range p.Steps {
		for _, f := range p.Steps[i].FlowList() {
			uses[2*f[0]], uses[2*f[1]+1] = true, true
		}
	}
	for src, row := range p.Demand {
		for dst, bytes := range row {
			uses[2*src] = uses[2*src] || bytes > 0
			uses[2*dst+1] = uses[2*dst+1] || bytes > 0
		}
	}
	for port, used := range uses {
		if used {
			list = append(list, port)
		}
	}
	return list
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
