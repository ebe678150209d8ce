package dispatch

import (
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/settings"
)

// packetCosts are the rough costs of packet planes by transport: one host, a 10 Gb/s network, and 100 Gb/s networks.
// alphaUS is the time of a step in microseconds, gbps the rate of all planes together in Gb/s.
var packetCosts = map[string]struct{ alphaUS, gbps float64 }{
	"inproc": {0.5, 80}, "shm": {1, 40}, "tcp": {20, 10}, "rdma": {3, 100}, "net": {10, 100},
}

// PacketCosts returns the cost model of the packet planes of a transport, all of them as one plane.
func PacketCosts(transport string) *plans.Problem {
	c := packetCosts[transport]
	return &plans.Problem{AlphaUS: c.alphaUS, BandwidthGbps: c.gbps}
}

// PacketsUS predicts the time of a collective on packet planes, in microseconds. A step takes alpha and the transfer
// time of its busiest rank's bytes.
func PacketsUS(s calls.Shape, ranks int, from *Choices, cfg *settings.Config, costs *plans.Problem) (us float64,
	err error) {
	col, err := BuildSchedule(&s, ranks, from, cfg, nil)
	if err != nil {
		return 0, err
	}
	size := int64(s.Type.Size())
	sent, received := make([]int64, ranks), make([]int64, ranks)
	for i := range col.Steps.Steps {
		clear(sent)
		clear(received)
		flows, busiest := col.Steps.Flows(i), int64(0)
		for k := range flows {
			f := &flows[k]
			n := size * col.Steps.FlowElements(f, int64(s.Count))
			sent[f.Src] += n
			received[f.Dst] += n
			busiest = max(busiest, sent[f.Src], received[f.Dst])
		}
		us += plans.TransmitUS(costs, 1, min(len(flows), 1), float64(busiest))
	}
	return us, nil
}

// CircuitsUS returns the least time of a collective on planes with circuits, in microseconds, in two parts. fixed does
// not depend on the size: the agreement on the ticket (agreeUS), and alpha and one hop per step. wire is the time of
// the bytes on all planes. No plan is faster, since reconfigurations come on top.
func CircuitsUS(p *plans.Problem, planes int, agreeUS float64) (fixed, wire float64) {
	fixed = agreeUS
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Bytes > 0 {
			fixed += p.AlphaUS + p.HopUS
			wire += plans.WireUS(p, s.Bytes) / float64(planes)
		}
	}
	return fixed, wire
}

// SmallOnPackets reports whether a call is small, and faster on the packet planes. The arguments are the results of
// [PacketsUS] and [CircuitsUS]. A call is small if its bytes take no longer on the circuits than the fixed costs there.
// A larger call uses the circuits in any case: the rates of packet planes are rough, and the order of reductions must
// not depend on them.
func SmallOnPackets(packets, fixed, wire float64) bool { return wire <= fixed && packets < fixed+wire }
