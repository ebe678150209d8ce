package timing

import (
	"math"
	"slices"
)

// ExactSteps is the most steps for which a search times every pattern exactly. The work for that grows with the
// cube of the steps, and that of the greedy timing linearly.
const ExactSteps = 80

// Greedy times the pattern if no unit leaves a step early: it divides every step over the units that are ready in time,
// so that they end together. Its time is an upper bound of Solve's, and Shares attain it. Steps that are joined to the
// one before begin with it, and their units do not wait for each other; Solve ignores this. It returns false once
// the time is at least cutoff.
func (t *Timing) Greedy(steps int, cutoff float64) (float64, bool) {
	t.Shares = resize(t.Shares, len(t.Uses))
	t.idle = resize(t.idle, t.units)
	barrier, end := 0.0, 0.0 // the step's beginning, and the end of all so far
	for i := range steps {
		if !t.Follows(i) {
			barrier = end
		}
		for u := range t.units {
			if k := t.useAt[i*t.units+u]; k >= 0 && t.Uses[k].before >= 0 {
				t.idle[u] += t.switches[t.Uses[k].before].us
			}
		}
		for _, p := range t.Halves(i) {
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
func (t *Timing) divide(i int, h Half, barrier float64) float64 {
	lanes := t.lanes[:0]
	for u := range t.units {
		k := t.useAt[i*t.units+u]
		if k < 0 || !t.Uses[k].Half.Carries(h) {
			continue
		}
		use := &t.Uses[k]
		lanes = append(lanes, Lane{Plane: u, Setup: math.Max(0, t.idle[u]-barrier) + use.O, PerByte: 1 / use.Rate})
	}
	t.lanes = lanes
	t.split = resize(t.split, len(lanes))
	level := Split(lanes, t.Work[i], t.split)
	for j, l := range lanes {
		k := t.useAt[i*t.units+l.Plane]
		t.Shares[k] = math.Max(t.Shares[k], t.split[j])
	}
	return barrier + level
}

// release records when the units of a step become idle.
func (t *Timing) release(i int, barrier float64) {
	for u := range t.units {
		if k := t.useAt[i*t.units+u]; k >= 0 && t.Shares[k] > 0 {
			use := &t.Uses[k]
			t.idle[u] = math.Max(t.idle[u], barrier) + use.O + t.Shares[k]/use.Rate
		}
	}
}

// Follows reports whether step i may begin with the one before it.
func (t *Timing) Follows(i int) bool { return i < len(t.joined) && t.joined[i] }

// Barriers reports whether every step ends before the next begins, as solve assumes.
func (t *Timing) Barriers() bool { return !slices.Contains(t.joined, true) }

// solveFlops estimates the work of solve for the pattern that is set.
func (t *Timing) solveFlops(steps int) float64 {
	s, r := float64(steps), float64(len(t.switches))
	return s*(s+2*r) + r*(s+r)*(s+2*r)/2
}

// Best returns the time of the pattern and what each use transmits, in us of data: exactly where that takes at most
// budget operations, else by the greedy timing.
func (t *Timing) Best(steps int, budget float64) (us float64, data []float64) {
	if t.Exact(steps, budget) {
		if us, ok := t.Solve(steps, math.Inf(1)); ok {
			data = make([]float64, len(t.Uses))
			for k := range data {
				data[k] = t.data(k)
			}
			return us, data
		}
	}
	us, _ = t.Greedy(steps, math.Inf(1))
	return us, slices.Clone(t.Shares)
}

// Trim drops the uses of a pattern that transmit at most dust us of data, unless it then takes longer by more than
// slack: their switches are useful. It returns the rest and the data of its uses. timed times a pattern, drop drops a
// use of the pattern timed last, and served reports whether every flow has a unit.
//
// The tolerance may depend on the us of the pattern. In swot, whose rates are 1, it does not: a part of the us would be
// real bytes of a long pattern. In weave, whose rates are lower, a fixed one would keep uses whose overhead exceeds
// their data.
func Trim[S ~[]E, E comparable](pattern S, timed func(S) (us float64, data []float64), drop func(S, int),
	served func(S) bool, tolerance func(us float64) (dust, slack float64)) (S, []float64) {
	for {
		us, data := timed(pattern)
		dust, slack := tolerance(us)
		lean := slices.Clone(pattern)
		for k, x := range data {
			if x <= dust {
				drop(lean, k)
			}
		}
		if slices.Equal(lean, pattern) || !served(lean) {
			return pattern, data
		}
		if leanUS, _ := timed(lean); leanUS > us+slack {
			return pattern, data
		}
		pattern = lean
	}
}

// Exact reports whether solve times the pattern in at most budget operations.
func (t *Timing) Exact(steps int, budget float64) bool {
	return t.Barriers() && t.solveFlops(steps) <= budget
}

// Lean drops the uses that the greedy timing leaves without bytes, until all have some, and returns the greedy CCT.
// load begins the timing of what is left, of so many steps; drop drops a use.
func (t *Timing) Lean(steps int, load func(), drop func(step, unit int)) float64 {
	for {
		load()
		us, _ := t.Greedy(steps, math.Inf(1))
		dropped := false
		for k, x := range t.Shares {
			if x == 0 {
				drop(t.Uses[k].Step, t.Uses[k].Unit)
				dropped = true
			}
		}
		if !dropped {
			return us
		}
	}
}
