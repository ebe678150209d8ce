package schedule

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
)

// TestSeats builds every algorithm with random seats. It must compute its collective with the same root, and send the
// same flows between the ranks of the same positions.
func TestSeats(t *testing.T) {
	for _, n := range []int{2, 3, 4, 6, 8} {
		r := rand.New(rand.NewPCG(uint64(n), 5))
		for c := range NumCollectives {
			for _, name := range Algorithms(c) {
				if c == SendRecv || !Defined(c, name, n) {
					continue
				}
				seats := r.Perm(n)
				part := r.IntN(n)
				if !c.Rooted() {
					part = 0
				}
				for _, opts := range [][]Option{nil, {Disjoint}} {
					plain, err := Build(c, name, n, part, opts...)
					require.NoError(t, err)
					root := 0
					if c.Rooted() {
						root = seats[part]
					}
					s, err := Build(c, Seated(name, seats), n, root, opts...)
					require.NoError(t, err)
					if err := Verify(s); err != nil {
						t.Errorf("%v %s on %d ranks: %v", c, s.Algorithm, n, err)
					}
					again, err := Build(c, s.Algorithm, n, root, opts...)
					if err != nil || again.Algorithm != s.Algorithm {
						t.Errorf("building %s returns %v: %v", s.Algorithm, again, err)
					}
					if c.Rooted() && s.Root != root {
						t.Errorf("%v %s: root %d, want %d", c, s.Algorithm, s.Root, root)
					}
					for step := range plain.Steps {
						want := map[[2]int]int{}
						for _, f := range plain.Flows(step) {
							want[[2]int{seats[f.Src], seats[f.Dst]}] = f.Chunks
						}
						flows := s.Flows(step)
						for _, f := range flows {
							if want[[2]int{f.Src, f.Dst}] != f.Chunks {
								t.Fatalf("%v %s, step %d: %d -> %d has %d chunks, want %d", c, s.Algorithm, step,
									f.Src, f.Dst, f.Chunks, want[[2]int{f.Src, f.Dst}])
							}
						}
						if len(flows) != len(want) {
							t.Fatalf("%v %s, step %d: %d flows, want %d", c, s.Algorithm, step, len(flows), len(want))
						}
					}
				}
			}
		}
	}
}

func TestSeatNames(t *testing.T) {
	for text, want := range map[string][]int{
		"0-3.7-4": {0, 1, 2, 3, 7, 6, 5, 4}, "0.1": {0, 1}, "2.0.1": {2, 0, 1}, "0-3": {0, 1, 2, 3},
		"1.0.3.2": {1, 0, 3, 2}, "4.0-2.3": nil, "": nil, "0-1": nil, "0.1.2": nil, "-1": nil, "a": nil, "0--3": nil,
		"00": nil, "0-4096": nil, "3.": nil,
	} {
		got, err := parseSeats(text)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		list := r.Perm(1 + r.IntN(9))
		if back, err := parseSeats(runs(list)); err != nil || !slices.Equal(back, list) {
			t.Fatalf("%v encodes to %s, which decodes to %v, %v", list, runs(list), back, err)
		}
	}
	for name, want := range map[string]error{
		"ring~0.1": ErrRanks, "ring~0-2.2": ErrOrder, "ring~0-2.4": ErrOrder, "ring~": ErrOrder, "ring:1~0.2.1.3": nil,
		"rabenseifner@1.0~3-0": nil, "ring~0-3": nil,
	} {
		s, err := Build(AllReduce, name, 4, 0)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if name == "ring~0-3" && s.Algorithm != "ring" {
			t.Errorf("the canonical name of ring~0-3 is %s", s.Algorithm)
		}
	}
	if n := Seated("ring", []int{0, 1, 2}); n != "ring" {
		t.Errorf("%s", n)
	}
	if n := Seated("ring~1.0", []int{0, 2, 1}); !strings.HasSuffix(n, "~1.0") {
		t.Errorf("%s", n)
	}
}
