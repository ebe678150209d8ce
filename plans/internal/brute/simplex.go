package brute

import "math"

// program is min cost.x over rows.x >= rhs, x >= 0, for cost >= 0.
type program struct {
	cost []float64
	rows [][]float64
	rhs  []float64
}

func (p *program) add(rhs float64, terms ...term) {
	row := make([]float64, len(p.cost))
	for _, t := range terms {
		row[t.col] += t.by
	}
	p.rows, p.rhs = append(p.rows, row), append(p.rhs, rhs)
}

type term struct {
	col int
	by  float64
}

// solve returns the optimum, or +Inf if there is no solution, by the dual simplex method. The slack basis is dual
// feasible since cost >= 0.
func (p *program) solve() float64 {
	m, n := len(p.rows), len(p.cost)
	// Row i says basic_i = value_i + sum of d[i][j] nonbasic_j; d[m] and value[m] are the cost.
	d := make([][]float64, m+1)
	value := make([]float64, m+1)
	for i := range m {
		d[i] = append([]float64(nil), p.rows[i]...)
		value[i] = -p.rhs[i]
	}
	d[m] = append([]float64(nil), p.cost...)
	scale := 1.0
	for _, b := range p.rhs {
		scale = max(scale, math.Abs(b))
	}
	for pivots := 0; pivots < 10000; pivots++ {
		leave := -1
		for i := range m {
			if value[i] < -1e-11*scale && (leave < 0 || pivots < 1000 && value[i] < value[leave]) {
				leave = i // the first one after many pivots, against cycles
			}
		}
		if leave < 0 {
			return value[m]
		}
		enter := -1
		for j := range n {
			if d[leave][j] > 1e-11 && (enter < 0 || d[m][j]*d[leave][enter] < d[m][enter]*d[leave][j]) {
				enter = j
			}
		}
		if enter < 0 {
			return math.Inf(1)
		}
		pivot(d, value, leave, enter)
	}
	return math.Inf(1)
}

// pivot exchanges the variable of a row with that of a column.
func pivot(d [][]float64, value []float64, row, col int) {
	a := d[row][col]
	for j := range d[row] {
		d[row][j] /= -a
	}
	d[row][col] = 1 / a
	value[row] /= -a
	for i := range d {
		f := d[i][col]
		if i == row || f == 0 {
			continue
		}
		d[i][col] = 0
		for j := range d[i] {
			d[i][j] += f * d[row][j]
		}
		value[i] += f * value[row]
	}
}
