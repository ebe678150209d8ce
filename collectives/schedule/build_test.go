package schedule

import (
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

func build(t testing.TB, c Collective, alg string, n, root int, opts ...Option) *Schedule {
	t.Helper()
	s, err := Build(c, alg, n, root, opts...)
	require.NoError(t, err)
	return s
}

func TestCollectiveNames(t *testing.T) {
	for c := range NumCollectives {
		if got, err := ParseCollective(c.String()); got != c || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
		if len(Algorithms(c)) == 0 {
			t.Errorf("%v has no algorithm", c)
		}
	}
	for _, name := range []string{"", "AllReduce", "allreduce ", NumCollectives.String()} {
		if _, err := ParseCollective(name); !errors.Is(err, ErrCollective) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	for _, c := range []struct {
		coll    Collective
		alg     string
		n, root int
		want    error
	}{
		{AllReduce, "pairwise", 4, 0, ErrAlgorithm},
		{AllReduce, "msccl:ring.xml", 4, 0, ErrAlgorithm},
		{AllReduce, "", 4, 0, ErrAlgorithm},
		{NumCollectives, "ring", 4, 0, ErrCollective},
		{AllReduce, "ring", 0, 0, ErrRanks},
		{AllToAll, "pairwise", 1 << 40, 0, ErrRanks},
		{AllToAll, "pairwise-xor", 6, 0, ErrRanks},
		{Broadcast, "binomial", 4, 4, ErrRoot},
		{Broadcast, "binomial", 4, -1, ErrRoot},
		{AllReduce, "ring", 3000, 0, ErrTooLarge},
	} {
		s, err := Build(c.coll, c.alg, c.n, c.root)
		if s != nil || !errors.Is(err, c.want) {
			t.Errorf("%v %q n=%d root=%d: %v, want %v", c.coll, c.alg, c.n, c.root, err, c.want)
		}
	}
	if _, err := Build(AllReduce, "ring", 4, 99); err != nil {
		t.Errorf("AllReduce, which has no root, with root 99: %v", err)
	}
	if Algorithms(NumCollectives) != nil || Defined(NumCollectives, "ring", 4) || !Defined(AllReduce, "ring", 4) {
		t.Error("Algorithms or Defined of NumCollectives, or Defined of the ring, is wrong")
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	each(t, 9, func(name string, s *Schedule) {
		var opts []Option
		if s.Disjoint {
			opts = append(opts, Disjoint)
		}
		if again := build(t, s.Collective, s.Algorithm, s.Ranks, s.Root, opts...); !reflect.DeepEqual(s, again) {
			t.Errorf("%s: two builds differ", name)
		}
	})
}

// TestDisjointKeepsFlows checks that Disjoint does not change the planning problem.
func TestDisjointKeepsFlows(t *testing.T) {
	for n := 1; n <= 9; n++ {
		each(t, n, func(name string, s *Schedule) {
			if !s.Disjoint {
				return
			}
			p, _, err := Problem(s, 1<<20, &plans.Problem{})
			require.NoError(t, err)
			q, _, err := Problem(build(t, s.Collective, s.Algorithm, s.Ranks, s.Root), 1<<20, &plans.Problem{})
			if err != nil || !reflect.DeepEqual(p, q) {
				t.Errorf("%s: %v, the problems differ", name, err)
			}
		})
	}
}

// TestStepsAndBytes compares the circuits and bytes of each step with the papers, for a call of 840 bytes, which is
// divisible by 1 to 8.
func TestStepsAndBytes(t *testing.T) {
	type step struct {
		to    circuit.Permutation
		bytes float64
	}
	shifts := func(n int, b float64, ds ...int) (st []step) {
		for _, d := range ds {
			st = append(st, step{circuit.Shift(n, d), b})
		}
		return st
	}
	for _, c := range []struct {
		coll Collective
		alg  string
		n    int
		want []step
	}{
		// SWOT Fig. 3: halves, quarters and eighths with xor 1, 2, 4, then in reverse.
		{AllReduce, "rabenseifner", 8, []step{
			{circuit.Xor(8, 1), 420}, {circuit.Xor(8, 2), 210}, {circuit.Xor(8, 4), 105},
			{circuit.Xor(8, 4), 105}, {circuit.Xor(8, 2), 210}, {circuit.Xor(8, 1), 420}}},
		{ReduceScatter, "rabenseifner", 8, []step{
			{circuit.Xor(8, 1), 420}, {circuit.Xor(8, 2), 210}, {circuit.Xor(8, 4), 105}}},
		// HARVEST 5.1.
		{AllReduce, "recursive-doubling", 8, []step{
			{circuit.Shift(8, 1), 420}, {circuit.Shift(8, 2), 210}, {circuit.Shift(8, 4), 105},
			{circuit.Shift(8, 4), 105}, {circuit.Shift(8, 2), 210}, {circuit.Shift(8, 1), 420}}},
		{AllGather, "recursive-doubling", 8, []step{
			{circuit.Shift(8, 4), 105}, {circuit.Shift(8, 2), 210}, {circuit.Shift(8, 1), 420}}},
		{ReduceScatter, "recursive-doubling", 5, []step{
			{circuit.Shift(5, 1), 336}, {circuit.Shift(5, 2), 168}, {circuit.Shift(5, 4), 168}}},
		{AllReduce, "recursive-doubling-xor", 4, []step{{circuit.Xor(4, 1), 840}, {circuit.Xor(4, 2), 840}}},
		{AllReduce, "recursive-doubling-xor", 3, []step{
			{circuit.Permutation{-1, -1, 0}, 840}, {circuit.Permutation{1, 0, -1}, 840},
			{circuit.Permutation{2, -1, -1}, 840}}},
		{AllGather, "recursive-doubling-xor", 4, []step{{circuit.Xor(4, 1), 210}, {circuit.Xor(4, 2), 420}}},
		{AllReduce, "ring", 4, shifts(4, 210, 1, 1, 1, 1, 1, 1)},
		{Broadcast, "ring", 2, []step{{circuit.Permutation{1, -1}, 420}, {circuit.Permutation{1, -1}, 420}}},
		{AllToAll, "pairwise", 5, shifts(5, 168, 1, 2, 3, 4)},
		{AllToAll, "pairwise-xor", 4, []step{
			{circuit.Xor(4, 1), 210}, {circuit.Xor(4, 2), 210}, {circuit.Xor(4, 3), 210}}},
		{AllToAll, "bruck", 8, shifts(8, 420, 1, 2, 4)},
		{AllGather, "bruck", 7, []step{
			{circuit.Shift(7, -1), 120}, {circuit.Shift(7, -2), 240}, {circuit.Shift(7, -4), 360}}},
		{Broadcast, "binomial", 4, []step{
			{circuit.Permutation{2, -1, -1, -1}, 840}, {circuit.Permutation{1, -1, 3, -1}, 840}}},
		{Gather, "binomial", 4, []step{
			{circuit.Permutation{-1, 0, -1, 2}, 210}, {circuit.Permutation{-1, -1, 0, -1}, 420}}},
		{SendRecv, "direct", 3, shifts(3, 840, 1)},
	} {
		t.Run(fmt.Sprintf("%v %s %d", c.coll, c.alg, c.n), func(t *testing.T) {
			p, steps, err := Problem(build(t, c.coll, c.alg, c.n, 0), 840, &plans.Problem{})
			if err != nil || len(steps) != len(p.Steps) {
				t.Fatalf("problem of %d steps, list of %d steps, %v", len(p.Steps), len(steps), err)
			}
			var got []step
			for _, s := range p.Steps {
				got = append(got, step{s.To, s.Bytes})
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %v\nwant %v", got, c.want)
			}
		})
	}
}

// TestCosts checks the numbers of steps and of parts sent: bandwidth-optimal algorithms send (n-1)/n of S per rank and
// phase, and logarithmic ones take ceil(log2 n) steps.
func TestCosts(t *testing.T) {
	for n := 2; n <= 33; n++ {
		log := bits.Len(uint(n - 1))
		for _, c := range []struct {
			coll  Collective
			alg   string
			steps int
			parts int // sent by rank 0, in units of 1/n; -1: not checked
		}{
			{AllReduce, "ring", 2 * (n - 1), 2 * (n - 1)},
			{AllReduce, "recursive-doubling", 2 * log, 2 * (n - 1)},
			{AllGather, "recursive-doubling", log, n - 1},
			{AllGather, "bruck", log, n - 1},
			{ReduceScatter, "recursive-doubling", log, n - 1},
			{ReduceScatter, "pairwise", n - 1, n - 1},
			{AllToAll, "bruck", log, -1},
			{AllToAll, "pairwise", n - 1, n - 1},
			{AllToAll, "direct", 1, n - 1},
			{Broadcast, "binomial", log, -1},
			{Broadcast, "ring", 2*n - 2, -1},
		} {
			s := build(t, c.coll, c.alg, n, 0)
			sent := 0
			for i := range s.Steps {
				for _, m := range s.Steps[i].Transfers {
					if m.Src == 0 {
						sent += m.Count
					}
				}
			}
			if len(s.Steps) != c.steps || c.parts >= 0 && sent != c.parts {
				t.Errorf("%v %s n=%d: %d steps and %d parts, want %d and %d",
					c.coll, c.alg, n, len(s.Steps), sent, c.steps, c.parts)
			}
		}
	}
}

// TestFlowsAreContiguous checks that each flow of halving and doubling is one range of chunks.
func TestFlowsAreContiguous(t *testing.T) {
	for _, c := range []struct {
		coll Collective
		alg  string
	}{
		{AllReduce, "rabenseifner"}, {ReduceScatter, "rabenseifner"},
		{AllReduce, "recursive-doubling"}, {ReduceScatter, "recursive-doubling"},
	} {
		s := build(t, c.coll, c.alg, 64, 0)
		for i := range s.Steps {
			for _, f := range s.Flows(i) {
				if len(f.Moves) != 1 {
					t.Fatalf("%v %s step %d: flow %d->%d has %d moves", c.coll, c.alg, i, f.Src, f.Dst, len(f.Moves))
				}
			}
		}
	}
}

func TestProblemForms(t *testing.T) {
	template := &plans.Problem{
		Ranks: 3, Planes: 2, BandwidthGbps: 400, ReconfigUS: 200, Steps: make([]plans.Step, 9),
		Final: plans.Final{Kind: plans.FinalInitial},
	}
	p, steps, err := Problem(build(t, AllToAll, "direct", 3, 0), 9e6, template)
	require.NoError(t, err)
	want := []plans.Step{{Bytes: 3e6, Flows: [][2]int{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}}}
	if !reflect.DeepEqual(p.Steps, want) || !slices.Equal(steps, []int{0}) {
		t.Errorf("steps %+v of %v", p.Steps, steps)
	}
	if p.Version != plans.Version || p.Planes != 2 || p.BandwidthGbps != 400 || p.Final.Kind != plans.FinalInitial ||
		len(template.Steps) != 9 {
		t.Errorf("problem %+v", p)
	}

	for _, c := range []Collective{Gather, Scatter} { // the root has two sources, or two destinations
		p, _, err := Problem(build(t, c, "direct", 3, 1), 1, template)
		if err != nil || p.Steps[0].To != nil || len(p.Steps[0].Flows) != 2 {
			t.Errorf("%v: %+v, %v", c, p.Steps, err)
		}
	}

	// The problem omits steps without transfers.
	s := build(t, AllGather, "ring", 3, 0)
	s.Steps = slices.Insert(s.Steps, 1, Step{})
	if _, steps, err = Problem(s, 1, template); err != nil || !slices.Equal(steps, []int{0, 2}) {
		t.Errorf("steps %v, %v", steps, err)
	}
	if p, _, err = Problem(build(t, AllReduce, "ring", 1, 0), 1, &plans.Problem{}); err != nil || len(p.Steps) != 0 {
		t.Errorf("one rank: %v, %v", p, err)
	}
	for _, bytes := range []float64{-1, nan(), 1 / zero()} {
		if _, _, err := Problem(s, bytes, template); !errors.Is(err, ErrProblem) {
			t.Errorf("%v bytes: %v", bytes, err)
		}
	}
	template.Ranks = 4
	if _, _, err := Problem(s, 1, template); !errors.Is(err, ErrProblem) {
		t.Errorf("wrong ranks: %v", err)
	}
}

func zero() float64 { return 0 }
func nan() float64  { return zero() / zero() }

// TestProblemOf compares ProblemOf with Problem of the built schedule, with and without seats.
func TestProblemOf(t *testing.T) {
	each(t, 6, func(name string, s *Schedule) {
		seats := append(upTo(1, s.Ranks), 0)
		if s.Collective == SendRecv {
			seats = nil
		}
		for _, algorithm := range []string{s.Algorithm, Seated(s.Algorithm, seats)} {
			whole, err := Build(s.Collective, algorithm, s.Ranks, s.Root)
			if err != nil {
				t.Fatalf("%s: %v", algorithm, err)
			}
			want, wantSteps, err := Problem(whole, 1e6, &plans.Problem{Planes: 3})
			require.NoError(t, err)
			got, steps, err := ProblemOf(s.Collective, algorithm, s.Ranks, s.Root, 1e6, &plans.Problem{Planes: 3})
			if err != nil || !reflect.DeepEqual(got, want) || !slices.Equal(steps, wantSteps) {
				t.Fatalf("%s, %s: %+v of %v, want %+v of %v: %v", name, algorithm, got, steps, want, wantSteps, err)
			}
		}
	})
	if _, _, err := ProblemOf(AllToAll, "pairwise", 4, 0, -1, &plans.Problem{}); !errors.Is(err, ErrProblem) {
		t.Errorf("negative size: %v", err)
	}
}

// TestFlows checks that Flows has the order of FlowList, and that the flows contain all transfers in the schedule's
// order.
func TestFlows(t *testing.T) {
	each(t, 6, func(name string, s *Schedule) {
		p, steps, err := Problem(s, 1e6, &plans.Problem{})
		require.NoError(t, err)
		for k, i := range steps {
			flows, list := s.Flows(i), p.Steps[k].FlowList()
			moves := 0
			for f := range flows {
				if list[f] != [2]int{flows[f].Src, flows[f].Dst} {
					t.Fatalf("%s step %d flow %d: %v and %v", name, i, f, list[f], flows[f])
				}
				var want []Move
				chunks := 0
				for _, m := range s.Steps[i].Transfers {
					if m.Src == flows[f].Src && m.Dst == flows[f].Dst {
						want = append(want, m)
						chunks += m.Count
					}
				}
				if !slices.Equal(want, flows[f].Moves) || chunks != flows[f].Chunks {
					t.Fatalf("%s step %d flow %d: moves %v, want %v", name, i, f, flows[f].Moves, want)
				}
				moves += len(want)
				if b := s.ChunkBytes(flows[f].Chunks, 1e6); b > p.Steps[k].Bytes {
					t.Fatalf("%s step %d: flow of %v bytes in a step of %v", name, i, b, p.Steps[k].Bytes)
				}
			}
			if len(list) != len(flows) || moves != len(s.Steps[i].Transfers) {
				t.Fatalf("%s step %d: %d flows of %d, %d moves", name, i, len(flows), len(list), moves)
			}
		}
	})
}

// TestChunkRanges checks that chunks cover their buffer without gaps and differ by at most one element.
func TestChunkRanges(t *testing.T) {
	s := &Schedule{Sub: 7}
	for _, count := range []int64{0, 1, 6, 7, 8, 1000} {
		at := int64(0)
		for c := range 3 * s.Sub {
			lo, hi := s.ChunkRange(c, count)
			if size := hi - lo; lo != at || size < count/7 || size > count/7+1 {
				t.Fatalf("count %d chunk %d: %d..%d after %d", count, c, lo, hi, at)
			}
			at = hi
		}
		if at != 3*count {
			t.Fatalf("count %d: chunks end at %d", count, at)
		}
	}
}

// canonical returns e with the operands of each operator in a fixed order.
func canonical(e *Expr) string {
	if e.Left == nil {
		return e.String()
	}
	l, r := canonical(e.Left), canonical(e.Right)
	return "(" + min(l, r) + "+" + max(l, r) + ")"
}

// TestOrders checks expressions of some algorithms, and that all ranks of an AllReduce compute the same.
func TestOrders(t *testing.T) {
	for _, c := range []struct {
		coll Collective
		alg  string
		want string // rank 0, chunk 0, of four ranks
	}{
		{Reduce, "direct", "(((0+1)+2)+3)"},
		{Reduce, "binomial", "((0+1)+(2+3))"},
		{Reduce, "ring", "(0+(3+(2+1)))"},
		{ReduceScatter, "pairwise", "(((0+3)+2)+1)"},
		{AllReduce, "recursive-doubling-xor", "((0+1)+(2+3))"},
		{AllGather, "ring", "0"},
	} {
		orders, err := Orders(build(t, c.coll, c.alg, 4, 0))
		if err != nil || orders[0][0].String() != c.want {
			t.Errorf("%v %s: %v, %v; want %s", c.coll, c.alg, orders[0][0], err, c.want)
		}
	}
	for _, alg := range Algorithms(AllReduce) {
		for n := 1; n <= 17; n++ {
			orders, err := Orders(build(t, AllReduce, alg, n, 0))
			require.NoError(t, err)
			for r := range orders {
				for c := range orders[r] {
					if a, b := canonical(orders[0][c]), canonical(orders[r][c]); a != b {
						t.Fatalf("%s n=%d chunk %d: rank 0 has %s, rank %d has %s", alg, n, c, a, r, b)
					}
				}
			}
		}
	}
	s := build(t, AllReduce, "ring", 4, 0)
	s.Pre = nil
	if _, err := Orders(s); !errors.Is(err, ErrIncorrect) {
		t.Errorf("without Pre: %v", err)
	}
}
