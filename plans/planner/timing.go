package planner

import "math"

// The timing of a fixed pattern is a linear program. With D_i the length of step i, o the
// overhead and n_i the units used in it, and for every switch r of a unit between its uses
// in steps a and b the time se_r by which it leaves a early and ss_r by which it joins b late:
//
//	minimize    sum D_i
//	(work)      n_i D_i - sum of se and ss in step i >= M_i + n_i o
//	(switch)    se_r + ss_r + sum of D_i for a < i < b >= T_r
//	(share)     D_i - se - ss of a unit in step i >= o
//
// Leaving early costs now and pays later, so no step can be timed alone. The program is
// solved by the dual simplex method on a dictionary that holds only the rows in play
// (a surplus that becomes basic loses its row):
// it starts from the work rows, for which D_i = (M_i + n_i o)/n_i is dual feasible, and
// adds rows as they are violated. Its objective rises from below, so a
// caller who only wants better than cutoff gets its answer early.

// timing solves such programs for one fabric; its buffers are reused. For one goroutine.
type timing struct {
	units int
	o     float64   // us of overhead per use
	work  []float64 // per step: us of data on a single unit

	switches []swap
	uses     []use
	useAt    []int32 // (step, unit) -> index into uses, or -1

	// The dictionary: basic = rhs + sum coef*nonbasic over columns.
	steps, cols int
	rows        [][]float64 // [row][col]; the last element is rhs
	basic       []int32     // variable of each row
	cost        []float64   // objective over columns; the last element is its value
	colVar      []int32     // variable of each column
	rowOf       []int32     // structural variable -> row, or -1-column
	spare       [][]float64
	slack       []float64 // scratch, per step
	flops       int64     // work done, for deterministic budgets

	// Of the greedy timing: what each use transmits, in us, and scratch.
	shares, idle, split []float64
	lanes               []lane
}

// swap is a switch of a unit between its uses in steps a (-1: from the start) and b.
type swap struct {
	unit, a, b int
	us         float64
}

// use is a unit that works in a step, with the switches before and after it (-1: none).
type use struct {
	step, unit    int
	before, after int
}

const (
	pivotEps  = 1e-9
	timingEps = 1e-7 // us by which a row may be violated
)

// solve returns the least time of the pattern whose uses and switches are set, or false
// once that is known to be at least cutoff (or the iteration limit is hit).
func (t *timing) solve(steps int, cutoff float64) (float64, bool) {
	t.begin(steps)
	limit := 60 + 12*(steps+len(t.switches))
	for ; limit > 0; limit-- {
		if t.cost[t.cols] >= cutoff {
			return t.cost[t.cols], false
		}
		row := t.leaving()
		if row < 0 {
			if row = t.addViolated(); row < 0 {
				return t.cost[t.cols], true
			}
		}
		col := t.entering(row)
		if col < 0 {
			return math.Inf(1), false
		}
		t.pivot(row, col)
	}
	return t.cost[t.cols], false
}

// Variables: D_i is i; se_r is steps+2r, ss_r is steps+2r+1; every later number is the
// surplus of some row, which has no row of its own once it is basic.

func (t *timing) begin(steps int) {
	t.steps, t.cols = steps, steps+2*len(t.switches)
	t.spare = append(t.spare, t.rows...)
	t.rows, t.basic = t.rows[:0], t.basic[:0]
	t.cost = resize(t.cost, t.cols+1)
	t.colVar = resize(t.colVar, t.cols)
	t.rowOf = resize(t.rowOf, t.cols)
	for c := range t.colVar {
		t.colVar[c], t.rowOf[c] = int32(c), int32(-1-c)
	}
	for i := 0; i < steps; i++ {
		row := t.newRow()
		used := 0
		for u := 0; u < t.units; u++ {
			k := t.useAt[i*t.units+u]
			if k < 0 {
				continue
			}
			used++
			if r := t.uses[k].after; r >= 0 {
				row[steps+2*r] = 1
			}
			if r := t.uses[k].before; r >= 0 {
				row[steps+2*r+1] = 1
			}
		}
		n := float64(used)
		for c := steps; c < t.cols; c++ {
			row[c] /= n
			t.cost[c] += row[c]
		}
		row[i] = 1 / n // the surplus of the work row has the column of D_i
		row[t.cols] = (t.work[i] + n*t.o) / n
		t.cost[i] += 1 / n
		t.cost[t.cols] += row[t.cols]
		t.colVar[i] = int32(t.cols)
		t.rows = append(t.rows, row)
		t.basic = append(t.basic, int32(i))
		t.rowOf[i] = int32(i)
	}
	t.flops += int64(steps * t.cols)
}

func (t *timing) newRow() []float64 {
	if n := len(t.spare); n > 0 && cap(t.spare[n-1]) > t.cols {
		row := t.spare[n-1][:t.cols+1]
		t.spare = t.spare[:n-1]
		clear(row)
		return row
	}
	return make([]float64, t.cols+1, 2*t.cols+8)
}

