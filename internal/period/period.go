// Package period tells how far the end of a list repeats.
//
// Layer: a leaf that every layer may use. It compares keys and knows nothing of them.
package period

// Agreement sets z[p], for each p from 1 that z has. z[p] is how many elements at the end of a list equal the elements
// p places before them. If p elements come r times, z[p] is at least (r-1)*p. z[0] is 0. The distances must not exceed
// the length of the list. It is the Z-algorithm, from the end: its time is linear.
func Agreement[K comparable](z []int, list []K) {
	n := len(list)
	clear(z)
	for i, l, r := 1, 0, 0; i < len(z); i++ {
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
}
