package schedule

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// long reports whether the slow combinations shall run (LIGHTPATH_TEST_LONG).
var long = os.Getenv("LIGHTPATH_TEST_LONG") != ""

// numbersOfRanks returns 1 to 13 and some larger numbers up to 33: powers of two, odd numbers and primes. With long it
// returns all numbers to 33.
func numbersOfRanks() []int {
	if long {
		return upTo(1, 34)
	}
	all := append(upTo(1, 14), 16, 17)
	if testing.Short() {
		return all
	}
	return append(all, 24, 31, 33)
}

// variants are algorithms with parameters that [each] builds besides the plain ones, if they are defined.
var variants = []string{
	"bruck:3", "pairwise:2", "pairwise-xor:3", "swing:2x4", "swing:6", "hierarchical-ring:4",
	"binary-tree:1", "double-binary-tree:1", "bruck:3@1.0", "pairwise@2.1.3", "rabenseifner@0.1.2.1.0.2",
}

// each calls f for every schedule on n ranks, for several roots of rooted collectives.
func each(t testing.TB, n int, f func(name string, s *Schedule)) {
	t.Helper()
	for c := range NumCollectives {
		for _, alg := range slices.Concat(Algorithms(c), variants) {
			roots := []int{0}
			if c.Rooted() {
				roots = []int{0, n / 2, n - 1}
			}
			for i, root := range roots {
				if i > 0 && root == roots[i-1] || !Defined(c, alg, n) {
					continue
				}
				for _, opts := range [][]Option{nil, {Disjoint}} {
					s, err := Build(c, alg, n, root, opts...)
					if err != nil {
						t.Fatalf("%v %s n=%d root=%d: %v", c, alg, n, root, err)
					}
					f(fmt.Sprintf("%v %s n=%d root=%d disjoint=%v", c, alg, n, root, s.Disjoint), s)
				}
			}
		}
	}
}

func TestEveryScheduleIsCorrect(t *testing.T) {
	for _, n := range numbersOfRanks() {
		each(t, n, func(name string, s *Schedule) {
			if err := Verify(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestPowersOfTwoOnly(t *testing.T) {
	for _, c := range []struct {
		coll Collective
		alg  string
	}{{AllToAll, "pairwise-xor"}, {AllGather, "pairwise-xor"}, {ReduceScatter, "pairwise-xor"}} {
		for n := 1; n <= 33; n++ {
			_, err := Build(c.coll, c.alg, n, 0)
			if pow2 := n&(n-1) == 0; pow2 != (err == nil) || !pow2 && !errors.Is(err, ErrRanks) {
				t.Errorf("%v %s n=%d: %v", c.coll, c.alg, n, err)
			}
		}
	}
}

// TestVerifyNamesTheDefect checks that Verify finds every kind of defect and that the error names it.
func TestVerifyNamesTheDefect(t *testing.T) {
	for _, c := range []struct {
		defect string
		coll   Collective
		alg    string
		apply  func(s *Schedule)
	}{
		{"undefined", AllReduce, "ring", func(s *Schedule) { s.Pre = s.Pre[1:] }},
		{"has the contributions of 3 ranks", Reduce, "direct", func(s *Schedule) { s.Steps[0].Post = s.Steps[0].Post[1:] }},
		{"double contribution", Reduce, "direct", func(s *Schedule) { s.Steps[0].Post[1] = s.Steps[0].Post[0] }},
		{"combines chunk", ReduceScatter, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].To.Chunk = 0 }},
		{"different positions", AllReduce, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].To.Chunk = 0 }},
		{"is from input chunk", AllToAll, "pairwise", func(s *Schedule) { s.Steps[0].Transfers[0].From.Chunk = 2 }},
		{"is from", AllGather, "direct", func(s *Schedule) {
			from0, from2 := &s.Steps[0].Transfers[0], &s.Steps[0].Transfers[10] // both to rank 1
			from0.To.Chunk, from2.To.Chunk = 2, 0
		}},
		{"writes Input", AllToAll, "pairwise", func(s *Schedule) { s.Steps[0].Transfers[0].To.Buf = Input }},
		{"source: chunks", AllGather, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].Count = 5 }},
		{"destination: chunks", AllGather, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].To.Chunk = -1 }},
		{"source: no rank", AllGather, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].Src = 4 }},
		{"destination: no rank", AllGather, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].To.Buf = NumBuffers }},
		{"destination: chunks 0+1 of 0", Reduce, "direct", func(s *Schedule) {
			s.Post = []Move{{1, 1, Ref{Scratch, 0}, Ref{Output, 0}, 1, false}}
		}},
		{"written twice in one step", AllGather, "ring", func(s *Schedule) {
			st := &s.Steps[0]
			st.Transfers = append(st.Transfers, st.Transfers[0])
		}},
		{"also sent in this step", AllReduce, "recursive-doubling-xor", func(s *Schedule) {
			for i := range s.Steps[0].Transfers {
				s.Steps[0].Transfers[i].To.Buf = Output
			}
		}},
		{"sends to itself", AllGather, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].Dst = 0 }},
		{"a local move from", AllGather, "ring", func(s *Schedule) { s.Pre[0].Dst = 1 }},
		{"not a copy of Input", AllReduce, "ring", func(s *Schedule) {
			s.Pre = append(s.Pre, Move{0, 0, Ref{Output, 0}, Ref{Output, 1}, 1, false})
		}},
		{"without the pre-multiplication", AllReduce, "ring", func(s *Schedule) {
			s.Steps[0].Transfers[0].From.Buf = Input
		}},
		{"reduces in a", AllGather, "ring", func(s *Schedule) { s.Steps[0].Transfers[0].Reduce = true }},
		{"in place", AllToAll, "pairwise", func(s *Schedule) {
			for i := range s.Steps {
				for k := range s.Steps[i].Transfers {
					s.Steps[i].Transfers[k].From.Buf = Input
				}
			}
		}},
		{"buffers of", AllGather, "ring", func(s *Schedule) { s.Blocks[Output] = 3 }},
		{"0 chunks per block", AllGather, "ring", func(s *Schedule) { s.Sub = 0 }},
	} {
		s := build(t, c.coll, c.alg, 4, 0)
		c.apply(s)
		err := Verify(s)
		if !errors.Is(err, ErrIncorrect) || !strings.Contains(err.Error(), c.defect) {
			t.Errorf("%v %s: %v, want %q", c.coll, c.alg, err, c.defect)
		}
	}
}
