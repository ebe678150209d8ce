package dispatch

import (
	"lightpath/plans/fabric"
	"lightpath/plans/packets"
	"lightpath/shim/calls"
	"lightpath/shim/settings"
)

// roughCosts are those of packet planes by transport: one host, a 10 Gb/s network, and 100 Gb/s networks.
var roughCosts = map[string]packets.Costs{
	"inproc": {AlphaUS: 0.5, Gbps: 80}, "shm": {AlphaUS: 1, Gbps: 40}, "tcp": {AlphaUS: 20, Gbps: 10},
	"rdma": {AlphaUS: 3, Gbps: 100}, "net": {AlphaUS: 10, Gbps: 100},
}

// PacketCosts returns the costs of the packet planes of a transport: those of the fabric file, else rough constants.
func PacketCosts(transport string, fab *fabric.Fabric) packets.Costs {
	costs := packets.Of(fab)
	if rough := roughCosts[transport]; !costs.Stated {
		costs.AlphaUS, costs.Gbps = rough.AlphaUS, rough.Gbps
	}
	return costs
}

// PacketsUS predicts the time of a collective on packet planes, in microseconds.
func PacketsUS(s calls.Shape, ranks int, from *Choices, cfg *settings.Config, costs *packets.Costs) (float64, error) {
	col, err := BuildSchedule(&s, ranks, from, cfg, nil)
	if err != nil {
		return 0, err
	}
	rounds, chunks := col.Steps.Packets()
	block := float64(s.Count) * float64(s.Type.Size())
	return costs.US(rounds, float64(chunks)*block/float64(col.Steps.Sub)), nil
}
