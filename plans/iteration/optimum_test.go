package iteration

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
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
	p, err := Pose(f, "", t, func(c *trace.Call, ranks int) (x Exchange, err error) {
		x.Steps = []plans.Step{{Bytes: c.Bytes, To: circuit.Shift(ranks, 1+c.Root)}}
		if c.Root == 2 {
			x.Steps = append(x.Steps, plans.Step{Bytes: c.Bytes, To: circuit.Shift(ranks, 1)})
		}
		return x, nil
	})
	if err != nil {
		panic(err)
	}
	return p
}

// newTestSolver returns a solver with the candidates of a problem.
func newTestSolver(t *testing.T, p *Problem) *solver {
	t.Helper()
	n := len(p.Shapes)
	s := &solver{p: p, o: Options{TimeLimit: time.Minute}, deadline: time.Now().Add(time.Minute),
		byShape: make([][]int, n), asked: map[request]bool{}, best: slices.Repeat([]int{-1}, n), bound: make([]float64, n)}
	if err := s.generate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOptimum: for chains the dynamic program finds the best of all choices of candidates. For calls that overlap it
// and the improvement find it nearly always, and never miss it by much.
func TestOptimum(t *testing.T) {
	missed := 0
	const cases = 60
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		chain := seed%2 == 0
		p := tiny(r, 3+r.IntN(3), chain)
		s := newTestSolver(t, p)
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
		best := solution{order: order, choice: choice, us: got}
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

// TestFewestSwitches: of choices that take equally long, the plan has the one with the fewest gaps with a switch. Here
// gaps hide all switches. The first call has one candidate, the others may stay on its circuits or use others.
func TestFewestSwitches(t *testing.T) {
	p := tiny(rand.New(rand.NewPCG(2, 1)), 4, true)
	for i := range p.Trace.Calls {
		p.Trace.Calls[i].After[0].GapUS = 1e6
		p.Of[i] = min(1, i)
	}
	s := newTestSolver(t, p)
	here := *s.all[s.best[0]]
	there := here
	there.first = s.settings.add([]circuit.Permutation{circuit.Shift(4, 3), circuit.Shift(4, 3)})
	there.last = there.first
	s.all, s.lags = nil, nil
	s.byShape = [][]int{nil, nil}
	s.add(&here)
	stay := here
	stay.shape, there.shape = 1, 1
	s.add(&stay)
	s.add(&there)
	for range 2 { // the one that is equal comes after and before
		choice, _ := s.program(s.inOrder())
		for at := range choice {
			if s.lagOf(choice[(at+3)%4], choice[at]).moves {
				t.Errorf("switches before call %d for nothing: %v", at, choice)
			}
		}
		slices.Reverse(s.byShape[1])
	}
}

// TestNeverSlower: the search takes a baseline where its own candidates are worse.
func TestNeverSlower(t *testing.T) {
	p := tiny(rand.New(rand.NewPCG(3, 1)), 5, true)
	s := newTestSolver(t, p)
	base := s.baselines()
	for shape, list := range s.byShape { // only a slow plan is left
		slow := *s.all[list[0]]
		slow.us *= 100
		s.all = append(s.all, &slow)
		for i := range s.lags {
			s.lags[i] = append(s.lags[i], lag{})
		}
		s.lags = append(s.lags, make([]lag, len(s.all)))
		s.byShape[shape] = []int{len(s.all) - 1}
	}
	s.o.TimeLimit = time.Nanosecond // no further plans
	s.deadline = time.Now()
	var tm timed
	want := s.time(&tm, s.inOrder(), base.perCall, early)
	want = math.Min(want, s.time(&tm, s.inOrder(), base.greedy, early))
	if base.static != nil {
		want = math.Min(want, s.time(&tm, s.inOrder(), base.static, early))
	}
	if got := s.search(context.Background(), base, nil); !plans.SameUS(got.us, want) {
		t.Errorf("%v us, a baseline takes %v us", got.us, want)
	}
}

// TestLagOfPairs: interleaved planes switch when both have finished.
func TestLagOfPairs(t *testing.T) {
	p := tiny(rand.New(rand.NewPCG(1, 1)), 2, true)
	p.Fabric.ReconfigUS = 50
	s := &solver{p: p}
	one := s.settings.add([]circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 3)})
	two := s.settings.add([]circuit.Permutation{circuit.Shift(4, 3), circuit.Shift(4, 1)})
	a := &candidate{plan: &plans.Plan{Planes: make([][]plans.Entry, 2)}, us: 100, last: one, idle: []float64{30, 10}}
	b := &candidate{first: two}
	if l := s.measureLag(a, b); l.early != 40 || l.gap != 50 || !l.moves {
		t.Errorf("%+v", l)
	}
	p.Fabric.Circuits = plans.Interleaved
	if l := s.measureLag(a, b); l.early != 40 {
		t.Errorf("%+v", l)
	}
	tail, gap := s.divide(a, b, 100, 100)
	if len(tail) != 2 || len(gap) != 0 {
		t.Errorf("%v %v", tail, gap)
	}
	s.all = []*candidate{a, b}
	plan := s.withTail(0, 1, tail)
	for j := range plan.Planes {
		if e := plan.Planes[j][0]; e.StartUS != 90 || e.EndUS != 140 {
			t.Errorf("plane %d: %+v", j, e)
		}
	}
	a.idle = []float64{30, 20}
	if l := s.measureLag(a, b); l.early != 30 {
		t.Errorf("%+v", l)
	}
	p.Fabric.Circuits = plans.Simplex
	if l := s.measureLag(a, b); l.early != 30 {
		t.Errorf("%+v", l)
	}
}
