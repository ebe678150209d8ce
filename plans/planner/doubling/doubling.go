package doubling

import (
	"math"

	"lightpath/plans"
)

// MaxSteps and maxShifts bound recursive doubling on plans.MaxRanks ranks.
const (
	MaxSteps  = 64
	maxShifts = 12
)

// Step is a step of cyclic recursive doubling: every rank r sends Bytes to
// r + 2^Log2. Log2 is below 12.
type Step struct {
	Log2  int
	Bytes float64
}

// Schedule holds the shift of the circuits for each step.
type Schedule struct {
	US   float64        // completion time, switches included
	Log2 [MaxSteps]int8 // per step: circuits r -> r + 2^Log2
}

// Synthesize is HARVEST for recursive doubling (Section 5): where to switch, all
// planes in lockstep, so that steps on circuits of a smaller shift (Observations 3 and 4)
// and switches together take least. On circuits of shift 2^d a step of shift 2^e >= 2^d takes
// 2^(e-d) hops and as many flows share each circuit (Equation 8). The first setting is
// free. It reads only the costs, planes and rate of p, and at most MaxSteps steps. The number of ranks must be
// a power of two. It does not allocate, and is safe for concurrent use.
func Synthesize(p *plans.Problem, steps []Step) Schedule {
	var (
		out  Schedule
		cost [maxShifts]float64 // of the best schedule that ends on each shift
		from [MaxSteps][maxShifts]int8
	)
	steps = steps[:min(len(steps), MaxSteps)]
	if len(steps) == 0 {
		return out
	}
	reconfig := plans.ReconfigPortsUS(p, p.Ranks)
	perByte := 8e-3 / p.BandwidthGbps / float64(p.Planes)
	for i, st := range steps {
		best := 0
		for d := range cost {
			if cost[d] < cost[best] {
				best = d
			}
		}
		move := cost[best] + reconfig
		for d := range cost {
			from[i][d] = int8(d)
			if i > 0 && move < cost[d]-plans.Tolerance(move, move) { // staying wins ties
				cost[d], from[i][d] = move, int8(best)
			}
			if d > st.Log2 {
				cost[d] = math.Inf(1) // its cycles do not reach that far along
				continue
			}
			hops := float64(int(1) << (st.Log2 - d))
			cost[d] += p.AlphaUS + p.HopUS*hops + perByte*st.Bytes*hops
		}
	}
	at := 0
	for d := range cost {
		if cost[d] < cost[at]-plans.Tolerance(cost[d], cost[d]) {
			at = d
		}
	}
	out.US = cost[at]
	for i := len(steps) - 1; i >= 0; i-- {
		out.Log2[i] = int8(at)
		at = int(from[i][at])
	}
	return out
}
