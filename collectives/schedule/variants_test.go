package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
)

// tori returns the names of Swing on all tori of n ranks with up to three dimensions.
func tori(n int) []string {
	var names []string
	var extend func(name string, rest, dims int)
	extend = func(name string, rest, dims int) {
		if rest == 1 {
			names = append(names, name)
			return
		}
		for d := 2; d <= rest && dims < 3; d += 2 {
			if rest%d == 0 {
				extend(strings.TrimSuffix(fmt.Sprintf("%sx%d", name, d), "x"), rest/d, dims+1)
			}
		}
	}
	extend("swing:", n, 0)
	for i := range names {
		names[i] = strings.Replace(names[i], ":x", ":", 1)
	}
	return names
}

// parametrised returns names with parameters that are defined for c on n ranks.
func parametrised(c Collective, n int) []string {
	names := tori(n)
	for k := 1; k <= n; k++ {
		names = append(names, fmt.Sprintf("hierarchical-ring:%d", k))
	}
	for _, k := range []int{2, 3, 5} {
		for _, name := range []string{"pairwise", "pairwise-xor", "round-robin"} {
			names = append(names, fmt.Sprintf("%s:%d", name, k))
		}
	}
	names = append(names, "bruck:3", "bruck:4", "bruck:5", "bruck:64", "ring:2", "binary-tree:1", "binary-tree:5",
		"double-binary-tree:1", "double-binary-tree:3")
	return slices.DeleteFunc(names, func(name string) bool { return !Defined(c, name, n) })
}

func TestEveryParameterIsCorrect(t *testing.T) {
	for _, n := range numbersOfRanks() {
		for c := range NumCollectives {
			for _, alg := range parametrised(c, n) {
				s := build(t, c, alg, n, n/3)
				if err := Verify(s); err != nil || !replay(s, true) {
					t.Errorf("%v %s n=%d: %v", c, alg, n, err)
				}
				if s.Algorithm != alg && s.Algorithm != alg[:strings.IndexByte(alg, ':')] {
					t.Errorf("%v %s n=%d: Algorithm is %s", c, alg, n, s.Algorithm)
				}
			}
		}
	}
}

func TestEveryOrderIsCorrect(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	shuffled := func(list []int) []int {
		list = slices.Clone(list)
		rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		return list
	}
	for _, n := range numbersOfRanks() {
		for c := range NumCollectives {
			for _, alg := range slices.Concat(Algorithms(c), []string{"bruck:3", "pairwise:3"}) {
				order, err := StepOrder(c, alg, n)
				if order == nil {
					continue
				}
				if err != nil {
					t.Fatalf("%v %s n=%d: %v", c, alg, n, err)
				}
				half := len(order)
				if e, _, _ := find(c, alg); e.halves {
					half /= 2
				}
				// An order for the first half, and an order for each half.
				both := slices.Concat(shuffled(order[:half]), shuffled(order[half:]))
				for _, order := range [][]int{shuffled(order[:half]), both} {
					s := build(t, c, alg+"@"+joined(order, "."), n, 0)
					if err := Verify(s); err != nil {
						t.Errorf("%v %s n=%d: %v", c, s.Algorithm, n, err)
					}
					if again := build(t, c, s.Algorithm, n, 0); !reflect.DeepEqual(s, again) {
						t.Errorf("%v n=%d: building %s returns another schedule", c, n, s.Algorithm)
					}
					got, err := StepOrder(c, s.Algorithm, n)
					if err != nil || !slices.Equal(got[:len(order)], order) {
						t.Errorf("%v %s n=%d: order %v, %v; want %v", c, s.Algorithm, n, got, err, order)
					}
				}
			}
		}
	}
}

