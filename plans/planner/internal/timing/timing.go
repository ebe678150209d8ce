package timing

import (
	"context"
	"math"

	"lightpath/plans/internal/lp"
)

// The timing of a fixed pattern is a linear program. D_i is the length of step i, and M_i its work in us of data on one
// plane. r and o are the rate and overhead of each of its uses. A switch s of a unit is between its uses in steps a and
// b. se_s is the time by which it leaves a early, ss_s the time by which it joins b late.
//
//	minimize    sum D_i
//	(work)      sum over uses of r (D_i - se - ss - o) >= M_i, for each half of the flows
//	(switch)    se_s + ss_s + sum of D_i for a < i < b >= T_s
//	(share)     D_i - se - ss of a unit in step i >= o
//
// Direct circuits have rate 1; on circuits that forward, the rate is 1/L. Leaving early lengthens one step and shortens
// a later one, so no step can be timed alone. It is a covering program: it begins with the work rows, and adds others
// when they are violated. It ends as soon as the value reaches cutoff.

// Timing solves such programs for one fabric, and reuses its buffers. Not safe for concurrent use.
type Timing struct {
	Work   []float64   // per step: us of data on one plane
	Uses   []Use       // of the pattern
	Shares []float64   // per use: us of data that it transmits by the greedy timing
	Stop   func() bool // whether Solve has to give up; nil: never

	units    int
	joined   []bool // per step: it may begin before the one before it has ended
	switches []swap
	useAt    []int32 // (step, unit) -> index into Uses, or -1

	program lp.Program
	scale   float64 // us per unit of time of the program, whose values are of the order of one
	steps   int
	cost    []float64 // scratch: a row, or the objective
	cols    []int32
	slack   []float64 // scratch, per step and half
	greeds  int64     // work of the greedy timings, and of others

	// Scratch of the greedy timing.
	idle, split []float64
	lanes       []Lane
}

// swap is a switch of a unit between its uses in steps a (-1: from the start) and b.
type swap struct {
	a, b int
	us   float64
}

// Use is a unit that works in a step.
type Use struct {
	Step, Unit    int
	Rate          float64 // in planes
	O             float64 // us before its first byte
	Half          Half    // the flows that it carries
	before, after int     // the switches around it, or -1
}

// NoSwitch is the time of a switch before a use that needs none.
const NoSwitch = -1.

// New returns the timing of steps of the given work, in us of data on one plane. A step that is joined
// may begin before the step before it has ended.
func New(units int, work []float64, joined []bool) Timing {
	return Timing{units: units, Work: work, joined: joined, useAt: make([]int32, len(work)*units)}
}

// Clear forgets the pattern. The next one works in the given number of first steps.
func (t *Timing) Clear(steps int) {
	t.Uses, t.switches = t.Uses[:0], t.switches[:0]
	for i := range t.useAt[:steps*t.units] {
		t.useAt[i] = -1
	}
}

// Add adds a use to the pattern, after a switch that takes us, or NoSwitch. Uses come unit by unit, in order of steps.
func (t *Timing) Add(k Use, us float64) {
	k.before, k.after = -1, -1
	if us >= 0 {
		k.before = len(t.switches)
		from := -1
		if last := len(t.Uses) - 1; last >= 0 && t.Uses[last].Unit == k.Unit {
			from, t.Uses[last].after = t.Uses[last].Step, k.before
		}
		t.switches = append(t.switches, swap{from, k.Step, us})
	}
	t.useAt[k.Step*t.units+k.Unit] = int32(len(t.Uses))
	t.Uses = append(t.Uses, k)
}

// At returns the number of the use of a unit in a step, or -1.
func (t *Timing) At(step, unit int) int { return int(t.useAt[step*t.units+unit]) }

// Half selects the flows of a step that a use carries: both halves, the flows up (to ranks less than half the ranks
// ahead) or the flows down.
type Half uint8

// The halves. Up is before Down, so loops run from the one to the other.
const (
	Both Half = iota
	Up
	Down
)

// Carries reports whether a use of h carries flows of g.
func (h Half) Carries(g Half) bool { return h == Both || g == Both || h == g }

// Eps bounds the violation of a row, as a fraction of the scale.
const Eps = 1e-8

// Spend counts operations that a search makes beside the timing.
func (t *Timing) Spend(operations int) { t.greeds += int64(operations) }

// Flops is the work done so far, for budgets that do not depend on the machine.
func (t *Timing) Flops() int64 { return t.program.Work() + t.greeds }

