package slots

import (
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/circuit"
	"lightpath/plans/lumos/matrix"
)

// randomWant has row sums up to most.
func randomWant(rng *rand.Rand, n, most, pairs int) *matrix.Matrix {
	m := matrix.New(n)
	for range pairs {
		i, j := rng.IntN(n), rng.IntN(n)
		if i != j && m.RowSum(i) < most && m.RowSum(j) < most {
			m.Add(i, j, 1)
			m.Add(j, i, 1)
		}
	}
	return m
}

// check holds the table's slots against each other and against its counts.
func check(t *testing.T, tab *Table) {
	t.Helper()
	have := matrix.New(tab.n)
	for c := range tab.q {
		p := tab.Links(c)
		if err := p.Validate(tab.n); err != nil {
			t.Fatalf("slot %d: %v", c, err)
		}
		for u, v := range p {
			if tab.From(u, c) != p.Inverse()[u] {
				t.Fatalf("slot %d: node %d is entered from %d, and the map says %d", c, u, tab.From(u, c), p.Inverse()[u])
			}
			if v != circuit.Dark {
				have.Add(u, v, 1)
				have.Add(v, u, 1)
			}
		}
	}
	if !have.Equal(tab.have) {
		t.Fatalf("counts %v, links %v", tab.have, have)
	}
}

func moved(tab *Table, before []circuit.Permutation) int {
	n := 0
	for c, p := range before {
		n += p.Changes(tab.Links(c))
	}
	return n
}

func maps(tab *Table) []circuit.Permutation {
	all := make([]circuit.Permutation, tab.q)
	for c := range all {
		all[c] = tab.Links(c)
	}
	return all
}

func TestReach(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	made, missing := 0, 0
	for round := range 300 {
		n, q := 2+rng.IntN(9), 1+rng.IntN(4)
		tab := New(n, q)
		watched := matrix.New(n)
		tab.Watch = func(u, v, _, by int) { watched.Add(u, v, by) }
		for range 6 {
			want := randomWant(rng, n, 2*q, rng.IntN(2*n*q+1))
			if rng.IntN(3) == 0 {
				tab.Prune(want)
			}
			before := maps(tab)
			for u := range n {
				for v := range u {
					missing += max(0, want.At(u, v)-tab.Have(u, v))
				}
			}
			if err := tab.Reach(want); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			made += moved(tab, before)
			check(t, tab)
			for u := range n {
				for v := range n {
					if tab.Have(u, v) < want.At(u, v) {
						t.Fatalf("round %d: %d and %d have %d links, want %d", round, u, v, tab.Have(u, v), want.At(u, v))
					}
					if watched.At(u, v)+watched.At(v, u) != tab.Have(u, v) {
						t.Fatalf("round %d: watched %d+%d links of %d and %d, which have %d", round, watched.At(u, v), watched.At(v, u),
							u, v, tab.Have(u, v))
					}
				}
			}
			if tab.Prune(want); !tab.have.Equal(want) {
				t.Fatalf("round %d: pruned to %v, want %v", round, tab.have, want)
			}
			check(t, tab)
		}
	}
	if made < missing {
		t.Fatalf("%d links made where %d were missing: the count is wrong", made, missing)
	}
	t.Logf("%d links made where %d were missing", made, missing)
}

// TestFull fills every slot, where nothing but paths can make room.
func TestFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 200 {
		n, q := 3+rng.IntN(6), 1+rng.IntN(4)
		tab := New(n, q)
		for d := range 4 {
			want := matrix.New(n) // shifts: every node has 2q links
			for c := range q {
				for u := range n {
					v := (u + 1 + (c*d+rng.IntN(2))%(n-1)) % n
					if u != v && want.RowSum(u) < 2*q && want.RowSum(v) < 2*q {
						want.Add(u, v, 1)
						want.Add(v, u, 1)
					}
				}
			}
			if err := tab.Reach(want); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			check(t, tab)
		}
	}
}

func TestUnneededLinksStayAndComeBack(t *testing.T) {
	tab := New(4, 2)
	want := matrix.New(4)
	want.Add(0, 1, 2)
	want.Add(1, 0, 2)
	require.NoError(t, tab.Reach(want))
	full := maps(tab)
	require.NoError(t, tab.Reach(matrix.New(4)))
	require.NoError(t, tab.Reach(want))
	if n := moved(tab, full); n != 0 || tab.Have(0, 1) != 2 {
		t.Fatalf("%d links moved, %d left", n, tab.Have(0, 1))
	}
}

func TestTooManyLinks(t *testing.T) {
	tab := New(3, 1)
	want := matrix.New(3)
	want.Add(0, 1, 3)
	want.Add(1, 0, 3)
	if err := tab.Reach(want); err == nil || tab.Have(0, 1) != 0 {
		t.Fatalf("3 links in 2 slots: %v, %d made", err, tab.Have(0, 1))
	}
}
