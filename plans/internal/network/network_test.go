package network

import (
	"math/rand/v2"
	"testing"
)

type arc struct{ from, to, lower, upper, cost int }

// cheapest tries all flows: the least cost of a circulation, false where there is none.
func cheapest(n int, arcs []arc) (best int, ok bool) {
	balance := make([]int, n)
	var try func(i, cost int)
	try = func(i, cost int) {
		if i == len(arcs) {
			for _, b := range balance {
				if b != 0 {
					return
				}
			}
			if !ok || cost < best {
				best, ok = cost, true
			}
			return
		}
		a := arcs[i]
		for f := a.lower; f <= a.upper; f++ {
			balance[a.from] -= f
			balance[a.to] += f
			try(i+1, cost+f*a.cost)
			balance[a.from] += f
			balance[a.to] -= f
		}
	}
	try(0, 0)
	return best, ok
}

func TestAgainstAllFlows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	feasible := 0
	for round := range 1500 {
		n := 1 + rng.IntN(5)
		arcs := make([]arc, rng.IntN(8))
		any, least := New(n, 0), New(n, len(arcs))
		for i := range arcs {
			lower := rng.IntN(2)
			arcs[i] = arc{rng.IntN(n), rng.IntN(n), lower, lower + rng.IntN(3), rng.IntN(7) - 3}
			a := arcs[i]
			if any.Arc(a.from, a.to, a.lower, a.upper, a.cost) != i || least.Arc(a.from, a.to, a.lower, a.upper, a.cost) != i {
				t.Fatal("arcs are not numbered in order")
			}
		}
		want, ok := cheapest(n, arcs)
		if got := any.Circulate(); got != ok {
			t.Fatalf("round %d: Circulate %v, want %v: %v", round, got, ok, arcs)
		}
		if got := least.Cheapest(); got != ok {
			t.Fatalf("round %d: Cheapest %v, want %v: %v", round, got, ok, arcs)
		}
		if !ok {
			continue
		}
		feasible++
		for _, g := range []*Graph{any, least} {
			cost, balance := 0, make([]int, n)
			for i, a := range arcs {
				f := g.Flow(i)
				if f < a.lower || f > a.upper {
					t.Fatalf("round %d: arc %d carries %d: %v", round, i, f, arcs)
				}
				cost += f * a.cost
				balance[a.from] -= f
				balance[a.to] += f
			}
			for v, b := range balance {
				if b != 0 {
					t.Fatalf("round %d: node %d is out of balance: %v", round, v, arcs)
				}
			}
			if g == least && cost != want {
				t.Fatalf("round %d: cost %d, want %d: %v", round, cost, want, arcs)
			}
		}
	}
	if feasible < 200 {
		t.Fatalf("only %d rounds had a circulation", feasible)
	}
}
