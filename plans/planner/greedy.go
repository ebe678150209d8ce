package planner

import "math"

// exactTimingSteps is the most steps for which a search times every pattern exactly;
// the program grows with the cube of the steps, the greedy timing linearly.
const exactTimingSteps = 80

// greedy times the pattern without letting any unit leave a step early: every step is
// divided so that all its units end together, over those that are ready in time. That is
// an upper bound of solve, attained by shares. False once it is known to be at least cutoff.
func (t *timing) greedy(steps int, cutoff float64) (float64, bool) {
	t.shares = resize(t.shares, len(t.uses))
	t.idle = resize(t.idle, t.units)
	barrier := 0.0
	for i := 0; i < steps; i++ {
		lanes := t.lanes[:0]
		for u := 0; u < t.units; u++ {
			k := t.useAt[i*t.units+u]
			if k < 0 {
				continue
			}
			if r := t.uses[k].before; r >= 0 {
				t.idle[u] += t.switches[r].us
			}
			lanes = append(lanes, lane{plane: u, setup: math.Max(0, t.idle[u]-barrier) + t.o, perByte: 1})
		}
		t.lanes = lanes
		t.split = resize(t.split, len(lanes))
		level := split(lanes, t.work[i], t.split)
		barrier += level
		for j, l := range lanes {
			t.shares[t.useAt[i*t.units+l.plane]] = t.split[j]
			if t.split[j] > 0 {
				t.idle[l.plane] = barrier
			}
		}
		if barrier >= cutoff {
			return barrier, false
		}
	}
	t.flops += int64(80 * steps * t.units)
	return barrier, true
}

// solveFlops estimates the work of solve for the pattern that is set.
func (t *timing) solveFlops(steps int) float64 {
	s, r := float64(steps), float64(len(t.switches))
	return s*(s+2*r) + r*(s+r)*(s+2*r)/2
}
