package planner_test

import (
	"lightpath/plans"
	"lightpath/plans/circuit"
)

const mb = 1e6

// fabric returns a problem without steps, of the SWOT evaluation's shape: 800 Gb/s per
// rank over k planes.
func fabric(ranks, planes int, latency, reconfig float64) *plans.Problem {
	return &plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: planes, BandwidthGbps: 800 / float64(planes),
		AlphaUS: latency, ReconfigUS: reconfig, Circuits: plans.Simplex,
	}
}

// rabenseifner adds the steps of recursive halving and doubling over xor patterns.
func rabenseifner(p *plans.Problem, bytes float64) *plans.Problem {
	var halving []plans.Step
	for m := 1; m < p.Ranks; m *= 2 {
		bytes /= 2
		halving = append(halving, plans.Step{Bytes: bytes, To: circuit.Xor(p.Ranks, m)})
	}
	p.Steps = append(p.Steps, halving...)
	for i := len(halving) - 1; i >= 0; i-- {
		p.Steps = append(p.Steps, halving[i])
	}
	return p
}

// pairwise adds the steps of the pairwise exchange.
func pairwise(p *plans.Problem, bytes float64) *plans.Problem {
	for d := 1; d < p.Ranks; d++ {
		p.Steps = append(p.Steps, plans.Step{Bytes: bytes / float64(p.Ranks), To: circuit.Shift(p.Ranks, d)})
	}
	return p
}

// cyclicDoubling adds the reduce-scatter half of cyclic recursive doubling.
func cyclicDoubling(p *plans.Problem, bytes float64) *plans.Problem {
	for d := 1; d < p.Ranks; d *= 2 {
		bytes /= 2
		p.Steps = append(p.Steps, plans.Step{Bytes: bytes, To: circuit.Shift(p.Ranks, d)})
	}
	return p
}

// startOn gives every plane the same initial circuits.
func startOn(p *plans.Problem, c circuit.Permutation) *plans.Problem {
	p.Initial = nil
	for range p.Planes {
		p.Initial = append(p.Initial, c)
	}
	return p
}

// fig5 is the example of SWOT, Fig. 5.
func fig5() *plans.Problem {
	return startOn(rabenseifner(fabric(8, 2, 0, 200), 40*mb), circuit.Xor(8, 1))
}
