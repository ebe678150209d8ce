package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFoldPods checks rings through random pods. A ring has every rank once, and a pod sends once to the
// next pod and once to the one before, and to no other. For equal pods the order is that of Eq. 42.
func TestFoldPods(t *testing.T) {
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
		ring := FoldPods(pods)
		sorted := slices.Sorted(slices.Values(ring))
		for k := range n {
			if len(sorted) != n || sorted[k] != k {
				t.Fatalf("%v of %v", ring, pods)
			}
		}
		podOf := make([]int, n)
		for i, pod := range pods {
			for _, r := range pod {
				podOf[r] = i
			}
		}
		flows := map[[2]int]int{}
		for k := range ring {
			flows[[2]int{podOf[ring[k]], podOf[ring[(k+1)%n]]}]++
		}
		for i := range pods {
			for j := range pods {
				if i == j {
					continue
				}
				c := flows[[2]int{i, j}]
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
	ring := FoldPods(equal)
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
