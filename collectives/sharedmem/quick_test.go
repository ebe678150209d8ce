package sharedmem

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"
)

// find looks for a recipe as the C code does: by the exported index.
func find(q *Quick, r *QuickRecipe) int {
	index, recipes := unsafe.Slice(q.Index, q.IndexMask+1), unsafe.Slice(q.Recipes, q.Used)
	for at := uint32(r.hash()) & q.IndexMask; index[at] != 0; at = (at + 1) & q.IndexMask {
		if i := int(index[at] - 1); recipes[i].same(r) {
			return i
		}
	}
	return -1
}

// TestRecipes checks that a Quick finds every recipe that it has learnt, by its number, until it is full. It does not
// find recipes with operators that have ended.
func TestRecipes(t *testing.T) {
	g := newGroup(t, 2, 1)
	q := NewQuick(g.arenas[0], 64)
	defer q.Release()
	rng := rand.New(rand.NewPCG(1, 2))
	var known []QuickRecipe
	for round := range 5 * quickMost {
		r := QuickRecipe{
			Kind: rng.Uint32N(8), Type: rng.Int32N(12), Op: rng.Int32N(8), Peer: rng.Int32N(3),
			Count:   rng.Uint64N(1 << (1 + rng.IntN(20))),
			InPlace: rng.Uint32N(2), Signature: uint32(round),
		}
		if rng.IntN(100) == 0 {
			q.OperatorEnded()
		}
		if r.Op >= quickUser {
			r.Ended = q.OperatorsEnded()
		}
		at := find(q, &r)
		if q.Knows(&r) != (at >= 0) {
			t.Fatalf("round %d: Knows says %v, the index %d", round, at < 0, at)
		}
		if at >= 0 {
			if !known[at].same(&r) {
				t.Fatalf("round %d: %+v found as number %d, which is %+v", round, r, at, known[at])
			}
			continue
		}
		for i := range known {
			if known[i].same(&r) {
				t.Fatalf("round %d: number %d is not found", round, i)
			}
		}
		if q.Full() {
			known = known[:0]
		}
		known = append(known, r)
		if i := q.Learn(&r); int(i) != len(known)-1 || q.Last != i || int(q.Used) != len(known) {
			t.Fatalf("round %d: number %d of %d, the last is %d", round, i, q.Used, q.Last)
		}
		if round%37 == 0 {
			runtime.GC() // C keeps addresses of these tables
		}
		if i := rng.IntN(len(known)); find(q, &known[i]) != i || unsafe.Slice(q.Recipes, q.Used)[i] != known[i] {
			t.Fatalf("round %d: number %d is not as it was learnt", round, i)
		}
		if int(q.IndexMask)+1 < 2*int(q.Used) || q.Used > quickMost {
			t.Fatalf("round %d: %d recipes in an index of %d", round, q.Used, q.IndexMask+1)
		}
	}
	if len(known) == 0 || q.Used == 0 {
		t.Fatal("nothing is known")
	}
	if n := testing.AllocsPerRun(100, func() {
		for i := range known {
			q.Knows(&known[i])
		}
	}); n != 0 {
		t.Errorf("a search allocates %v times", n)
	}
}
