package brute

import (
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// Demand returns the least CCT in us over all plans of a problem with a demand: every set of permutations of each
// plane, in any order, for any time. The planes of an interleaved pair hold a permutation and its inverse. Errors wrap
// [ErrTooLarge].
func Demand(p *plans.Problem) (float64, error) {
	units := p.Planes / p.Circuits.UnitPlanes()
	if p.Demand == nil || p.Ranks > 3 || units > 2 || p.ReconfigPerPort > 0 {
		return 0, fmt.Errorf("%w: a kind that is not tried", ErrTooLarge)
	}
	var maps []circuit.Permutation
	permutations(p.Ranks, false, func(to circuit.Permutation) {
		switch {
		case p.Circuits == plans.Duplex && !to.Involution():
		case p.Circuits == plans.Interleaved && slices.ContainsFunc(maps, to.Inverse().Equal):
		default:
			maps = append(maps, to.Clone())
		}
	})
	best := math.Inf(1)
	sets := 1 << len(maps)
	for one := range sets {
		if units == 1 {
			best = min(best, demandTime(p, maps, []int{one}))
			continue
		}
		for two := range one + 1 {
			best = min(best, demandTime(p, maps, []int{one, two}))
		}
	}
	return best, nil
}

// demandTime returns the least CCT if unit j holds the maps in the set held[j].
func demandTime(p *plans.Problem, maps []circuit.Permutation, held []int) float64 {
	// Variable 0 is the CCT, then one per unit and map: how long it is held.
	lp := &program{cost: make([]float64, 1+len(held)*len(maps))}
	lp.cost[0] = 1
	covers := func(r, s int) (terms []term) {
		for j, set := range held {
			for k, to := range maps {
				circuits := 0.0 // from r to s
				if set>>k&1 == 1 && to[r] == s {
					circuits++
				}
				if set>>k&1 == 1 && to[s] == r && p.Circuits == plans.Interleaved {
					circuits++
				}
				if circuits > 0 {
					terms = append(terms, term{1 + j*len(maps) + k, circuits})
				}
			}
		}
		return terms
	}
	for j, set := range held {
		busy, switches := []term{{0, 1}}, 0.0
		for k := range maps {
			if set>>k&1 == 1 {
				busy = append(busy, term{1 + j*len(maps) + k, -1})
				switches += p.ReconfigUS
			}
		}
		lp.add(switches, busy...)
	}
	for r, row := range p.Demand {
		for s, bytes := range row {
			if bytes > 0 {
				terms := covers(r, s)
				if terms == nil {
					return math.Inf(1)
				}
				lp.add(plans.WireUS(p, bytes), terms...)
			}
		}
	}
	return lp.solve()
}
