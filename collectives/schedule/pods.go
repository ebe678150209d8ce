package schedule

import "slices"

// FoldPods returns the ranks of pods in the order of a ring that passes every pod twice: it leaves by the
// first half of each pod and comes back by the second half (LumosCore, Eq. 42). Only pods next to each
// other in the list then communicate, with one rank in each direction, so both directions of a link are
// used. Pods may have different sizes, of two ranks or more. Fewer than three pods keep their order, which
// has that property already.
func FoldPods(pods [][]int) []int {
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
