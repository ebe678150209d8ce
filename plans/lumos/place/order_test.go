package place

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFold: every rank once; of a ring through any pods, each pod sends to the next and back once, and to no
// other. For equal pods it is Eq. 42.
func TestFold(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 6))
		pods := make([][]int, 1+r.IntN(6))
		n := 0
		for i := range pods {
			for range 2 + r.IntN(5) {
				pods[i] = append(pods[i], n)
				n++
			}
		}
		names := r.Perm(n)
		for i := range pods {
			for k := range pods[i] {
				pods[i][k] = names[pods[i][k]]
			}
		}
		ring := Fold(pods)
		sorted := slices.Sorted(slices.Values(ring))
		for k := range n {
			if len(sorted) != n || sorted[k] != k {
				t.Fatalf("%v of %v", ring, pods)
			}
		}
		count := Crossings(pods, func(yield func(int, int) bool) {
			for k := range ring {
				if !yield(ring[k], ring[(k+1)%n]) {
					return
				}
			}
		})
		for i := range count {
			for j, c := range count[i] {
				want := 0
				if j == i+1 || j == i-1 {
					want = 1
				}
				if c != want {
					t.Fatalf("pods %v, ring %v: %d flows from pod %d to pod %d", pods, ring, c, i, j)
				}
			}
		}
	}
	const pods, size = 4, 6
	var equal [][]int
	for p := range pods {
		equal = append(equal, []int{})
		for k := range size {
			equal[p] = append(equal[p], p*size+k)
		}
	}
	ring := Fold(equal)
	for p := range pods {
		for k := range size {
			at := p*size/2 + k
			if k >= size/2 {
				at = size*pods - 1 - (p*size/2 + k - size/2)
			}
			if ring[at] != p*size+k {
				t.Errorf("rank %d of pod %d is not at %d: %v", k, p, at, ring)
			}
		}
	}
}
