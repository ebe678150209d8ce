package schedule

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// steps returns the steps of the planning problem of s for a call of the given bytes.
func steps(t testing.TB, s *Schedule, bytes float64) []plans.Step {
	t.Helper()
	p, _, err := Problem(s, bytes, &plans.Problem{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Steps
}

// TestSwing compares Swing on 8 ranks with steps worked out by hand: even ranks add 1, -1 and 3, odd ranks subtract
// them, with halves, quarters and eighths.
func TestSwing(t *testing.T) {
	want := []plans.Step{
		{To: circuit.Permutation{1, 0, 3, 2, 5, 4, 7, 6}, Bytes: 420},
		{To: circuit.Permutation{7, 2, 1, 4, 3, 6, 5, 0}, Bytes: 210},
		{To: circuit.Permutation{3, 6, 5, 0, 7, 2, 1, 4}, Bytes: 105},
	}
	back := slices.Clone(want)
	slices.Reverse(back)
	for c, want := range map[Collective][]plans.Step{
		ReduceScatter: want, AllGather: back, AllReduce: slices.Concat(want, back),
	} {
		if got := steps(t, build(t, c, "swing", 8, 0), 840); !reflect.DeepEqual(got, want) {
			t.Errorf("%v:\ngot  %v\nwant %v", c, got, want)
		}
	}
	// On six ranks, the distances 1, -1, 3 reach some ranks in two ways; each of 5 blocks is sent once.
	want = []plans.Step{
		{To: circuit.Permutation{1, 0, 3, 2, 5, 4}, Bytes: 280},
		{To: circuit.Permutation{5, 2, 1, 4, 3, 0}, Bytes: 280},
		{To: circuit.Permutation{3, 4, 5, 0, 1, 2}, Bytes: 140},
	}
	if got := steps(t, build(t, ReduceScatter, "swing", 6, 0), 840); !reflect.DeepEqual(got, want) {
		t.Errorf("6 ranks:\ngot  %v\nwant %v", got, want)
	}
}

// TestSwingIsBineButterfly compares Swing with the Bine butterfly (De Sensi et al. 2025), in which every rank is the
// root of a Bine tree.
//
// In the distance-halving tree on 2^s ranks with root 0, rank r is written in base -2 with s digits (or r - 2^s, if r
// needs more digits). In step i, a rank whose last s-i digits are equal meets the rank that differs from it in exactly
// these digits. The tree of another even root is shifted; the tree of an odd root is mirrored and shifted. A step of
// the butterfly has the steps of all trees. Swing runs the steps in reverse.
func TestSwingIsBineButterfly(t *testing.T) {
	for s := 1; s <= 7; s++ {
		n := 1 << s
		digits := make([]int, n) // in base -2, as bits
		rank := make([]int, n)
		for d := range n {
			value := 0
			for i, w := 0, 1; i < s; i, w = i+1, w*-2 {
				value += d >> i & 1 * w
			}
			r := (value + n) % n
			digits[r], rank[d] = d, r
		}
		swing := build(t, ReduceScatter, "swing", n, 0)
		for i := range s {
			want := circuit.AllDark(n)
			last := 1<<(s-i) - 1
			for root := range n {
				move := func(r int) int {
					if root%2 != 0 {
						r = n - r
					}
					return (root + r) % n
				}
				for r := range n {
					if d := digits[r]; d&last == 0 || d&last == last {
						want[move(r)] = move(rank[d^last])
					}
				}
			}
			q := newProblemBuilder(n, nil)
			q.step()
			for _, m := range swing.Steps[s-1-i].Transfers {
				q.transfer(m.Src, m.Dst, m.Count)
			}
			got := q.to
			if !slices.Equal(got, want) {
				t.Errorf("n=%d step %d:\nswing %v\nBine  %v", n, s-1-i, got, want)
			}
		}
	}
}

// TestSwingPorts checks multi-port Swing on a torus of equal dimensions. It sends to a different neighbour on each
// port. Every flow of a step has 1/ports of a half, a quarter, ....
func TestSwingPorts(t *testing.T) {
	for _, c := range []struct {
		dims        string
		n, ports    int
		first       []int // the peers of rank 0 in the first step
		stepsOfHalf int
	}{
		{"8", 8, 2, []int{1, 7}, 3},
		{"4x4", 16, 4, []int{1, 3, 4, 12}, 4},
		{"4x4x4", 64, 6, []int{1, 3, 4, 12, 16, 48}, 6},
		{"8x8", 64, 4, []int{1, 7, 8, 56}, 6},
	} {
		st := steps(t, build(t, AllReduce, "swing:"+c.dims, c.n, 0), float64(c.ports*c.n))
		if len(st) != 2*c.stepsOfHalf {
			t.Fatalf("%s: %d steps", c.dims, len(st))
		}
		for i, step := range st {
			bytes := float64(c.n) / float64(int(2)<<min(i, 2*c.stepsOfHalf-1-i))
			if len(step.Flows) != c.n*c.ports || step.Bytes != bytes {
				t.Errorf("%s step %d: %d flows of %v bytes, want %d of %v",
					c.dims, i, len(step.Flows), step.Bytes, c.n*c.ports, bytes)
			}
		}
		var peers []int
		for _, f := range st[0].Flows {
			if f[0] == 0 {
				peers = append(peers, f[1])
			}
		}
		if !slices.Equal(peers, c.first) {
			t.Errorf("%s: rank 0 meets %v first, want %v", c.dims, peers, c.first)
		}
	}
}

// TestBruck checks Bruck's algorithms with radix 3 on nine ranks: two steps of two flows per rank. An AllGather sends
// one block per flow, then three. Each step of an AllToAll sends three of nine blocks per flow.
func TestBruck(t *testing.T) {
	flows := func(ds ...int) (list [][2]int) {
		for r := range 9 {
			var to []int
			for _, d := range ds {
				to = append(to, (r+d+9)%9)
			}
			slices.Sort(to)
			list = append(list, [2]int{r, to[0]}, [2]int{r, to[1]})
		}
		return list
	}
	for _, c := range []struct {
		coll Collective
		want []plans.Step
	}{
		{AllGather, []plans.Step{{Flows: flows(-1, -2), Bytes: 100}, {Flows: flows(-3, -6), Bytes: 300}}},
		{ReduceScatter, []plans.Step{{Flows: flows(-3, -6), Bytes: 300}, {Flows: flows(-1, -2), Bytes: 100}}},
		{AllToAll, []plans.Step{{Flows: flows(1, 2), Bytes: 300}, {Flows: flows(3, 6), Bytes: 300}}},
	} {
		if got := steps(t, build(t, c.coll, "bruck:3", 9, 0), 900); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v:\ngot  %v\nwant %v", c.coll, got, c.want)
		}
	}
}

// TestPairwiseWidth checks two exchanges per step, in an order that combines i with n-i.
func TestPairwiseWidth(t *testing.T) {
	got := steps(t, build(t, AllToAll, "pairwise:2@1.3.2", 4, 0), 400)
	want := []plans.Step{
		{Flows: [][2]int{{0, 1}, {0, 3}, {1, 0}, {1, 2}, {2, 1}, {2, 3}, {3, 0}, {3, 2}}, Bytes: 100},
		{To: circuit.Shift(4, 2), Bytes: 100},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestRoundRobin checks the rounds of six ranks, the number of rounds, and that all rounds are involutions.
func TestRoundRobin(t *testing.T) {
	want := []circuit.Permutation{
		{5, 4, 3, 2, 1, 0}, {1, 0, 4, 5, 2, 3}, {2, 5, 0, 4, 3, 1}, {3, 2, 1, 0, 5, 4}, {4, 3, 5, 1, 0, 2},
	}
	for i, st := range steps(t, build(t, AllToAll, "round-robin", 6, 0), 6) {
		if !slices.Equal(st.To, want[i]) {
			t.Errorf("round %d: %v, want %v", i, st.To, want[i])
		}
	}
	for n := 2; n <= 33; n++ {
		for _, c := range []Collective{AllToAll, AllGather, ReduceScatter} {
			st := steps(t, build(t, c, "round-robin", n, 0), 1)
			if len(st) != n-1+n%2 {
				t.Errorf("%v n=%d: %d rounds", c, n, len(st))
			}
			for i := range st {
				if !st[i].To.Involution() {
					t.Errorf("%v n=%d round %d: %v", c, n, i, st[i].To)
				}
			}
		}
	}
}

// TestHierarchicalRing checks two groups of three ranks: rings inside the groups, then between them.
func TestHierarchicalRing(t *testing.T) {
	inner := circuit.Permutation{1, 2, 0, 4, 5, 3}
	want := []plans.Step{{To: inner, Bytes: 200}, {To: inner, Bytes: 200}, {To: circuit.Shift(6, 3), Bytes: 100}}
	if got := steps(t, build(t, ReduceScatter, "hierarchical-ring:3", 6, 0), 600); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestBinaryTree checks a broadcast of two chunks in the tree 0 - 1, 2 - 3, 4 | 5, 6.
func TestBinaryTree(t *testing.T) {
	top, bottom := [][2]int{{0, 1}, {0, 2}}, [][2]int{{1, 3}, {1, 4}, {2, 5}, {2, 6}}
	want := []plans.Step{
		{Flows: top, Bytes: 50}, {Flows: slices.Concat(top, bottom), Bytes: 50}, {Flows: bottom, Bytes: 50},
	}
	if got := steps(t, build(t, Broadcast, "binary-tree:2", 7, 0), 100); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestDoubleTreeOfEight checks the double binary tree of a broadcast on 8 ranks, with seven ranks below the root. In
// the first tree, 4 is the parent of 2 and 6, which are the parents of the odd ranks. The second tree is shifted by one
// rank.
func TestDoubleTreeOfEight(t *testing.T) {
	want := [2][]int{ // the parent of rank 1, 2, ...
		{2, 4, 2, 0, 6, 4, 6},
		{7, 3, 5, 3, 0, 7, 5},
	}
	var got [2][]int
	for _, l := range doubleTree(7, 1, 0) {
		if got[l.tree] == nil {
			got[l.tree] = make([]int, 7)
		}
		got[l.tree][l.child-1] = l.parent
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestDoubleTree checks that a rank is an inner node of at most one tree, and that the trees reach all ranks and have
// minimal height. A rank has at most two links down and two up, so two configurations serve all steps.
func TestDoubleTree(t *testing.T) {
	for n := 2; n <= 70; n++ {
		for root := -1; root <= 0; root++ {
			down, up := make([][2]int, n), make([][2]int, n)
			level := make([][2]int, n)
			for _, l := range doubleTree(n-1-root, root+1, root) {
				if l.sibling != down[l.parent][l.tree] || l.level != level[l.parent][l.tree]+1 {
					t.Fatalf("n=%d root %d: link %+v", n, root, l)
				}
				level[l.child][l.tree] = l.level
				down[l.parent][l.tree]++
				up[l.child][l.tree]++
			}
			roots := 0
			for r := range n {
				if down[r][0] > 0 && down[r][1] > 0 && r != root {
					t.Errorf("n=%d root %d: rank %d is an inner node of both trees", n, root, r)
				}
				if down[r][0]+down[r][1] > 2 || max(up[r][0], up[r][1]) > 1 {
					t.Errorf("n=%d root %d: rank %d has %v children and %v parents", n, root, r, down[r], up[r])
				}
				if d := max(level[r][0], level[r][1]); d > bits.Len(uint(n-1)) {
					t.Errorf("n=%d root %d: rank %d is at level %d", n, root, r, d)
				}
				roots += 2 - up[r][0] - up[r][1]
			}
			if roots != 2 {
				t.Errorf("n=%d root %d: %d nodes have no parent", n, root, roots)
			}
		}
	}
}

// TestVariantCosts compares the steps and the chunks that every rank sends and receives with closed forms.
func TestVariantCosts(t *testing.T) {
	ceilLog := func(n, r int) (log int) {
		for w := 1; w < n; w *= r {
			log++
		}
		return log
	}
	type want struct {
		coll  Collective
		alg   string
		steps int
		bytes int // sent and received by each rank, in units of S/n
	}
	for _, n := range append(numbersOfRanks()[1:], 40) {
		var list []want
		for _, r := range []int{2, 3, 4, 7} {
			alg := fmt.Sprintf("bruck:%d", r)
			list = append(list, want{AllGather, alg, ceilLog(n, r), n - 1},
				want{ReduceScatter, alg, ceilLog(n, r), n - 1}, want{AllReduce, alg, 2 * ceilLog(n, r), 2 * (n - 1)})
			hops := 0 // number of nonzero digits of all distances
			for x := range n {
				for ; x > 0; x /= r {
					if x%r != 0 {
						hops++
					}
				}
			}
			list = append(list, want{AllToAll, alg, ceilLog(n, r), hops})
		}
		if n%2 == 0 {
			log := ceilLog(n, 2)
			list = append(list, want{AllReduce, "swing", 2 * log, 2 * (n - 1)}, want{AllGather, "swing", log, n - 1},
				want{ReduceScatter, "swing", log, n - 1},
				want{AllReduce, fmt.Sprintf("swing:%d", n), 2 * log, 2 * (n - 1)})
		}
		for _, name := range tori(n) {
			if s := build(t, AllReduce, name, n, 0); n&(n-1) == 0 && len(s.Steps) != 2*ceilLog(n, 2) {
				t.Errorf("%s: %d steps", name, len(s.Steps))
			}
			list = append(list, want{AllReduce, name, -1, 2 * (n - 1)}, want{ReduceScatter, name, -1, n - 1},
				want{AllGather, name, -1, n - 1})
		}
		for g := 1; g <= n; g++ {
			if n%g == 0 {
				alg := fmt.Sprintf("hierarchical-ring:%d", g)
				list = append(list, want{AllReduce, alg, 2 * (g + n/g - 2), 2 * (n - 1)},
					want{AllGather, alg, g + n/g - 2, n - 1}, want{ReduceScatter, alg, g + n/g - 2, n - 1})
			}
		}
		for k := 1; k < n; k++ {
			alg := fmt.Sprintf("pairwise:%d", k)
			for _, c := range []Collective{AllToAll, AllGather, ReduceScatter} {
				list = append(list, want{c, alg, (n - 2 + k) / k, n - 1})
			}
		}
		list = append(list, want{ReduceScatter, "direct", 1, n - 1}, want{AllReduce, "direct", 1, n * (n - 1)})
		for _, w := range list {
			s := build(t, w.coll, w.alg, n, 0)
			if w.steps >= 0 && len(s.Steps) != w.steps {
				t.Errorf("%v %s n=%d: %d steps, want %d", w.coll, w.alg, n, len(s.Steps), w.steps)
			}
			sent, received := make([]int, n), make([]int, n)
			for i := range s.Steps {
				for _, m := range s.Steps[i].Transfers {
					sent[m.Src] += m.Count
					received[m.Dst] += m.Count
				}
			}
			parts := w.bytes * s.Sub // an AllReduce has one block, the others have n
			if w.coll == AllReduce {
				parts /= n
			}
			for r := range n {
				if sent[r] != parts || received[r] != parts {
					t.Errorf("%v %s n=%d: rank %d sends %d and receives %d chunks, want %d",
						w.coll, w.alg, n, r, sent[r], received[r], parts)
					break
				}
			}
		}
		for _, chunks := range []int{1, 3, 8} {
			floor := bits.Len(uint(n)) - 1
			alg := fmt.Sprintf("binary-tree:%d", chunks)
			if s := build(t, Broadcast, alg, n, 0); len(s.Steps) != floor+chunks-1 {
				t.Errorf("%s n=%d: %d steps", alg, n, len(s.Steps))
			}
			// The two trees of the other ranks begin one level below the root.
			alg = "double-" + alg
			if s := build(t, Broadcast, alg, n, 0); len(s.Steps) != bits.Len(uint(n-1))+chunks-1 {
				t.Errorf("%s n=%d: %d steps", alg, n, len(s.Steps))
			}
			if s := build(t, AllReduce, alg, n, 0); len(s.Steps) != 2*(floor+chunks-1) {
				t.Errorf("allreduce %s n=%d: %d steps", alg, n, len(s.Steps))
			}
		}
	}
}

// TestSwingIsContiguous checks that on a power of two, Swing sends one range per port in each step. So a half on 1024
// ranks has ten moves per rank.
func TestSwingIsContiguous(t *testing.T) {
	for _, c := range []struct {
		coll Collective
		alg  string
		n    int
		want int
	}{
		{AllReduce, "swing", 1024, 2 * 10 * 1024}, {ReduceScatter, "swing", 1024, 10 * 1024},
		{AllReduce, "swing", 1025, 2*10*1024 + 2}, {AllReduce, "swing:4x4x4", 64, 2 * 6 * 6 * 64},
		{AllReduce, "swing:4x8", 32, 2 * 5 * 4 * 32},
		{AllReduce, "rabenseifner@3.1.0.2", 16, 2 * 4 * 16},
	} {
		moves := 0
		for _, st := range build(t, c.coll, c.alg, c.n, 0).Steps {
			moves += len(st.Transfers)
		}
		if moves != c.want {
			t.Errorf("%v %s n=%d: %d transfers, want %d", c.coll, c.alg, c.n, moves, c.want)
		}
	}
}
