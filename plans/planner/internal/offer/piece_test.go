package offer

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
)

// counted yields the elements of list and adds the number of those read to reads.
func counted(list []int, reads *int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, v := range list {
			if *reads++; !yield(v) {
				return
			}
		}
	}
}

// TestSubtractIsLinear: subtract reads each element once. It used to search less for every element of set, which
// is quadratic in the flows of a step.
func TestSubtractIsLinear(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 1))
	for n := range 100 {
		set, less := rng.Perm(n), rng.Perm(n)[:rng.IntN(n+1)]
		var want []int
		for _, v := range set {
			if !slices.Contains(less, v) {
				want = append(want, v)
			}
		}
		reads := 0
		if got := subtract(set, counted(less, &reads), n); !slices.Equal(got, want) {
			t.Fatalf("%v without %v: %v, want %v", set, less, got, want)
		}
		if reads != len(less) {
			t.Fatalf("%d elements of %d were read", reads, len(less))
		}
	}
}
