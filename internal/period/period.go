// Package period tells how far the end of a list repeats.
//
// Layer: a leaf that every layer may use. It compares keys and knows nothing of them.
package period

// Agreement returns, for each distance up to most, how many elements at the end of a list equal those at that distance
// before them. If p elements come r times, the agreement at p is at least (r-1)*p. Element 0 of the result is 0.
// It is the Z-algorithm, from the end: its time is linear.
func Agreement[K comparable](list []K, most int) []int {
	n := len(list)
	z := make([]int, most+1)
	for i, l, r := 1, 0, 0; i <= most; i++ {
		if i < r {
			z[i] = min(r-i, z[i-l])
		}
		for i+z[i] < n && list[n-1-z[i]] == list[n-1-i-z[i]] {
			z[i]++
		}
		if i+z[i] > r {
			l, r = i, i+z[i]
		}
	}
	return z
}
