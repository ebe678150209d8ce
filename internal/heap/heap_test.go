package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type number int

func (n number) Before(m number) bool { return n < m }

// TestOrder: values leave in order, also while others come.
func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Heap[number]
	var have []number
	for range 2000 {
		if len(have) == 0 || rng.IntN(5) < 3 {
			x := number(rng.IntN(50))
			h.Push(x)
			have = append(have, x)
			continue
		}
		least := slices.Min(have)
		if got := h.Pop(); got != least {
			t.Fatalf("%d, want %d", got, least)
		}
		i := slices.Index(have, least)
		have = slices.Delete(have, i, i+1)
	}
	if len(h) != len(have) {
		t.Errorf("%d values are left of %d", len(h), len(have))
	}
}

func TestNoAllocation(t *testing.T) {
	h := make(Heap[number], 0, 1)
	if n := testing.AllocsPerRun(100, func() { h.Push(1); h.Pop() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
