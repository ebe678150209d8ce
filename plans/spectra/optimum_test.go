package spectra

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans"
)

// optimum is the least makespan of a demand between three ranks, by enumeration: every set of
// permutations on every switch, with the weights of the linear program.
func optimum(w *network, s int, delta float64) float64 {
	var perms []hold
	for _, p := range [][3]int32{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}} {
		if w.kind == plans.Duplex && p[p[0]] != 0 {
			continue // a rotation
		}
		var h hold
		for e := range w.to {
			if p[w.from[e]] == w.to[e] {
				h.edges = append(h.edges, int32(e))
			}
		}
		perms = append(perms, h)
	}
	search := newSearcher(w, s, delta, 0, 0)
	best := math.Inf(1)
	var fill func(l *layout, unit, least int)
	fill = func(l *layout, unit, least int) {
		if unit == s {
			if c := l.clone(); search.weigh(c) {
				best = min(best, c.span)
			}
			return
		}
		for set := least; set < 1<<len(perms); set++ {
			next := l.clone()
			for i, p := range perms {
				if set>>i&1 != 0 {
					next.holds, next.unit = append(next.holds, p), append(next.unit, int32(unit))
				}
			}
			fill(next, unit+1, set)
		}
	}
	fill(&layout{}, 0, 0)
	return best
}

// TestOptimum: no bound is above the optimum, and the search is at or near it.
func TestOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	const cases = 150
	above, below := 0.0, 0.0
	for range cases {
		d := zero(3)
		for r := range d {
			for c := range d {
				if rng.IntN(4) > 0 {
					d[r][c] = []float64{1, 0.5, 0.2}[rng.IntN(3)] * (1 + 0.2*rng.Float64())
				}
			}
		}
		kind, s := plans.Simplex, 1+rng.IntN(2)
		if rng.IntN(3) == 0 {
			kind = plans.Duplex
		}
		delta := []float64{0.01, 0.05, 0.2}[rng.IntN(3)]
		w := newNetwork(d, kind)
		exact := optimum(w, s, delta)
		bound, proof := w.bound(s, delta, 0, exactRows)
		if bound > exact*(1+1e-9) {
			t.Fatalf("%v on %d %s planes, delta %v: bound %v (%s), optimum %v", d, s, kind, delta, bound, proof, exact)
		}
		l := newSearcher(w, s, delta, 0, 1).layout(Anytime, &limits{ctx: context.Background(), work: 2e6, floor: bound})
		if l.span < exact*(1-1e-9) {
			t.Fatalf("%v on %d %s planes, delta %v: found %v, below the optimum %v", d, s, kind, delta, l.span, exact)
		}
		above, below = above+l.span/exact-1, below+1-bound/exact
	}
	t.Logf("mean gap of the search %.4f, of the bound %.4f", above/cases, below/cases)
	if above/cases > 0.002 {
		t.Errorf("the search is %.4f above the optimum on average", above/cases)
	}
}
