package bound

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/plans/circuit"
)

// fewestLoads returns the fewest loads that serve the requests from slots, by trying every slot for each load. A
// load into a free slot costs nothing.
func fewestLoads(slots []int, free []bool, requests []int) int {
	if len(requests) == 0 {
		return 0
	}
	if slices.Contains(slots, requests[0]) {
		return fewestLoads(slots, free, requests[1:])
	}
	least := len(requests)
	for j := range slots {
		peers, unused, cost := slices.Clone(slots), slices.Clone(free), 1
		if free[j] {
			cost = 0
		}
		peers[j], unused[j] = requests[0], false
		least = min(least, cost+fewestLoads(peers, unused, requests[1:]))
	}
	return least
}

// TestPagingEqualsEnumeration: paging charges the fewest loads for every prefix of the requests. A larger count would
// put the switching bound above the optimum.
func TestPagingEqualsEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 1))
	for i := range 200 {
		k := 1 + rng.IntN(3)
		var requests []int
		var peers [][]int
		for range 1 + rng.IntN(7) {
			requests = append(requests, rng.IntN(5))
			peers = append(peers, requests[len(requests)-1:])
		}
		slots, free := make([]int, k), make([]bool, k)
		var held []int
		if rng.IntN(2) == 0 {
			held = rng.Perm(5)[:k]
			copy(slots, held)
		} else {
			for j := range slots {
				slots[j], free[j] = circuit.Dark, true
			}
		}
		p, next, charged := newPaging(k), nextUses(peers), 0
		p.reset(held, peers)
		for e := range peers {
			charged += p.request(peers[e], next[e])
			if want := fewestLoads(slots, free, requests[:e+1]); charged != want {
				t.Fatalf("problem %d: %d slots, held %v, requests %v: %d loads, want %d", i, k, held, requests[:e+1], charged, want)
			}
		}
	}
}
