package period

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAgreement compares with one comparison after the other, on lists of few keys.
func TestAgreement(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		list := make([]int, r.IntN(30))
		for i := range list {
			list[i] = r.IntN(1 + int(seed%3))
		}
		most := r.IntN(len(list) + 1)
		want := make([]int, most+1)
		for p := 1; p <= most; p++ {
			for at := len(list) - 1; at-p >= 0 && list[at] == list[at-p]; at-- {
				want[p]++
			}
		}
		got := slices.Repeat([]int{-1}, most+1)
		if Agreement(got, list); !slices.Equal(got, want) {
			t.Fatalf("%v up to %d: %v, want %v", list, most, got, want)
		}
	}
}
