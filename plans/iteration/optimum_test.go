package iteration

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration/trace"
)

// exhaustive tries every candidate at every position.
func (s *solver) exhaustive(order []int) float64 {
	choice, best := make([]int, len(order)), math.Inf(1)
	var t timed
	var try func(at int)
	try = func(at int) {
		if at == len(order) {
			best = math.Min(best, s.time(&t, order, choice, early))
			return
		}
		for _, k := range s.byShape[s.p.Of[order[at]]] {
			choice[at] = k
			try(at + 1)
		}
	}
	try(0)
	return best
}

// tiny returns a problem of shifts on two planes.
func tiny(r *rand.Rand, calls int, chain bool) *Problem {
	f := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 8, AlphaUS: 1,
		ReconfigUS: float64(1 + r.IntN(60)), Circuits: plans.Simplex}
	t := &trace.Trace{Ranks: 4, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3}}}}}
	kinds := 2 + r.IntN(2)
	for i := range calls {
		after := trace.After{Call: i - 1, GapUS: float64(r.IntN(60))}
		if !chain {
			after.Call = r.IntN(i+1) - 1
		}
		kind := r.IntN(kinds)
		t.Calls = append(t.Calls, trace.Call{Collective: "shifts", Algorithm: "a", Root: kind,
			Bytes: float64(1e4 * (1 + kind)), After: []trace.After{after}, TailUS: float64(r.IntN(30))})
	}
	p, err := Pose(f, "", t, func(c *trace.Call, ranks int) ([]plans.Step, error) {
		one := plans.Step{Bytes: c.Bytes, To: circuit.Shift(ranks, 1+c.Root)}
		if c.Root == 2 {
			return []plans.Step{one, {Bytes: c.Bytes, To: circuit.Shift(ranks, 1)}}, nil
		}
		return []plans.Step{one}, nil
	})
	if err != nil {
		panic(err)
	}
	return p
}

// TestOptimum: for chains the dynamic program finds the best of all choices of candidates. For calls that overlap it and
// the improvement find it nearly always, and never miss it by much.
func TestOptimum(t *testing.T) {
	missed := 0
	const cases = 60
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		chain := seed%2 == 0
		p := tiny(r, 3+r.IntN(3), chain)
		n := len(p.Shapes)
		s := &solver{p: p, o: Options{TimeLimit: time.Minute}, deadline: time.Now().Add(time.Minute),
			byShape: make([][]int, n), asked: map[request]bool{}, best: make([]int, n), bound: make([]float64, n)}
		for i := range s.best {
			s.best[i] = -1
		}
		if err := s.generate(context.Background()); err != nil {
			t.Fatal(err)
		}
		for shape := range s.byShape { // an enumeration of 7 candidates is enough
			s.byShape[shape] = s.byShape[shape][:min(7, len(s.byShape[shape]))]
		}
		order := s.inOrder()
		want := s.exhaustive(order)
		choice, got := s.program(order)
		if chain {
			if !plans.SameUS(got, want) {
				t.Errorf("seed %d: chain: %v us, the best choice takes %v us", seed, got, want)
			}
			continue
		}
		best := solution{order, choice, got}
		s.descend(context.Background(), &best)
		if !plans.AtLeastUS(want, best.us) {
			missed++
			if best.us > 1.1*want {
				t.Errorf("seed %d: %v us, the best choice takes %v us", seed, best.us, want)
			}
		}
	}
	if missed > cases/10 {
		t.Errorf("missed the best choice of %d problems", missed)
	}
	t.Logf("missed %d of %d with overlap", missed, cases/2)
}
