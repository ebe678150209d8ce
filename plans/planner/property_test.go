package planner_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/planner/internal/plantest"
	"lightpath/plans/sim"
)

// quick keeps searches short: a plan must be right however short the search is.
var quick = planner.Options{TimeLimit: time.Minute, Effort: 4 * time.Millisecond, Seed: 1}

// solve returns the plan of a problem that must have one, after check and simulation agree with its CCT.
func solve(t *testing.T, name string, p *plans.Problem, o planner.Options) *plans.Plan {
	t.Helper()
	plan := trySolve(t, name, p, o)
	if plan == nil {
		t.Fatalf("%s: no plan", name)
	}
	return plan
}

// trySolve is solve for a problem that may have no plan; then it returns nil.
func trySolve(t *testing.T, name string, p *plans.Problem, o planner.Options) *plans.Plan {
	t.Helper()
	if o.TimeLimit == 0 { // the default would end the search of a loaded host early
		o.TimeLimit, o.Effort = time.Minute, planner.DefaultTimeLimit/planner.EffortShare
	}
	plan, err := planner.Solve(context.Background(), name, p, o)
	if errors.Is(err, planner.ErrInfeasible) {
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if r, err := check.Check(p, plan); err != nil {
		t.Fatalf("%s: %v", name, err)
	} else if !plans.SameUS(r.CCTUS, plan.CCTUS) {
		t.Fatalf("%s: cct %v, checked %v", name, plan.CCTUS, r.CCTUS)
	}
	if r, err := sim.Run(p, plan); err != nil {
		t.Fatalf("%s: %v", name, err)
	} else if !plans.SameUS(r.CCTUS, plan.CCTUS) {
		t.Fatalf("%s: cct %v, simulated %v", name, plan.CCTUS, r.CCTUS)
	}
	return plan
}

// randomPattern is a permutation that planes of the given kind can hold, whole or partial.
func randomPattern(rng *rand.Rand, n int, kind plans.CircuitKind) circuit.Permutation {
	c := circuit.Permutation(rng.Perm(n))
	switch choice := rng.IntN(4); {
	case kind == plans.Duplex:
		order := rng.Perm(n)
		for i := 0; i+1 < n; i += 2 {
			c[order[i]], c[order[i+1]] = order[i+1], order[i]
		}
		if n%2 == 1 {
			c[order[n-1]] = order[n-1]
		}
		return c
	case choice == 0:
		return circuit.Shift(n, 1+rng.IntN(max(1, n-1)))
	case choice == 1:
		for r := range c {
			if rng.IntN(3) == 0 {
				c[r] = circuit.Dark
			}
		}
	}
	return c
}

// randomFlows are any flows, most often no partial permutation.
func randomFlows(rng *rand.Rand, n int) [][2]int {
	flows := [][2]int{}
	for s := range n {
		for d := range n {
			if s != d && rng.IntN(3) == 0 {
				flows = append(flows, [2]int{s, d})
			}
		}
	}
	rng.Shuffle(len(flows), func(a, b int) { flows[a], flows[b] = flows[b], flows[a] })
	return flows
}

func randomProblem(rng *rand.Rand) *plans.Problem {
	pick := func(values ...float64) float64 { return values[rng.IntN(len(values))] }
	p := fabric(2+rng.IntN(7), 1+rng.IntN(4), pick(0, 5, 20), pick(0, 10, 200))
	p.HopUS = pick(0, 0, 2)
	p.Forwarding = rng.IntN(3) == 0
	if rng.IntN(4) == 0 {
		p.ReconfigPerPort = 3
	}
	switch rng.IntN(5) {
	case 0:
		p.Circuits = plans.Duplex
	case 1:
		p.Circuits, p.Planes = plans.Interleaved, 2*(1+rng.IntN(2))
	}
	scale := pick(1, 1, 1, 1e-4, 1e5) // of times: nanoseconds to minutes
	p.ReconfigUS *= scale
	var patterns []circuit.Permutation
	for range 1 + rng.IntN(3) {
		patterns = append(patterns, randomPattern(rng, p.Ranks, p.Circuits))
	}
	for range 1 + rng.IntN(6) {
		s := plans.Step{Bytes: scale * pick(0, 1, 1e5, 1e6, 4e6), To: patterns[rng.IntN(len(patterns))]}
		if rng.IntN(6) == 0 {
			s.To = circuit.Permutation(rng.Perm(p.Ranks)) // on duplex planes most often no involution
		}
		if rng.IntN(6) == 0 {
			s = plans.Step{Bytes: s.Bytes, Flows: s.FlowList()}
			if s.Flows == nil {
				s.Flows = [][2]int{{0, 1}}
			}
		}
		if rng.IntN(6) == 0 {
			s = plans.Step{Bytes: s.Bytes, Flows: randomFlows(rng, p.Ranks)}
		}
		p.Steps = append(p.Steps, s)
	}
	maps := func() []circuit.Permutation {
		var all []circuit.Permutation
		for j := range p.Planes {
			c := patterns[rng.IntN(len(patterns))]
			if p.Circuits == plans.Interleaved && j%2 == 1 {
				c = all[j-1].Inverse()
			}
			all = append(all, c)
		}
		return all
	}
	switch rng.IntN(4) {
	case 0:
		for range p.Planes {
			p.Initial = append(p.Initial, circuit.AllDark(p.Ranks))
		}
	case 1:
		p.Initial = maps()
	}
	switch rng.IntN(4) {
	case 0:
		p.Final.Kind = plans.FinalInitial
	case 1:
		p.Final = plans.Final{Kind: plans.FinalGiven, Maps: maps()}
	}
	return p
}

func TestRandomProblems(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	solved := map[string]int{}
	problems := plantest.Cases(400)
	for i := range problems {
		p := randomProblem(rng)
		if err := p.Validate(); err != nil {
			t.Fatalf("problem %d: %v", i, err)
		}
		cct := map[string]float64{}
		for _, name := range planner.Names() {
			cct[name] = math.Inf(1)
			if plan := trySolve(t, name, p, quick); plan != nil {
				cct[name] = plan.CCTUS
				solved[name]++
				if plan.BoundProof == "" {
					t.Fatalf("problem %d: %s states no proof", i, name)
				}
			}
		}
		least := math.Inf(1)
		for _, name := range planner.Names() {
			least = math.Min(least, cct[name])
		}
		if cct["auto"] > least+1e-6 {
			t.Fatalf("problem %d: auto %v, best %v", i, cct["auto"], least)
		}
		if least := math.Min(cct["static"], cct["perstep"]); cct["harvest"] > least+1e-6*(1+least) {
			t.Fatalf("problem %d: harvest %v, static %v, perstep %v", i, cct["harvest"], cct["static"], cct["perstep"])
		}
		if cct["swot"] > cct["perstep"]+1e-6 || !p.Forwarding && cct["swot"] > cct["static"]+1e-6 {
			t.Fatalf("problem %d: swot %v, static %v, perstep %v", i, cct["swot"], cct["static"], cct["perstep"])
		}
	}
	for _, name := range planner.Names() {
		if solved[name]*10 < problems {
			t.Errorf("%s solved only %d of %d", name, solved[name], problems)
		}
	}
}

// TestRelabelling: names of ranks do not matter, to the planners and to the bounds that
// look at every rank.
func TestRelabelling(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for i := range plantest.Cases(240) {
		p := randomProblem(rng)
		q := relabel(p, rng.Perm(p.Ranks))
		if split(p) {
			continue // which matchings are chosen, and so what repeats, depends on names
		}
		for _, name := range []string{"static", "perstep", "harvest", "swot"} {
			if p.Forwarding && (name == "static" || name == "harvest") {
				continue // their rings are rings of neighbouring names
			}
			if p.Circuits == plans.Interleaved && p.ReconfigPerPort > 0 {
				continue // which half of a pair gets the pattern decides what changes
			}
			o := planner.Options{TimeLimit: time.Minute, Effort: 30 * time.Millisecond}
			a, b := trySolve(t, name, p, o), trySolve(t, name, q, o)
			if (a == nil) != (b == nil) {
				t.Fatalf("problem %d: %s: feasible %v, relabelled %v", i, name, a != nil, b != nil)
			}
			if a != nil && (name != "swot" || a.CCTUS == a.LowerBoundUS && b.CCTUS == b.LowerBoundUS) &&
				!plans.SameUS(a.CCTUS, b.CCTUS) {
				t.Fatalf("problem %d: %s: %v, relabelled %v", i, name, a.CCTUS, b.CCTUS)
			}
			if a != nil && a.LowerBoundUS > b.CCTUS+1e-6 {
				t.Fatalf("problem %d: %s: bound %v above the relabelled plan %v", i, name, a.LowerBoundUS, b.CCTUS)
			}
		}
	}
}

// split reports whether a step of p is no partial permutation.
func split(p *plans.Problem) bool {
	for _, s := range p.Steps {
		to, from := map[int]int{}, map[int]int{}
		for _, f := range s.Flows {
			to[f[0]]++
			from[f[1]]++
			if to[f[0]] > 1 || from[f[1]] > 1 {
				return true
			}
		}
	}
	return false
}

func relabel(p *plans.Problem, name []int) *plans.Problem {
	q := *p
	one := func(c circuit.Permutation) circuit.Permutation {
		d := circuit.AllDark(len(c))
		for r, s := range c {
			if s != circuit.Dark {
				d[name[r]] = name[s]
			}
		}
		return d
	}
	all := func(maps []circuit.Permutation) (out []circuit.Permutation) {
		for _, c := range maps {
			out = append(out, one(c))
		}
		return out
	}
	q.Initial, q.Final.Maps = all(p.Initial), all(p.Final.Maps)
	q.Steps = nil
	for _, s := range p.Steps {
		r := plans.Step{Bytes: s.Bytes}
		if s.To != nil {
			r.To = one(s.To)
		}
		for _, f := range s.Flows {
			r.Flows = append(r.Flows, [2]int{name[f[0]], name[f[1]]})
		}
		q.Steps = append(q.Steps, r)
	}
	return &q
}

// TestMonotone: more bandwidth never costs time, faster switches never do either.
func TestMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 1))
	better := map[string]func(p *plans.Problem){
		"bandwidth": func(p *plans.Problem) { p.BandwidthGbps *= 1.5 },
		"reconfig":  func(p *plans.Problem) { p.ReconfigUS /= 2 },
		"alpha":     func(p *plans.Problem) { p.AlphaUS /= 2 },
	}
	for i := range plantest.Cases(80) {
		p := randomProblem(rng)
		for what, improve := range better {
			q := *p
			improve(&q)
			for _, name := range []string{"static", "perstep", "harvest", "swot"} {
				o := planner.Options{TimeLimit: time.Minute, Effort: 50 * time.Millisecond}
				a, b := trySolve(t, name, p, o), trySolve(t, name, &q, o)
				if a == nil {
					continue
				}
				if name == "swot" && b.CCTUS > b.LowerBoundUS+1e-6 {
					continue // a search that was cut short promises nothing
				}
				if b.CCTUS > a.CCTUS+1e-6 {
					t.Fatalf("problem %d: %s: %v, with better %s %v", i, name, a.CCTUS, what, b.CCTUS)
				}
			}
		}
	}
}

// TestBoundHoldsForEveryPlan compares the bounds of all planners with the plans of all.
func TestBoundHoldsForEveryPlan(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 1))
	for i := range plantest.Cases(320) {
		p := randomProblem(rng)
		bound, by, least := 0.0, "", math.Inf(1)
		for _, name := range []string{"static", "perstep", "harvest", "swot"} {
			if plan := trySolve(t, name, p, planner.Options{TimeLimit: time.Minute,
				Effort: 20 * time.Millisecond}); plan != nil {
				if plan.LowerBoundUS > bound {
					bound, by = plan.LowerBoundUS, plan.BoundProof
				}
				least = math.Min(least, plan.CCTUS)
			}
		}
		if bound > least+1e-6*(1+least) {
			t.Logf("%+v", *p)
			t.Fatalf("problem %d: bound %v (%s) above a plan of %v", i, bound, by, least)
		}
	}
}
