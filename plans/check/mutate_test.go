package check_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/planstest"
	"lightpath/plans/planner"
	"lightpath/plans/sim"
)

// base is a feasible plan of a problem.
type base struct {
	problem *plans.Problem
	plan    *plans.Plan
}

// bases are plans of all kinds: the golden ones, and what planners make of small problems.
func bases(t testing.TB) []base {
	t.Helper()
	var out []base
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		p, q := planstest.Load(t, name)
		out = append(out, base{p, q})
	}
	steps := func(to ...circuit.Permutation) (list []plans.Step) {
		for i, c := range to {
			list = append(list, plans.Step{Bytes: 1e5 * float64(1+i%3), To: c})
		}
		return list
	}
	one, two, half := circuit.Shift(5, 1), circuit.Shift(5, 2), circuit.Permutation{1, -1, 3, -1, -1}
	for _, kind := range []plans.CircuitKind{plans.Simplex, plans.Duplex, plans.Interleaved} {
		p := &plans.Problem{Version: plans.Version, Ranks: 5, Planes: 2, BandwidthGbps: 8, AlphaUS: 3, HopUS: 1,
			ReconfigUS: 40, ReconfigPerPort: 2,
			Circuits: kind, Steps: steps(one, two, half, one)}
		if kind == plans.Duplex {
			p.Steps = steps(circuit.Permutation{1, 0, 3, 2, 4}, circuit.Permutation{2, 3, 0, 1, 4},
				circuit.Permutation{1, 0, 3, 2, 4})
		}
		for _, name := range planner.Names() {
			for _, forward := range []bool{false, true} {
				q := *p
				q.Forwarding = forward
				if forward {
					q.Steps = append(slices.Clone(p.Steps), plans.Step{Bytes: 2e4, Flows: [][2]int{{0, 1}, {0, 2}, {3, 1}}})
					q.Final.Kind = plans.FinalInitial
				}
				plan, err := planner.Solve(context.Background(), name, &q,
					planner.Options{TimeLimit: time.Minute, Effort: time.Millisecond})
				if err == nil {
					out = append(out, base{&q, plan})
				}
			}
		}
	}
	return out
}

func clonePlan(q *plans.Plan) *plans.Plan {
	c := *q
	c.Initial = slices.Clone(q.Initial)
	c.Planes = make([][]plans.Entry, len(q.Planes))
	for j := range q.Planes {
		c.Planes[j] = slices.Clone(q.Planes[j])
		for i := range c.Planes[j] {
			e := &c.Planes[j][i]
			e.Flows, e.To, e.Routes = slices.Clone(e.Flows), e.To.Clone(), slices.Clone(e.Routes)
		}
	}
	return &c
}

// mutate changes a plan a little, or not so little. It keeps away from the tolerances, about which
// checker and referee may differ.
func mutate(rng *rand.Rand, p *plans.Problem, q *plans.Plan) {
	j := rng.IntN(len(q.Planes))
	if len(q.Planes[j]) == 0 {
		return
	}
	i := rng.IntN(len(q.Planes[j]))
	e := &q.Planes[j][i]
	by := []float64{-10, -1, -0.01, 0.01, 1, 10, 100}[rng.IntN(7)]
	other := func() circuit.Permutation {
		if rng.IntN(2) == 0 {
			return circuit.Permutation(rng.Perm(p.Ranks))
		}
		c := circuit.Shift(p.Ranks, rng.IntN(p.Ranks))
		c[rng.IntN(p.Ranks)] = rng.IntN(p.Ranks+1) - 1
		return c
	}
	switch rng.IntN(20) {
	case 0:
		e.StartUS += by
	case 1:
		e.EndUS += by
	case 2:
		e.StartUS, e.EndUS = e.StartUS+by, e.EndUS+by
	case 3:
		e.Bytes *= []float64{0, 0.5, 0.99, 1.01, 2}[rng.IntN(5)]
	case 4:
		e.Step += rng.IntN(3) - 1
	case 5:
		q.Planes[j] = slices.Delete(q.Planes[j], i, i+1)
	case 6:
		q.Planes[j] = slices.Insert(q.Planes[j], i, *e)
	case 7:
		k := rng.IntN(len(q.Planes[j]))
		q.Planes[j][i], q.Planes[j][k] = q.Planes[j][k], q.Planes[j][i]
	case 8:
		if e.Kind != plans.Transmit {
			e.To = other()
		}
	case 9:
		if q.Initial != nil {
			q.Initial[j] = other()
		}
	case 10:
		e.Flows = append(e.Flows, rng.IntN(p.Ranks+1)-1)
	case 11:
		if len(e.Flows) > 0 {
			e.Flows = e.Flows[1:]
		}
	case 12:
		if len(e.Routes) > 0 {
			e.Routes = e.Routes[:len(e.Routes)-1]
		}
	case 13:
		if len(e.Routes) > 0 {
			e.Routes[rng.IntN(len(e.Routes))].Bytes *= []float64{0, 0.5, 2}[rng.IntN(3)]
		}
	case 14:
		if len(e.Routes) > 0 {
			r := &e.Routes[rng.IntN(len(e.Routes))]
			r.Path = slices.Clone(r.Path)
			if len(r.Path) > 0 {
				r.Path[rng.IntN(len(r.Path))][rng.IntN(2)] += rng.IntN(3) - 1
			}
		}
	case 15:
		e.Joint = []string{"", "a", "b"}[rng.IntN(3)]
	case 16:
		e.Kind = []plans.Kind{plans.Transmit, plans.Reconfigure, plans.Hold}[rng.IntN(3)]
		if e.To == nil {
			e.To = other()
		}
	case 17:
		q.LowerBoundUS += by
	case 18:
		q.CCTUS += by
	case 19: // everything later by as much: feasible where nothing waits for it
		for k := i; k < len(q.Planes[j]); k++ {
			q.Planes[j][k].StartUS += math.Abs(by)
			q.Planes[j][k].EndUS += math.Abs(by)
		}
	}
}

