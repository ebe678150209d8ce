package planner

import (
	"math"
	"slices"
)

// exactTimingSteps is the most steps for which a search times every pattern exactly. The work for that grows with the
// cube of the steps, and that of the greedy timing linearly.
const exactTimingSteps = 80

// greedy times the pattern if no unit leaves a step early: it divides every step over the units that are ready in time,
// so that they end together. Its time is an upper bound of solve's, and shares attain it. Steps that are joined to the
// one before begin with it, and their units do not wait for each other; solve ignores this. greedy returns false once
// the time is at least cutoff.
func (t *timing) greedy(steps int, cutoff float64) (float64, bool) {
	t.shares = resize(t.shares, len(t.uses))
	t.idle = resize(t.idle, t.units)
	barrier, end := 0.0, 0.0 // the step's beginning, and the end of all so far
	for i := range steps {
		if !t.follows(i) {
			barrier = end
		}
		for u := range t.units {
			if k := t.useAt[i*t.units+u]; k >= 0 && t.uses[k].before >= 0 {
				t.idle[u] += t.switches[t.uses[k].before].us
			}
		}
		for _, p := range t.halves(i) {
			end = math.Max(end, t.divide(i, p, barrier))
		}
		t.release(i, barrier)
		if end >= cutoff {
			return end, false
		}
	}
	t.greeds += int64(80 * steps * t.units)
	return end, true
}

// divide divides one half of a step over its uses and returns when they end.
func (t *timing) divide(i int, h half, barrier float64) float64 {
	lanes := t.lanes[:0]
	for u := range t.units {
		k := t.useAt[i*t.units+u]
		if k < 0 || !t.uses[k].half.carries(h) {
			continue
		}
		use := &t.uses[k]
		lanes = append(lanes, lane{plane: u, setup: math.Max(0, t.idle[u]-barrier) + use.o, perByte: 1 / use.rate})
	}
	t.lanes = lanes
	t.split = resize(t.split, len(lanes))
	level := split(lanes, t.work[i], t.split)
	for j, l := range lanes {
		k := t.useAt[i*t.units+l.plane]
		t.shares[k] = math.Max(t.shares[k], t.split[j])
	}
	return barrier + level
}

// release records when the units of a step become idle.
func (t *timing) release(i int, barrier float64) {
	for u := range t.units {
		if k := t.useAt[i*t.units+u]; k >= 0 && t.shares[k] > 0 {
			use := &t.uses[k]
			t.idle[u] = math.Max(t.idle[u], barrier) + use.o + t.shares[k]/use.rate
		}
	}
}

// follows reports whether step i may begin with the one before it.
func (t *timing) follows(i int) bool { return i < len(t.joined) && t.joined[i] }

// barriers reports whether every step ends before the next begins, as solve assumes.
func (t *timing) barriers() bool { return !slices.Contains(t.joined, true) }

// solveFlops estimates the work of solve for the pattern that is set.
func (t *timing) solveFlops(steps int) float64 {
	s, r := float64(steps), float64(len(t.switches))
	return s*(s+2*r) + r*(s+r)*(s+2*r)/2
}
