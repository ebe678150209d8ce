package planner

import (
	"math"

	"lightpath/plans/internal/lp"
)

// The timing of a fixed pattern is a linear program. With D_i the length of step i, M_i its
// work in us of data on one plane, r and o the rate and overhead of each of its uses, and
// for every switch s of a unit between its uses in steps a and b the time se_s by which it
// leaves a early and ss_s by which it joins b late:
//
//	minimize    sum D_i
//	(work)      sum over uses of r (D_i - se - ss - o) >= M_i, for each half of the flows
//	(switch)    se_s + ss_s + sum of D_i for a < i < b >= T_s
//	(share)     D_i - se - ss of a unit in step i >= o
//
// Direct circuits have rate 1; on circuits that forward, the rate is 1/L. Leaving early lengthens one step and shortens
// a later one, so no step can be timed alone. It is a covering program: it begins with the work rows, and adds others
// when they are violated. It ends as soon as the value reaches cutoff.

// timing solves such programs for one fabric, and reuses its buffers. Not safe for concurrent use.
type timing struct {
	units int
	work  []float64 // per step: us of data on one plane

	switches []swap
	uses     []use
	useAt    []int32 // (step, unit) -> index into uses, or -1

	program lp.Program
	stop    func() bool // whether solve has to give up; nil: never
	scale   float64     // us per unit of time of the program, whose values are of the order of one
	steps   int
	cost    []float64 // scratch: a row, or the objective
	cols    []int32
	slack   []float64 // scratch, per step and half
	greeds  int64     // work of the greedy timings

	// Of the greedy timing: what each use transmits, in us of data, and scratch.
	shares, idle, split []float64
	lanes               []lane
	joined              []bool // per step: it may begin before the one before it has ended
}

// swap is a switch of a unit between its uses in steps a (-1: from the start) and b.
type swap struct {
	unit, a, b int
	us         float64
}

// use is a unit that works in a step, with the switches before and after it (-1: none),
// its rate, in planes, and the us before its first byte.
type use struct {
	step, unit    int
	before, after int
	rate, o       float64
	half          half
}

// half selects the flows of a step that a use carries: both halves, the flows up (to ranks less than half the ranks
// ahead) or the flows down.
type half uint8

const (
	both half = iota
	up
	down
)

// carries reports whether a use of h carries flows of g.
func (h half) carries(g half) bool { return h == both || g == both || h == g }

// timingEps bounds the violation of a row, as a fraction of the scale.
const timingEps = 1e-8

// flops is the work done so far, for budgets that do not depend on the machine.
func (t *timing) flops() int64 { return t.program.Work() + t.greeds }

// solve returns the least time of the pattern whose uses and switches are set, or false
// once that is known to be at least cutoff (or the iteration limit is hit).
func (t *timing) solve(steps int, cutoff float64) (float64, bool) {
	t.begin(steps)
	pivots := 60 + 12*(steps+len(t.switches))
	for ; pivots > 0 && (t.stop == nil || !t.stop()); pivots-- {
		// Only the number of pivots bounds the number of added rows.
		v, status := t.program.Solve(cutoff/t.scale, pivots)
		if status != lp.Optimal {
			return v * t.scale, false
		}
		if !t.addViolated() {
			return v * t.scale, true
		}
	}
	return 0, false
}

// Variables: D_i is i; se_s is steps+2s, ss_s is steps+2s+1.

// begin states the objective and the work rows.
func (t *timing) begin(steps int) {
	t.steps = steps
	n := steps + 2*len(t.switches)
	t.cost = resize(t.cost, n)
	t.scale = 0
	for i := range steps {
		t.cost[i] = 1
		t.scale += t.work[i]
	}
	for i := range t.uses {
		t.scale += t.uses[i].o
	}
	for i := range t.switches {
		t.scale += t.switches[i].us
	}
	t.scale /= float64(steps)
	t.program.Lazy = true
	t.program.Reset(t.cost)
	for i := range steps {
		for _, p := range t.halves(i) {
			t.addWork(i, p)
		}
	}
	t.greeds += int64(steps * n)
}

// The work rows of a step: one where all of its uses carry all flows, else one per half.
var (
	undivided = []half{both}
	divided   = []half{up, down}
)

