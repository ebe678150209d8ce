package decompose

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type arc struct{ from, to, lower, upper int }

// circulates tries all flows, and reports whether one is a circulation.
func circulates(n int, arcs []arc) bool {
	balance := make([]int, n)
	var try func(i int) bool
	try = func(i int) bool {
		if i == len(arcs) {
			return !slices.ContainsFunc(balance, func(b int) bool { return b != 0 })
		}
		a, found := arcs[i], false
		for f := a.lower; f <= a.upper && !found; f++ {
			balance[a.from] -= f
			balance[a.to] += f
			found = try(i + 1)
			balance[a.from] += f
			balance[a.to] -= f
		}
		return found
	}
	return try(0)
}

func TestAgainstAllFlows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	feasible := 0
	for round := range 1500 {
		n := 1 + rng.IntN(5)
		arcs := make([]arc, rng.IntN(8))
		g := newGraph(n, 0)
		for i := range arcs {
			lower := rng.IntN(2)
			arcs[i] = arc{rng.IntN(n), rng.IntN(n), lower, lower + rng.IntN(3)}
			if a := arcs[i]; g.arc(a.from, a.to, a.lower, a.upper) != i {
				t.Fatal("arcs are not numbered in order")
			}
		}
		want := circulates(n, arcs)
		if got := g.circulate(); got != want {
			t.Fatalf("round %d: circulate returns %v, want %v: %v", round, got, want, arcs)
		}
		if !want {
			continue
		}
		feasible++
		balance := make([]int, n)
		for i, a := range arcs {
			f := g.carried(i)
			if f < a.lower || f > a.upper {
				t.Fatalf("round %d: arc %d carries %d: %v", round, i, f, arcs)
			}
			balance[a.from] -= f
			balance[a.to] += f
		}
		for v, b := range balance {
			if b != 0 {
				t.Fatalf("round %d: node %d is out of balance: %v", round, v, arcs)
			}
		}
	}
	if feasible < 200 {
		t.Fatalf("only %d rounds had a circulation", feasible)
	}
}
