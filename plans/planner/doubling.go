package planner

import (
	"math"
	"math/bits"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// MaxDoublingSteps and maxDoublingShifts bound recursive doubling on plans.MaxRanks ranks.
const (
	MaxDoublingSteps  = 64
	maxDoublingShifts = 12
)

// DoublingStep is a step of cyclic recursive doubling: every rank r sends Bytes to
// r + 2^Log2. Log2 is below 12.
type DoublingStep struct {
	Log2  int
	Bytes float64
}

// DoublingSchedule holds the shift of the circuits for each step.
type DoublingSchedule struct {
	US        float64                // completion time, switches included
	Reconfigs int                    // switches, the free first setting not counted
	Log2      [MaxDoublingSteps]int8 // per step: circuits r -> r + 2^Log2
}

// SynthesizeDoubling is HARVEST for recursive doubling (Section 5): where to switch, all
// planes in lockstep, so that steps on circuits of a smaller shift (Observations 3 and 4)
// and switches together take least. On circuits of shift 2^d a step of shift 2^e >= 2^d takes
// 2^(e-d) hops and as many flows share each circuit (Equation 8). The first setting is
// free. It reads only the costs, planes and rate of p, and at most MaxDoublingSteps steps. The number of ranks must be
// a power of two. It does not allocate, and is safe for concurrent use.
func SynthesizeDoubling(p *plans.Problem, steps []DoublingStep) DoublingSchedule {
	var (
		out  DoublingSchedule
		cost [maxDoublingShifts]float64 // of the best schedule that ends on each shift
		from [MaxDoublingSteps][maxDoublingShifts]int8
	)
	steps = steps[:min(len(steps), MaxDoublingSteps)]
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
			if i > 0 && move < cost[d]-tolerance(move) { // staying wins ties
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
		if cost[d] < cost[at]-tolerance(cost[d]) {
			at = d
		}
	}
	out.US = cost[at]
	for i := len(steps) - 1; i >= 0; i-- {
		out.Log2[i] = int8(at)
		if before := int(from[i][at]); before != at {
			out.Reconfigs++
			at = before
		}
	}
	return out
}

// doublingSteps recognises cyclic recursive doubling, in any order of its shifts.
func (m *model) doublingSteps() ([]DoublingStep, bool) {
	n := m.p.Ranks
	if !m.p.Forwarding || m.p.Circuits != plans.Simplex || m.p.Initial != nil ||
		n < 2 || n&(n-1) != 0 || len(m.steps) == 0 || len(m.steps) > MaxDoublingSteps {
		return nil, false
	}
	steps := make([]DoublingStep, len(m.steps))
	for i := range m.steps {
		st := &m.steps[i]
		if st.pattern == nil {
			return nil, false
		}
		d := st.pattern[0]
		if d < 1 || d&(d-1) != 0 {
			return nil, false
		}
		for r, to := range st.pattern {
			if to != (r+d)&(n-1) {
				return nil, false
			}
		}
		steps[i] = DoublingStep{Log2: bits.TrailingZeros(uint(d)), Bytes: st.bytes}
	}
	return steps, true
}

// solveDoubling writes the plan of recursive doubling.
func (m *model) solveDoubling(steps []DoublingStep) *plans.Plan {
	s := SynthesizeDoubling(m.p, steps)
	var shifts [maxDoublingShifts]circuit.Permutation
	setting := func(i int) []circuit.Permutation {
		d := s.Log2[i]
		if shifts[d] == nil {
			shifts[d] = circuit.Shift(m.p.Ranks, 1<<d)
		}
		return []circuit.Permutation{shifts[d]}
	}
	t := newTimeline(m, m.everyUnit(setting(0)))
	for i := range m.steps {
		if i > 0 && s.Log2[i] != s.Log2[i-1] {
			t.lockstep(m.everyUnit(setting(i)), true)
		}
		hops := 1 << (steps[i].Log2 - int(s.Log2[i]))
		for j := range t.current {
			t.transmit(j, &m.steps[i], m.steps[i].bytes/float64(m.p.Planes), hops, hops)
		}
		t.closeStep()
	}
	return t.finish("harvest")
}
