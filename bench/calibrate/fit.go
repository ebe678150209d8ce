package calibrate

import (
	"errors"
	"math"
)

// errFit reports samples that do not tell the costs apart.
var errFit = errors.New("calibrate: the measurements make no line")

// sample is a plan and what it took.
type sample struct {
	terms terms
	us    float64
}

// Relative errors are minimized in the sum, not in squares, so that a run that was disturbed does not
// bend the line: by least squares whose weights follow the errors, down to a floor.
const (
	fitRounds = 40
	fitFloor  = 0.01
)

// fit finds the costs, none of the model's below zero, whose sums come closest to the samples. Only the costs in
// which are looked for; the others are zero.
func fit(samples []sample, which [costs]bool) (cost [costs]float64, err error) {
	weights := make([]float64, len(samples))
	for i := range weights {
		weights[i] = 1
	}
	for range fitRounds {
		if cost, err = positive(samples, weights, which); err != nil {
			return cost, err
		}
		for i, s := range samples {
			weights[i] = 1 / max(math.Abs(s.terms.at(cost)/s.us-1), fitFloor)
		}
	}
	return cost, nil
}

// positive finds the costs, none of the model's below zero, with the least squares of relative errors.
func positive(samples []sample, weights []float64, which [costs]bool) ([costs]float64, error) {
	for {
		found, ok := leastSquares(samples, weights, which)
		if !ok {
			return found, errFit
		}
		worst, at := 0.0, -1
		for i, c := range found {
			// Compared by what they make of the samples, since they have different units.
			if share := c * meanTimes(samples, i); share < worst && i != perCall {
				worst, at = share, i
			}
		}
		if at < 0 {
			return found, nil
		}
		which[at] = false // a cost below zero is none
	}
}

func meanTimes(samples []sample, i int) float64 {
	sum := 0.0
	for _, s := range samples {
		sum += s.terms.times[i]
	}
	return sum / float64(len(samples))
}

// leastSquares solves the normal equations; false where there is no one solution.
func leastSquares(samples []sample, weights []float64, which [costs]bool) (found [costs]float64, ok bool) {
	var at []int
	var scale []float64
	for i, wanted := range which {
		mean := meanTimes(samples, i)
		if wanted && mean > 0 {
			at, scale = append(at, i), append(scale, mean)
		}
	}
	n := len(at)
	m := make([][]float64, n) // with the right-hand side
	for r := range m {
		m[r] = make([]float64, n+1)
	}
	for i, s := range samples {
		if s.us <= 0 {
			return found, false
		}
		row := make([]float64, n+1)
		for c, k := range at {
			row[c] = s.terms.times[k] / scale[c] / s.us
		}
		row[n] = (s.us - s.terms.fixed) / s.us
		for r := range n {
			for c := range row {
				m[r][c] += weights[i] * row[r] * row[c]
			}
		}
	}
	if !eliminate(m) {
		return found, false
	}
	for r, i := range at {
		found[i] = m[r][n] / scale[r]
	}
	return found, true
}

// eliminate solves a linear system in place, by Gauss and Jordan with pivots.
func eliminate(m [][]float64) bool {
	largest := 0.0
	for _, row := range m {
		for _, v := range row {
			largest = max(largest, math.Abs(v))
		}
	}
	for c := range m {
		pivot := c
		for r := c + 1; r < len(m); r++ {
			if math.Abs(m[r][c]) > math.Abs(m[pivot][c]) {
				pivot = r
			}
		}
		m[c], m[pivot] = m[pivot], m[c]
		if !(math.Abs(m[c][c]) > 1e-9*largest) {
			return false
		}
		for r := range m {
			if r == c {
				continue
			}
			f := m[r][c] / m[c][c]
			for i := c; i < len(m[r]); i++ {
				m[r][i] -= f * m[c][i]
			}
		}
	}
	for c := range m {
		m[c][len(m)] /= m[c][c]
	}
	return true
}

// determination is R squared: the part of the samples' variance that the costs explain.
func determination(samples []sample, cost [costs]float64) float64 {
	mean := 0.0
	for _, s := range samples {
		mean += s.us / float64(len(samples))
	}
	var off, all float64
	for _, s := range samples {
		d := s.us - s.terms.at(cost)
		off, all = off+d*d, all+(s.us-mean)*(s.us-mean)
	}
	if all == 0 {
		return 0
	}
	return 1 - off/all
}
