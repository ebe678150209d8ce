package schedule

import (
	"errors"
	"fmt"
	"testing"
)

// each calls f for every schedule there is on n ranks, for all roots or a few of them.
func each(t testing.TB, n int, f func(name string, s *Schedule)) {
	t.Helper()
	for c := range NumCollectives {
		for _, alg := range Algorithms(c) {
			roots := []int{0}
			if c.Rooted() {
				roots = []int{0, n / 2, n - 1}
			}
			for i, root := range roots {
				if i > 0 && root == roots[i-1] || !Defined(c, alg, n) {
					continue
				}
				for _, opts := range [][]Option{nil, {Disjoint()}} {
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
	for n := 1; n <= 33; n++ {
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
	}{{AllToAll, "pairwise-xor"}, {AllGather, "recursive-doubling-xor"}} {
		for n := 1; n <= 33; n++ {
			_, err := Build(c.coll, c.alg, n, 0)
			if pow2 := n&(n-1) == 0; pow2 != (err == nil) || !pow2 && !errors.Is(err, ErrRanks) {
				t.Errorf("%v %s n=%d: %v", c.coll, c.alg, n, err)
			}
		}
	}
}
