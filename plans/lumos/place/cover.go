package place

import (
	"math"
	"slices"
)

// part is a domain inside the one from which servers are taken.
type part struct {
	domain int
	idle   int
	gives  int // servers that the job can use, at most idle
}

// cover chooses parts that give so many servers together, with the fewest idle servers in the chosen
// ones (Eq. 41), and of such choices the one with the fewest parts. The largest part comes last, so that unused servers
// stay in it. The parts must have enough servers together.
func cover(parts []part, servers int) []part {
	// cost[v] is that of giving at least v, over the parts seen so far.
	type cost struct{ idle, parts int }
	less := func(a, b cost) bool { return a.idle < b.idle || a.idle == b.idle && a.parts < b.parts }
	best := make([]cost, servers+1)
	for v := 1; v <= servers; v++ {
		best[v] = cost{math.MaxInt32, 0}
	}
	taken := make([][]bool, len(parts))
	for i, p := range parts {
		taken[i] = make([]bool, servers+1)
		if p.gives == 0 {
			continue
		}
		for v := servers; v > 0; v-- {
			c := best[max(0, v-p.gives)]
			c.idle += p.idle
			c.parts++
			if less(c, best[v]) {
				best[v], taken[i][v] = c, true
			}
		}
	}
	var chosen []part
	for i, v := len(parts)-1, servers; i >= 0 && v > 0; i-- {
		if taken[i][v] {
			chosen = append(chosen, parts[i])
			v = max(0, v-parts[i].gives)
		}
	}
	slices.SortFunc(chosen, func(a, b part) int {
		if a.gives != b.gives {
			return a.gives - b.gives
		}
		return a.domain - b.domain
	})
	return chosen
}