// leaving returns the row with the most negative value.
func (t *timing) leaving() int {
	best, worst := -1, -timingEps
	for i, r := range t.rows {
		if v := r[t.cols]; v < worst {
			best, worst = i, v
		}
	}
	return best
}

// value of a structural variable.
func (t *timing) value(v int) float64 {
	if r := t.rowOf[v]; r >= 0 {
		return t.rows[r][t.cols]
	}
	return 0
}

// The kinds of rows that addViolated adds.
const (
	workRow = iota
	switchRow
	shareRow
)

// addViolated adds the most violated constraint and returns its row, or -1.
func (t *timing) addViolated() int {
	worst, pick, kind := -timingEps, -1, 0
	for r := range t.switches {
		s := &t.switches[r]
		v := t.value(t.steps+2*r+1) - s.us
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
	t.slack = resize(t.slack, t.steps)
	for k := range t.uses {
		v := t.share(k) - t.o
		t.slack[t.uses[k].step] += v
		if v < worst {
			worst, pick, kind = v, k, shareRow
		}
	}
	for i, v := range t.slack {
		if v -= t.work[i]; v < worst {
			worst, pick, kind = v, i, workRow
		}
	}
	if pick < 0 {
		return -1
	}
	row := t.newRow()
	switch kind {
	case workRow:
		for u := 0; u < t.units; u++ {
			if k := t.useAt[pick*t.units+u]; k >= 0 {
				t.addShare(row, &t.uses[k])
			}
		}
		row[t.cols] -= t.work[pick]
	case shareRow:
		t.addShare(row, &t.uses[pick])
	case switchRow:
		s := &t.switches[pick]
		if s.a >= 0 {
			t.addTo(row, t.steps+2*pick, 1)
		}
		t.addTo(row, t.steps+2*pick+1, 1)
		for i := s.a + 1; i < s.b; i++ {
			t.addTo(row, i, 1)
		}
		row[t.cols] -= s.us
	}
	t.rows = append(t.rows, row)
	t.basic = append(t.basic, int32(t.cols))
	return len(t.rows) - 1
}

// addShare adds the time that use k transmits, without the overhead, to row.
func (t *timing) addShare(row []float64, k *use) {
	t.addTo(row, k.step, 1)
	if k.after >= 0 {
		t.addTo(row, t.steps+2*k.after, -1)
	}
	if k.before >= 0 {
		t.addTo(row, t.steps+2*k.before+1, -1)
	}
	row[t.cols] -= t.o
}

// share is how long unit k's use may transmit, overhead included.
func (t *timing) share(k int) float64 {
	u := &t.uses[k]
	v := t.value(u.step)
	if u.after >= 0 {
		v -= t.value(t.steps + 2*u.after)
	}
	if u.before >= 0 {
		v -= t.value(t.steps + 2*u.before + 1)
	}
	return v
}

// addTo adds factor times a structural variable, in terms of the columns, to row.
func (t *timing) addTo(row []float64, v int, factor float64) {
	at := t.rowOf[v]
	if at < 0 {
		row[-1-at] += factor
		return
	}
	for c, x := range t.rows[at] {
		row[c] += factor * x
	}
	t.flops += int64(t.cols)
}

// entering returns the column whose cost rises least per unit of relief, or -1.
func (t *timing) entering(row int) int {
	best, ratio, size := -1, math.Inf(1), 0.0
	for c, x := range t.rows[row][:t.cols] {
		if x <= pivotEps {
			continue
		}
		q := t.cost[c] / x
		if q < ratio-1e-12 || (q < ratio+1e-12 && x > size) {
			best, ratio, size = c, q, x
		}
	}
	return best
}

// pivot exchanges the row's variable, which leaves at zero, and the column's. A surplus
// that becomes basic loses its row.
func (t *timing) pivot(row, col int) {
	pr := t.rows[row]
	inv := 1 / pr[col]
	pr[col] = -1
	for c := range pr {
		pr[c] *= -inv
	}
	// Now: entering = sum pr*columns + rhs, where column col stands for the leaving variable.
	for i, r := range t.rows {
		if i != row && r[col] != 0 {
			eliminate(r, pr, col)
			t.flops += int64(t.cols)
		}
	}
	if t.cost[col] != 0 {
		eliminate(t.cost, pr, col)
	}
	t.flops += int64(2 * t.cols)
	in, out := t.colVar[col], t.basic[row]
	t.colVar[col] = out
	if int(out) < t.cols {
		t.rowOf[out] = int32(-1 - col)
	}
	if int(in) < t.cols {
		t.basic[row], t.rowOf[in] = in, int32(row)
		return
	}
	last := len(t.rows) - 1
	t.spare = append(t.spare, pr)
	t.rows[row], t.basic[row] = t.rows[last], t.basic[last]
	if row != last {
		t.rowOf[t.basic[row]] = int32(row)
	}
	t.rows, t.basic = t.rows[:last], t.basic[:last]
}

// eliminate replaces column col of r by its expression pr.
func eliminate(r, pr []float64, col int) {
	f := r[col]
	r[col] = 0
	pr = pr[:len(r)]
	for c := range r {
		r[c] += f * pr[c]
	}
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
