package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// errFit reports samples from which the costs cannot be told apart.
var errFit = errors.New("calibrate: the measurements do not determine the costs")

// sample is the terms of a plan and its measured time.
type sample struct {
	terms terms
	us    float64
}

// fit minimizes the sum of the relative errors and not that of their squares, so that a disturbed run counts little.
// It repeats weighted least squares, with weights 1/error, for errors of at least fitFloor.
const (
	fitRounds = 40
	fitFloor  = 0.01
)

// fit returns the costs whose sums come closest to the samples. Costs that are not in which are 0; the others are at
// least 0, except perCall. If bytes cost nothing, that is an error.
func fit(samples []sample, which [costs]bool) (cost [costs]float64, err error) {
	weights := slices.Repeat([]float64{1}, len(samples))
	for range fitRounds {
		if cost, err = fitPositive(samples, weights, which); err != nil {
			return cost, err
		}
		for i, s := range samples {
			weights[i] = 1 / max(math.Abs(s.terms.at(cost)/s.us-1), fitFloor)
		}
	}
	if which[perByte] && cost[perByte] <= 0 {
		return cost, fmt.Errorf("%w: larger messages take no longer", errFit)
	}
	return cost, nil
}

// fitPositive returns the costs of the least weighted squares of relative errors, of which all but perCall are at
// least 0.
func fitPositive(samples []sample, weights []float64, which [costs]bool) ([costs]float64, error) {
	for {
		found, ok := leastSquares(samples, weights, which)
		if !ok {
			return found, errFit
		}
		least, at := negligible, -1
		for i, c := range found {
			// Costs have different units: compare what they add to the samples, in us.
			if us := c * meanTimes(samples, i); which[i] && i != perCall && us < least {
				least, at = us, i
			}
		}
		if at < 0 {
			return found, nil
		}
		which[at] = false // 0 instead of a negative cost, or of a rounding error
	}
}

// negligible is a time in us that a cost adds to the mean sample by rounding alone.
const negligible = 1e-6

// meanTimes returns how often the samples have cost i.
func meanTimes(samples []sample, i int) float64 {
	times := make([]float64, len(samples))
	for k, s := range samples {
		times[k] = s.terms.times[i]
	}
	return stat.Mean(times, nil)
}

// largestCondition is the condition number above which samples do not determine the costs.
const largestCondition = 1e9

// leastSquares returns the costs of the least weighted squares of relative errors; false without a unique solution.
func leastSquares(samples []sample, weights []float64, which [costs]bool) (found [costs]float64, ok bool) {
	var at []int
	var scale []float64 // columns get one size
	for i, wanted := range which {
		mean := meanTimes(samples, i)
		if wanted && mean > 0 {
			at, scale = append(at, i), append(scale, mean)
		}
	}
	if len(at) == 0 || len(samples) < len(at) {
		return found, false
	}
	a, b := mat.NewDense(len(samples), len(at), nil), mat.NewVecDense(len(samples), nil)
	for i, s := range samples {
		if s.us <= 0 {
			return found, false
		}
		w := math.Sqrt(weights[i]) / s.us
		for c, k := range at {
			a.Set(i, c, w*s.terms.times[k]/scale[c])
		}
		b.SetVec(i, w*(s.us-s.terms.fixed))
	}
	var qr mat.QR
	qr.Factorize(a)
	var x mat.VecDense
	if qr.Cond() > largestCondition || qr.SolveVecTo(&x, false, b) != nil {
		return found, false
	}
	for c, i := range at {
		found[i] = x.AtVec(c) / scale[c]
	}
	return found, true
}

// determination returns R squared: the share of the samples' variance that the costs explain.
func determination(samples []sample, cost [costs]float64) float64 {
	predicted, measured := make([]float64, len(samples)), make([]float64, len(samples))
	for i, s := range samples {
		predicted[i], measured[i] = s.terms.at(cost), s.us
	}
	if r2 := stat.RSquaredFrom(predicted, measured, nil); !math.IsInf(r2, 0) && !math.IsNaN(r2) {
		return r2
	}
	return 0 // all samples are equal
}
