package delta

import (
	"math/rand/v2"
	"testing"
)

// TestAntichain compares with all subsets of random partial orders.
func TestAntichain(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(11)
		weights := make([]int, n)
		less := make([][]bool, n)
		for x := range n {
			weights[x] = 1 + rng.IntN(9)
			less[x] = make([]bool, n)
			for y := range x {
				less[y][x] = rng.IntN(4) == 0
			}
		}
		for k := range n { // transitive closure
			for x := range n {
				for y := range n {
					less[x][y] = less[x][y] || less[x][k] && less[k][y]
				}
			}
		}
		want := 0
		for set := range 1 << n {
			weight, anti := 0, true
			for x := range n {
				if set>>x&1 == 0 {
					continue
				}
				weight += weights[x]
				for y := range n {
					anti = anti && (set>>y&1 == 0 || !less[x][y])
				}
			}
			if anti {
				want = max(want, weight)
			}
		}
		if got := heaviestAntichain(weights, func(x, y int) bool { return less[x][y] }); got != want {
			t.Fatalf("seed %d: %d, want %d", seed, got, want)
		}
	}
}