// halves returns the halves of a step's flows that its uses tell apart.
func (t *timing) halves(step int) []half {
	for _, k := range t.useAt[step*t.units : (step+1)*t.units] {
		if k >= 0 && t.uses[k].half != both {
			return divided
		}
	}
	return undivided
}

// addWork adds the work row of one half of a step.
func (t *timing) addWork(step int, h half) {
	t.row()
	rate, rhs := 0.0, t.work[step]
	for u := range t.units {
		k := t.useAt[step*t.units+u]
		if k < 0 || !t.uses[k].half.carries(h) {
			continue
		}
		use := &t.uses[k]
		rate += use.rate
		rhs += use.rate * use.o
		t.leave(use, -use.rate)
	}
	t.put(step, rate)
	t.program.Add(t.cols, t.cost, rhs/t.scale)
}

// row begins a row; put adds a term to it.
func (t *timing) row() { t.cols, t.cost = t.cols[:0], t.cost[:0] }

func (t *timing) put(v int, coef float64) {
	t.cols, t.cost = append(t.cols, int32(v)), append(t.cost, coef)
}

// leave puts the time that a use loses to the switches around it.
func (t *timing) leave(k *use, factor float64) {
	if k.after >= 0 {
		t.put(t.steps+2*k.after, factor)
	}
	if k.before >= 0 {
		t.put(t.steps+2*k.before+1, factor)
	}
}

// value of a variable, in units of the program.
func (t *timing) value(v int) float64 { return t.program.Value(v) }

// The kinds of rows that addViolated adds.
const (
	workRow = iota
	switchRow
	shareRow
)

// addViolated adds the most violated constraint and reports whether there was one.
func (t *timing) addViolated() bool {
	worst, pick, kind := -timingEps, -1, 0
	for r := range t.switches {
		s := &t.switches[r]
		v := t.value(t.steps+2*r+1) - s.us/t.scale
		if s.a >= 0 {
			v += t.value(t.steps + 2*r)
		}
		for i := s.a + 1; i < s.b && v < 0; i++ {
			v += t.value(i)
		}
		if v < worst {
			worst, pick, kind = v, r, switchRow
		}
	}
	t.slack = resize(t.slack, 2*t.steps)
	for k := range t.uses {
		u := &t.uses[k]
		v := t.length(u) - u.o/t.scale
		for i, p := range divided {
			if u.half.carries(p) {
				t.slack[2*u.step+i] += u.rate * v
			}
		}
		if v < worst {
			worst, pick, kind = v, k, shareRow
		}
	}
	for i, v := range t.slack {
		if v -= t.work[i/2] / t.scale; v < worst {
			worst, pick, kind = v, i, workRow
		}
	}
	t.greeds += int64(4 * (len(t.uses) + len(t.switches)))
	if pick < 0 {
		return false
	}
	switch kind {
	case workRow:
		t.addWork(pick/2, divided[pick%2])
	case shareRow:
		u := &t.uses[pick]
		t.row()
		t.put(u.step, 1)
		t.leave(u, -1)
		t.program.Add(t.cols, t.cost, u.o/t.scale)
	case switchRow:
		s := &t.switches[pick]
		t.row()
		if s.a >= 0 {
			t.put(t.steps+2*pick, 1)
		}
		t.put(t.steps+2*pick+1, 1)
		for i := s.a + 1; i < s.b; i++ {
			t.put(i, 1)
		}
		t.program.Add(t.cols, t.cost, s.us/t.scale)
	}
	return true
}

// length of a use in units of the program, overhead included.
func (t *timing) length(k *use) float64 {
	v := t.value(k.step)
	if k.after >= 0 {
		v -= t.value(t.steps + 2*k.after)
	}
	if k.before >= 0 {
		v -= t.value(t.steps + 2*k.before + 1)
	}
	return v
}

// data is how many us of data, at full rate, use k transmits in the last solution.
func (t *timing) data(k int) float64 {
	u := &t.uses[k]
	return math.Max(0, t.length(u)*t.scale-u.o) * u.rate
}

// resize returns a zeroed slice of length n, reusing s.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, 2*n)
	}
	s = s[:n]
	clear(s)
	return s
}
