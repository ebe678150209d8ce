package sampling

import (
	"iter"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// Turns yields the indexes of n subjects in the order of a round. Each round begins with another subject, so that
// no subject always follows the same one.
func Turns(round, n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield((i + round) % n) {
				return
			}
		}
	}
}

// Sorted returns a sorted copy of v.
func Sorted(v []float64) []float64 { return slices.Sorted(slices.Values(v)) }

// Median returns the median of v, and NaN if v is empty. For an even number of values it is the mean of the two in the
// middle. gonum's quantiles lack this definition, and differ much for few samples.
func Median(v []float64) float64 {
	n := len(v)
	if n == 0 {
		return math.NaN()
	}
	s := Sorted(v)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Quartiles returns the values below which a quarter and three quarters of v lie. v must not be empty.
func Quartiles(v []float64) (low, high float64) {
	s := Sorted(v)
	return s[len(s)/4], s[len(s)-1-len(s)/4]
}

// Percentiles summarize a distribution of times.
type Percentiles struct {
	P50 time.Duration `json:"p50"`
	P90 time.Duration `json:"p90"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`
}

// PercentilesOf returns the percentiles of times in nanoseconds, which must be sorted and not empty.
func PercentilesOf(ns []float64) Percentiles {
	at := func(p float64) time.Duration { return time.Duration(stat.Quantile(p, stat.Empirical, ns, nil)) }
	return Percentiles{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}

// Bucket counts the times below Below that are in no earlier bucket.
type Bucket struct {
	Below time.Duration `json:"below_ns"`
	Count int           `json:"count"`
}

// The first bucket of a histogram ends at a microsecond. There are bucketsPerOctave from one power of two to the next.
const (
	firstBucket      = 1000.0
	bucketsPerOctave = 4
)

// HistogramOf counts times in nanoseconds, which must be sorted, in buckets from the first that is not empty.
func HistogramOf(ns []float64) []Bucket {
	if len(ns) == 0 {
		return nil
	}
	ends := []float64{0, firstBucket}
	for ends[len(ends)-1] <= ns[len(ns)-1] {
		ends = append(ends, firstBucket*math.Pow(2, float64(len(ends)-1)/bucketsPerOctave))
	}
	var buckets []Bucket
	for i, n := range stat.Histogram(nil, ends, ns, nil) {
		if n > 0 || len(buckets) > 0 {
			buckets = append(buckets, Bucket{Below: time.Duration(ends[i+1]), Count: int(n)})
		}
	}
	return buckets
}