// bend changes the problem that a plan is held against; the result is valid.
func bend(rng *rand.Rand, p *plans.Problem) *plans.Problem {
	q := *p
	switch rng.IntN(8) {
	case 0:
		q.Forwarding = !q.Forwarding
	case 1:
		q.Circuits = []plans.CircuitKind{plans.Simplex, plans.Duplex, plans.Interleaved}[rng.IntN(3)]
	case 2:
		q.BandwidthGbps *= []float64{0.5, 2}[rng.IntN(2)]
	case 3:
		q.ReconfigUS += float64(rng.IntN(3) - 1)
	case 4:
		q.ReconfigPerPort, q.HopUS = float64(rng.IntN(4)), float64(rng.IntN(3))
	case 5:
		q.AlphaUS += float64(rng.IntN(3) - 1)
	case 6:
		q.Final.Kind = []plans.FinalKind{plans.FinalAny, plans.FinalInitial}[rng.IntN(2)]
	case 7:
		if q.Steps != nil {
			q.Steps = slices.Clone(q.Steps)
			q.Steps[rng.IntN(len(q.Steps))].Bytes *= 1.5
		}
	}
	if q.Validate() != nil {
		return p
	}
	return &q
}

// judged compares the checker with the referee on a plan, and a plan that both accept with the
// simulator.
func judged(t *testing.T, p *plans.Problem, q *plans.Plan) (accepted bool) {
	t.Helper()
	_, err := check.Check(p, q)
	other := referee(p, q)
	if (err == nil) != (other == nil) {
		problem, _ := plans.EncodeProblem(p)
		plan, _ := plans.EncodePlan(q)
		t.Fatalf("checker: %v\nreferee: %v\n%s\n%s", err, other, problem, plan)
	}
	if err != nil {
		return false
	}
	r, err := sim.Run(p, q)
	if err != nil {
		t.Fatalf("accepted, but: %v", err)
	}
	if r.CCTUS > q.CCTUS+plans.Tolerance(r.CCTUS, q.CCTUS) {
		t.Fatalf("plays in %v us, states %v", r.CCTUS, q.CCTUS)
	}
	return true
}

// restate makes a plan say how long it takes, so that what is wrong is not only that.
func restate(q *plans.Plan) {
	q.CCTUS = 0
	for _, entries := range q.Planes {
		for _, e := range entries {
			if e.Kind != plans.Reconfigure {
				q.CCTUS = math.Max(q.CCTUS, e.EndUS)
			}
		}
	}
	q.LowerBoundUS = math.Min(q.LowerBoundUS, q.CCTUS)
}

// TestMutantsAreJudgedAlike: a mutated plan is rejected, or really feasible.
func TestMutantsAreJudgedAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 1))
	accepted, rejected := 0, 0
	for _, b := range bases(t) {
		if !judged(t, b.problem, b.plan) {
			t.Fatal("a plan of a planner is rejected")
		}
		for range 300 {
			q := clonePlan(b.plan)
			p := bend(rng, b.problem)
			for range rng.IntN(4) {
				mutate(rng, p, q)
			}
			if rng.IntN(4) > 0 {
				restate(q)
			}
			if judged(t, p, q) {
				accepted++
			} else {
				rejected++
			}
		}
	}
	t.Logf("%d accepted, %d rejected", accepted, rejected)
	if accepted < 100 || rejected < 1000 {
		t.Errorf("%d accepted, %d rejected: the mutations test little", accepted, rejected)
	}
}

// FuzzMutants is the same from a seed and for longer.
func FuzzMutants(f *testing.F) {
	all := bases(f)
	for i := range 8 {
		f.Add(uint64(i), uint8(i), uint8(1+i%3))
	}
	f.Fuzz(func(t *testing.T, seed uint64, which, times uint8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := all[int(which)%len(all)]
		q := clonePlan(b.plan)
		p := b.problem
		if seed%3 > 0 {
			p = bend(rng, p)
		}
		for range int(times) % 6 {
			mutate(rng, p, q)
		}
		if seed%4 > 0 {
			restate(q)
		}
		judged(t, p, q)
	})
}