// TestLargeIsCorrect verifies larger schedules, on powers of two and on other numbers of ranks.
func TestLargeIsCorrect(t *testing.T) {
	type large struct {
		coll Collective
		alg  string
		n    int
	}
	list := []large{
		{AllReduce, "swing", 100}, {AllReduce, "swing:4x4x4", 64}, {AllReduce, "rabenseifner@3.1.4.0.2.5", 64},
		{AllGather, "bruck:5", 127}, {AllReduce, "double-binary-tree", 127}, {Broadcast, "double-binary-tree", 100},
		{Reduce, "binary-tree", 101}, {AllGather, "recursive-doubling-xor", 100},
	}
	if long {
		list = append(list, large{AllReduce, "swing", 128}, large{AllReduce, "swing:8x8", 64},
			large{AllReduce, "swing:6x10", 60}, large{ReduceScatter, "swing", 129}, large{ReduceScatter, "swing:4x4x6", 96},
			large{AllGather, "swing", 200}, large{AllReduce, "bruck:4", 64}, large{AllToAll, "bruck:4", 64},
			large{AllToAll, "bruck:7", 100}, large{AllReduce, "double-binary-tree", 128},
			large{AllReduce, "hierarchical-ring", 120}, large{ReduceScatter, "pairwise:8", 96})
	}
	for _, c := range list {
		if err := Verify(build(t, c.coll, c.alg, c.n, 0)); err != nil {
			t.Errorf("%v %s n=%d: %v", c.coll, c.alg, c.n, err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		coll Collective
		alg  string
		n    int
		want string // the canonical name
		err  error
	}{
		{coll: AllToAll, alg: "bruck", n: 8, want: "bruck"},
		{coll: AllToAll, alg: "bruck:2", n: 8, want: "bruck"},
		{coll: AllToAll, alg: "bruck:4", n: 8, want: "bruck:4"},
		{coll: AllToAll, alg: "bruck:2@0.1.2", n: 8, want: "bruck"},
		{coll: AllToAll, alg: "bruck@2.1.0", n: 8, want: "bruck@2.1.0"},
		{coll: AllToAll, alg: "bruck@2.1.0", n: 16, err: ErrOrder},
		{coll: AllToAll, alg: "bruck:1", n: 8, err: ErrParameter},
		{coll: AllToAll, alg: "bruck:2x2", n: 8, err: ErrParameter},
		{coll: AllToAll, alg: "bruck:", n: 8, err: ErrParameter},
		{coll: AllToAll, alg: "bruck:04", n: 8, err: ErrParameter},
		{coll: AllToAll, alg: "bruck:4097", n: 8, err: ErrParameter},
		{coll: AllToAll, alg: "bruck:-4", n: 8, err: ErrParameter},
		{coll: AllToAll, alg: "bruck@", n: 8, err: ErrOrder},
		{coll: AllToAll, alg: "direct@1.2", n: 3, err: ErrOrder},
		{coll: AllToAll, alg: "direct:2", n: 3, err: ErrParameter},
		{coll: AllToAll, alg: "pairwise:2@2.1", n: 3, want: "pairwise:2@2.1"},
		{coll: AllToAll, alg: "pairwise:3", n: 3, err: ErrRanks},
		{coll: AllToAll, alg: "pairwise@1.1", n: 3, err: ErrOrder},
		{coll: AllToAll, alg: "pairwise@0.1", n: 3, err: ErrOrder},
		{coll: AllToAll, alg: "pairwise@1.2.1.2", n: 3, err: ErrOrder},
		{coll: AllReduce, alg: "rabenseifner@1.0.0.1", n: 4, want: "rabenseifner@1.0"},
		{coll: AllReduce, alg: "rabenseifner@0.1.0.1", n: 4, want: "rabenseifner@0.1.0.1"},
		{coll: AllReduce, alg: "rabenseifner@0.1.1.0", n: 7, want: "rabenseifner"},
		{coll: AllReduce, alg: "swing:4x4", n: 16, want: "swing:4x4"},
		{coll: AllReduce, alg: "swing:16", n: 16, want: "swing:16"},
		{coll: AllReduce, alg: "swing:4x4", n: 8, err: ErrRanks},
		{coll: AllReduce, alg: "swing:3x4", n: 12, err: ErrRanks},
		{coll: AllReduce, alg: "swing:1x4", n: 4, err: ErrParameter},
		{coll: AllReduce, alg: "swing:4x", n: 4, err: ErrParameter},
		{coll: AllReduce, alg: "hierarchical-ring:4", n: 16, want: "hierarchical-ring"},
		{coll: AllReduce, alg: "hierarchical-ring:3", n: 16, err: ErrRanks},
		{coll: AllReduce, alg: "double-binary-tree:8", n: 16, want: "double-binary-tree"},
		{coll: AllReduce, alg: "msccl:x", n: 4, err: ErrAlgorithm},
		{coll: AllReduce, alg: "", n: 4, err: ErrAlgorithm},
		{coll: AllReduce, alg: ":4", n: 4, err: ErrAlgorithm},
		{coll: NumCollectives, alg: "ring", n: 4, err: ErrCollective},
	} {
		got, err := Canonical(c.coll, c.alg, c.n)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v %q n=%d: %q, %v; want %q, %v", c.coll, c.alg, c.n, got, err, c.want, c.err)
		}
		if Defined(c.coll, c.alg, c.n) != (c.err == nil) {
			t.Errorf("%v %q n=%d: Defined returns %v", c.coll, c.alg, c.n, c.err != nil)
		}
		// Check does not check the number of ranks.
		err = Check(c.coll, c.alg)
		if c.err == nil && err != nil || err != nil && !errors.Is(err, c.err) {
			t.Errorf("%v %q: Check: %v", c.coll, c.alg, err)
		}
	}
	if _, err := Build(AllReduce, "binary-tree:4000", 4, 0); !errors.Is(err, ErrAlgorithm) {
		t.Errorf("an AllReduce by binary-tree: %v", err)
	}
}

// TestNeighbours checks that all neighbours differ by one exchange, differ from each other, and are correct schedules.
func TestNeighbours(t *testing.T) {
	for _, c := range []struct {
		coll Collective
		alg  string
		n    int
		want int
	}{
		{AllToAll, "pairwise", 6, 10}, {AllToAll, "bruck:3", 9, 1}, {AllReduce, "rabenseifner", 8, 9},
		{AllReduce, "rabenseifner@1.0.2.0.1.2", 8, 9}, {AllReduce, "recursive-doubling-xor", 16, 6},
		{AllReduce, "ring", 8, 0}, {AllReduce, "nothing", 8, 0},
	} {
		seen := map[string]bool{}
		from, _ := StepOrder(c.coll, c.alg, c.n)
		for name := range Neighbours(c.coll, c.alg, c.n) {
			seen[name] = true
			to, err := StepOrder(c.coll, name, c.n)
			if err != nil || len(to) != len(from) {
				t.Fatalf("%v %s n=%d: %s: %v, %v", c.coll, c.alg, c.n, name, to, err)
			}
			differ := 0
			for i := range to {
				if to[i] != from[i] {
					differ++
				}
			}
			if differ != 2 && differ != 4 {
				t.Errorf("%v %s n=%d: %s differs in %d places", c.coll, c.alg, c.n, name, differ)
			}
			if err := Verify(build(t, c.coll, name, c.n, 0)); err != nil {
				t.Error(err)
			}
		}
		if len(seen) != c.want || seen[c.alg] {
			t.Errorf("%v %s n=%d: %d neighbours, want %d", c.coll, c.alg, c.n, len(seen), c.want)
		}
	}
	for range Neighbours(AllReduce, "rabenseifner", 64) {
		break // the caller may stop the iteration
	}
}

// TestWidthKeepsTheOrder checks that the number of exchanges per step does not change the order in which values are
// combined.
func TestWidthKeepsTheOrder(t *testing.T) {
	const order = "@3.1.6.2.5.4"
	want, err := Orders(build(t, ReduceScatter, "pairwise"+order, 7, 0))
	require.NoError(t, err)
	for _, width := range []int{2, 3, 6} {
		s := build(t, ReduceScatter, fmt.Sprintf("pairwise:%d%s", width, order), 7, 0)
		got, err := Orders(s)
		require.NoError(t, err)
		for r := range got {
			if got[r][0].String() != want[r][0].String() {
				t.Errorf("%s rank %d: %v, want %v", s.Algorithm, r, got[r][0], want[r][0])
			}
		}
		if len(s.Steps) != (6+width-1)/width {
			t.Errorf("%s: %d steps", s.Algorithm, len(s.Steps))
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"ring", "bruck:4", "swing:2x4", "rabenseifner@1.0.2.2.1.0", "pairwise:2@3.1.2", "x:y@z", "bruck:@", "msccl:a.xml",
	} {
		f.Add(name, uint8(0), uint8(8))
	}
	for c := range NumCollectives {
		f.Add(Algorithms(c)[0]+"~0.2.1", uint8(c), uint8(3))
	}
	f.Fuzz(func(t *testing.T, name string, c, ranks uint8) {
		coll, n := Collective(c)%(NumCollectives+1), int(ranks%10)
		short, err := Canonical(coll, name, n)
		if (err == nil) != Defined(coll, name, n) {
			t.Fatalf("Canonical returns %v, Defined %v", err, err != nil)
		}
		s, buildErr := Build(coll, name, n, 0)
		if (buildErr == nil) != (err == nil) && !errors.Is(buildErr, ErrTooLarge) {
			t.Fatalf("Build %v, Canonical %v", buildErr, err)
		}
		if buildErr != nil {
			return
		}
		again, err := Canonical(coll, short, n)
		if s.Algorithm != short || again != short || err != nil {
			t.Fatalf("Canonical(%q) is %q, of that %q, %v; Algorithm is %q", name, short, again, err, s.Algorithm)
		}
		if s.Sub > 1000 {
			return // verifying trees with thousands of chunks takes too long
		}
		require.NoError(t, Verify(s))
		if _, _, err := Problem(s, 1000, &plans.Problem{}); err != nil {
			t.Fatal(err)
		}
	})
}