// Solve returns the least time of the pattern whose uses and switches are set. It returns false once that is known to
// be at least cutoff, or the iteration limit is hit.
func (t *Timing) Solve(steps int, cutoff float64) (float64, bool) {
	t.begin(steps)
	pivots := 60 + 12*(steps+len(t.switches))
	for ; pivots > 0 && (t.Stop == nil || !t.Stop()); pivots-- {
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
func (t *Timing) begin(steps int) {
	t.steps = steps
	n := steps + 2*len(t.switches)
	t.cost = resize(t.cost, n)
	t.scale = 0
	for i := range steps {
		t.cost[i] = 1
		t.scale += t.Work[i]
	}
	for i := range t.Uses {
		t.scale += t.Uses[i].O
	}
	for i := range t.switches {
		t.scale += t.switches[i].us
	}
	t.scale /= float64(steps)
	t.program.Lazy = true
	t.program.Reset(t.cost)
	for i := range steps {
		for _, p := range t.Halves(i) {
			t.addWork(i, p)
		}
	}
	t.greeds += int64(steps * n)
}

// The work rows of a step: one where all of its uses carry all flows, else one per half, UpDown.
var (
	undivided = []Half{Both}
	UpDown    = []Half{Up, Down}
)

// Halves returns the halves of a step's flows that its uses tell apart.
func (t *Timing) Halves(step int) []Half {
	for _, k := range t.useAt[step*t.units : (step+1)*t.units] {
		if k >= 0 && t.Uses[k].Half != Both {
			return UpDown
		}
	}
	return undivided
}

// addWork adds the work row of one half of a step.
func (t *Timing) addWork(step int, h Half) {
	t.row()
	rate, rhs := 0.0, t.Work[step]
	for u := range t.units {
		k := t.useAt[step*t.units+u]
		if k < 0 || !t.Uses[k].Half.Carries(h) {
			continue
		}
		use := &t.Uses[k]
		rate += use.Rate
		rhs += use.Rate * use.O
		t.leave(use, -use.Rate)
	}
	t.put(step, rate)
	t.program.Add(t.cols, t.cost, rhs/t.scale)
}

// row begins a row; put adds a term to it.
func (t *Timing) row() { t.cols, t.cost = t.cols[:0], t.cost[:0] }

func (t *Timing) put(v int, coef float64) {
	t.cols, t.cost = append(t.cols, int32(v)), append(t.cost, coef)
}

// leave puts the time that a use loses to the switches around it.
func (t *Timing) leave(k *Use, factor float64) {
	if k.after >= 0 {
		t.put(t.steps+2*k.after, factor)
	}
	if k.before >= 0 {
		t.put(t.steps+2*k.before+1, factor)
	}
}

// value of a variable, in units of the program.
func (t *Timing) value(v int) float64 { return t.program.Value(v) }

// The kinds of rows that addViolated adds.
const (
	workRow = iota
	switchRow
	shareRow
)

// mostViolated finds the most violated constraint: its kind, and which one of that kind; -1 without any.
func (t *Timing) mostViolated() (kind, pick int) {
	worst := -Eps
	pick = -1
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
	for k := range t.Uses {
		u := &t.Uses[k]
		v := t.length(u) - u.O/t.scale
		for i, p := range UpDown {
			if u.Half.Carries(p) {
				t.slack[2*u.Step+i] += u.Rate * v
			}
		}
		if v < worst {
			worst, pick, kind = v, k, shareRow
		}
	}
	for i, v := range t.slack {
		if v -= t.Work[i/2] / t.scale; v < worst {
			worst, pick, kind = v, i, workRow
		}
	}
	t.greeds += int64(4 * (len(t.Uses) + len(t.switches)))
	return kind, pick
}

// addViolated adds the most violated constraint and reports whether there was one.
func (t *Timing) addViolated() bool {
	kind, pick := t.mostViolated()
	if pick < 0 {
		return false
	}
	switch kind {
	case workRow:
		t.addWork(pick/2, UpDown[pick%2])
	case shareRow:
		u := &t.Uses[pick]
		t.row()
		t.put(u.Step, 1)
		t.leave(u, -1)
		t.program.Add(t.cols, t.cost, u.O/t.scale)
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
func (t *Timing) length(k *Use) float64 {
	v := t.value(k.Step)
	if k.after >= 0 {
		v -= t.value(t.steps + 2*k.after)
	}
	if k.before >= 0 {
		v -= t.value(t.steps + 2*k.before + 1)
	}
	return v
}

// data is how many us of data, at full rate, use k transmits in the last solution.
func (t *Timing) data(k int) float64 {
	u := &t.Uses[k]
	return math.Max(0, t.length(u)*t.scale-u.O) * u.Rate
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

// Meter reports when a search has used its share of operations, or its time is over.
type Meter struct {
	Ctx    context.Context
	Timing *Timing // counts the operations
	Limit  int64   // of operations
}

// Spent reports whether the operations are used or the time is over.
func (b *Meter) Spent() bool { return b.Timing.Flops() >= b.Limit || b.Late() }

// Late reports whether the search must end now.
func (b *Meter) Late() bool { return b.Ctx.Err() != nil }
