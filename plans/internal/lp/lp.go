package lp

import (
	"math"
	"slices"
)

// Status is how a call of [Program.Solve] ended.
type Status int

// What Solve can find.
const (
	Optimal    Status = iota // of the rows added so far
	Cutoff                   // the optimum is at least the cutoff
	Infeasible               // no x satisfies the rows
	GaveUp                   // out of pivots; the value is still a bound from below
)

// Tolerances of values of the order of one; callers scale their programs accordingly.
const (
	pivotEps = 1e-9
	// Violation is how far a row's value may be below its right-hand side.
	Violation = 1e-9
)

// Program is a covering program and its current basis. The zero value needs a Reset;
// buffers are reused. Not safe for concurrent use.
type Program struct {
	// Lazy means that the caller looks for violated rows after every Solve. Then Solve drops rows that become slack,
	// and the caller adds them again, with a new number, if they are violated again.
	Lazy bool

	n       int         // structural variables, and columns
	rows    [][]float64 // basic = rhs + sum coef*nonbasic; the last element is rhs
	basic   []int32     // variable of each row; n+r is the surplus of row r
	cost    []float64   // objective over columns; the last element is its value
	colVar  []int32     // variable of each column
	where   []int32     // structural variable -> row, or -1-column
	surplus []int32     // row number -> its surplus' column, or -1 where that is basic
	spare   [][]float64
	work    int64
}

// Reset starts a program without rows over len(cost) variables; costs must not be negative.
// cost is not kept.
func (p *Program) Reset(cost []float64) {
	p.n = len(cost)
	p.spare = append(p.spare, p.rows...)
	p.rows, p.basic, p.surplus = p.rows[:0], p.basic[:0], p.surplus[:0]
	p.cost = append(append(p.cost[:0], cost...), 0)
	p.colVar = slices.Grow(p.colVar[:0], p.n)[:p.n]
	p.where = slices.Grow(p.where[:0], p.n)[:p.n]
	for c := range p.colVar {
		p.colVar[c], p.where[c] = int32(c), int32(-1-c)
	}
}

// Add states sum of coef[i] * x[cols[i]] >= rhs and returns the row's number, counted from
// 0. The slices are not kept.
func (p *Program) Add(cols []int32, coef []float64, rhs float64) int {
	row := p.newRow()
	for i, v := range cols {
		p.addTo(row, v, coef[i])
	}
	row[p.n] -= rhs
	id := len(p.surplus)
	p.surplus = append(p.surplus, -1)
	p.rows = append(p.rows, row)
	p.basic = append(p.basic, int32(p.n+id))
	return id
}

func (p *Program) newRow() []float64 {
	if k := len(p.spare); k > 0 && cap(p.spare[k-1]) > p.n {
		row := p.spare[k-1][:p.n+1]
		p.spare = p.spare[:k-1]
		clear(row)
		return row
	}
	return make([]float64, p.n+1)
}

// addTo adds factor times a structural variable, in terms of the columns, to row.
func (p *Program) addTo(row []float64, v int32, factor float64) {
	at := p.where[v]
	if at < 0 {
		row[-1-at] += factor
		return
	}
	for c, x := range p.rows[at] {
		row[c] += factor * x
	}
	p.work += int64(p.n)
}

// Solve minimizes over the rows added so far, from where the last call stopped, with at
// most the given number of pivots. It returns the value reached, which never exceeds the
// optimum: the optimum if the status is Optimal, +Inf if it is Infeasible.
func (p *Program) Solve(cutoff float64, pivots int) (float64, Status) {
	for ; ; pivots-- {
		if p.cost[p.n] >= cutoff {
			return p.cost[p.n], Cutoff
		}
		row := p.leaving()
		if row < 0 {
			return p.cost[p.n], Optimal
		}
		if pivots <= 0 {
			return p.cost[p.n], GaveUp
		}
		col := p.entering(row)
		if col < 0 {
			return math.Inf(1), Infeasible
		}
		p.pivot(row, col)
	}
}

// Value returns x[v] in the current basis.
func (p *Program) Value(v int) float64 {
	if r := p.where[v]; r >= 0 {
		return max(0, p.rows[r][p.n])
	}
	return 0
}

// Dual returns the multiplier of a row in the current basis, never negative: how much the optimum rises per unit of its
// right-hand side.
func (p *Program) Dual(row int) float64 {
	if c := p.surplus[row]; c >= 0 {
		return max(0, p.cost[c])
	}
	return 0
}

// Work counts the multiplications of all programs solved so far: a clock for budgets that
// is the same on every machine.
func (p *Program) Work() int64 { return p.work }

// leaving returns the row with the most negative value, or -1.
func (p *Program) leaving() int {
	best, worst := -1, -Violation
	for i, r := range p.rows {
		if v := r[p.n]; v < worst {
			best, worst = i, v
		}
	}
	return best
}

// entering returns the column whose cost rises least per unit that it adds to row, or -1.
func (p *Program) entering(row int) int {
	best, ratio, size := -1, math.Inf(1), 0.0
	for c, x := range p.rows[row][:p.n] {
		if x <= pivotEps {
			continue
		}
		q := p.cost[c] / x
		if q < ratio-1e-12 || (q < ratio+1e-12 && x > size) {
			best, ratio, size = c, q, x
		}
	}
	return best
}

// pivot exchanges the row's variable, which becomes zero, and the column's.
func (p *Program) pivot(row, col int) {
	pr := p.rows[row]
	inv := 1 / pr[col]
	pr[col] = -1
	for c := range pr {
		pr[c] *= -inv
	}
	// Now: entering = sum pr*columns + rhs, where column col stands for the leaving variable.
	for i, r := range p.rows {
		if i != row && r[col] != 0 {
			eliminate(r, pr, col)
			p.work += int64(p.n)
		}
	}
	if p.cost[col] != 0 {
		eliminate(p.cost, pr, col)
	}
	p.work += int64(2 * p.n)
	in, out := p.colVar[col], p.basic[row]
	p.colVar[col] = out
	if int(out) < p.n {
		p.where[out] = int32(-1 - col)
	} else {
		p.surplus[int(out)-p.n] = int32(col)
	}
	p.basic[row] = in
	if int(in) < p.n {
		p.where[in] = int32(row)
		return
	}
	p.surplus[int(in)-p.n] = -1
	if p.Lazy {
		p.drop(row)
	}
}

// drop removes a row whose surplus is basic.
func (p *Program) drop(row int) {
	last := len(p.rows) - 1
	p.spare = append(p.spare, p.rows[row])
	p.rows[row], p.basic[row] = p.rows[last], p.basic[last]
	if v := p.basic[row]; row != last && int(v) < p.n {
		p.where[v] = int32(row)
	}
	p.rows, p.basic = p.rows[:last], p.basic[:last]
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
