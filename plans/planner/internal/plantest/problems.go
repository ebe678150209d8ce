package plantest

import (
	"math/rand/v2"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// LoopProblem has two planes and, per step, a shift and megabytes that take 100 us each.
func LoopProblem(reconfig float64, steps ...[2]int) *plans.Problem {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 80, ReconfigUS: reconfig,
		Circuits: plans.Simplex, Final: plans.Final{Kind: plans.FinalInitial},
	}
	for _, s := range steps {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e6 * float64(s[1]), To: circuit.Shift(8, s[0])})
	}
	return p
}

// RandomSteps is a small problem of shift patterns; free, dark or given circuits.
func RandomSteps(rng *rand.Rand, steps, planes int) *plans.Problem {
	n := 5
	p := &plans.Problem{
		Version: plans.Version, Ranks: n, Planes: planes, BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: []float64{0, 20}[rng.IntN(2)], ReconfigUS: []float64{30, 200}[rng.IntN(2)],
	}
	for range steps {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e4 * (1 + 30*rng.Float64()), To: circuit.Shift(n, 1+rng.IntN(3))})
	}
	if kind := rng.IntN(3); kind > 0 {
		for range planes {
			p.Initial = append(p.Initial, circuit.Shift(n, 1+rng.IntN(3)))
			if kind == 2 {
				p.Initial[0] = circuit.AllDark(n)
			}
		}
	}
	return p
}

// RandomForwarding is a small problem of steps that are patterns, on a fabric that forwards.
func RandomForwarding(rng *rand.Rand) *plans.Problem {
	n := 3 + rng.IntN(3)
	p := &plans.Problem{
		Version: plans.Version, Ranks: n, Planes: 1 + rng.IntN(2), BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: float64(rng.IntN(3)), HopUS: float64(rng.IntN(4)), ReconfigUS: float64(1 + rng.IntN(60)), Forwarding: true,
	}
	if rng.IntN(3) == 0 {
		p.ReconfigPerPort = 2
	}
	for range 1 + rng.IntN(4) {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e3 * float64(1+rng.IntN(40)), To: circuit.Shift(n, 1+rng.IntN(n-1))})
	}
	if rng.IntN(2) == 0 {
		for range p.Planes {
			p.Initial = append(p.Initial, circuit.Shift(n, 1+rng.IntN(n-1)))
		}
	}
	return p
}

// AllToAll lists every flow of n ranks.
func AllToAll(n int) (flows [][2]int) {
	for s := range n {
		for d := range n {
			if s != d {
				flows = append(flows, [2]int{s, d})
			}
		}
	}
	return flows
}
