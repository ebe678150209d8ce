package place

import "slices"

// Fold returns the ranks of pods in the order of a ring that leaves by the first half of every pod and comes back
// by the second (Eq. 42), whatever the sizes of the pods, two ranks each at least. Only pods next to each other in the list
// communicate then, by one rank each way, so a link that leads both ways is used both ways. Of fewer than three pods
// any ring through one after the other does that.
func Fold(pods [][]int) []int {
	if len(pods) < 3 {
		return slices.Concat(pods...)
	}
	var out, back []int
	for _, pod := range pods {
		half := (len(pod) + 1) / 2
		out = append(out, pod[:half]...)
		back = append(back, pod[half:]...)
	}
	slices.Reverse(back)
	return append(out, back...)
}

// Crossings returns, for the flows of one step, how many go from each pod to each other one.
func Crossings(pods [][]int, flows func(yield func(from, to int) bool)) [][]int {
	of := map[int]int{}
	count := make([][]int, len(pods))
	for i, pod := range pods {
		count[i] = make([]int, len(pods))
		for _, r := range pod {
			of[r] = i
		}
	}
	for from, to := range flows {
		if i, j := of[from], of[to]; i != j {
			count[i][j]++
		}
	}
	return count
}
