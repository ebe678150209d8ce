package sim

import "slices"

// between returns the middles of the intervals between the given times, without intervals that are only
// rounding.
func between(at []float64) []float64 {
	slices.Sort(at)
	var mid []float64
	for k := 1; k < len(at); k++ {
		if at[k]-at[k-1] > 1e-5 {
			mid = append(mid, (at[k]+at[k-1])/2)
		}
	}
	return mid
}
