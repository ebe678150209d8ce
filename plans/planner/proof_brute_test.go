package planner_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/brute"
	"lightpath/plans/planner"
	"lightpath/plans/planner/internal/plantest"
)

// tiny is a problem small enough for package brute: up to 4 ranks, 2 planes and 4 steps.
func tiny(rng *rand.Rand) *plans.Problem {
	pick := func(values ...float64) float64 { return values[rng.IntN(len(values))] }
	n := 2 + rng.IntN(3)
	p := &plans.Problem{
		Version: plans.Version, Ranks: n, Planes: 1 + rng.IntN(2), BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: pick(0, 5, 20), HopUS: pick(0, 0, 3), ReconfigUS: pick(0, 10, 60, 200), Forwarding: rng.IntN(3) == 0,
	}
	if rng.IntN(4) == 0 {
		p.Circuits = plans.Duplex
	}
	steps := 1 + rng.IntN(4)
	switch {
	case n == 4:
		steps = 1 + rng.IntN(2)
	case rng.IntN(3) == 0:
		p.ReconfigPerPort = pick(1, 7)
		steps = 1 + rng.IntN(2)
	}
	whole := func() circuit.Permutation {
		for {
			c := circuit.Permutation(rng.Perm(n))
			if p.Circuits != plans.Duplex || c.Involution() {
				return c
			}
		}
	}
	var patterns []circuit.Permutation
	for range 1 + rng.IntN(3) {
		patterns = append(patterns, whole())
	}
	for range steps {
		s := plans.Step{Bytes: 1000 * pick(0, 20, 50, 100, 130), To: slices.Clone(patterns[rng.IntN(len(patterns))])}
		switch rng.IntN(4) {
		case 0: // part of a pattern
			if r := rng.IntN(n); s.To[r] != r && p.Circuits != plans.Duplex {
				s.To[r] = circuit.Dark
			}
		case 1:
			if n == 3 {
				s = plans.Step{Bytes: s.Bytes, Flows: [][2]int{{0, 1}, {0, 2}, {2, 1}}[:2+rng.IntN(2)]}
			}
		case 2: // on duplex planes most often no involution
			s.To = circuit.Permutation(rng.Perm(n))
		}
		p.Steps = append(p.Steps, s)
	}
	switch rng.IntN(3) {
	case 0:
		for range p.Planes {
			p.Initial = append(p.Initial, whole())
		}
	case 1:
		for range p.Planes {
			p.Initial = append(p.Initial, circuit.AllDark(n))
		}
	}
	if rng.IntN(4) == 0 {
		p.Final.Kind = plans.FinalGiven
		for range p.Planes {
			p.Final.Maps = append(p.Final.Maps, whole())
		}
	}
	return p
}

// tinyDivided is a problem in which it pays, or is necessary, to serve a step on several settings of a
// plane: partial permutations whose circuits overlap, or that are no involutions.
func tinyDivided(rng *rand.Rand) *plans.Problem {
	n := 3 + rng.IntN(2)
	p := &plans.Problem{
		Version: plans.Version, Ranks: n, Planes: 1, BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: float64(5 * rng.IntN(2)), ReconfigUS: []float64{10, 60, 200, 1000}[rng.IntN(4)],
	}
	if rng.IntN(2) == 0 {
		p.Circuits = plans.Duplex
	}
	for range 1 + rng.IntN(4) {
		s := plans.Step{Bytes: 1000 * []float64{20, 50, 130}[rng.IntN(3)], To: circuit.Permutation(rng.Perm(n))}
		for r := range s.To {
			if rng.IntN(3) == 0 {
				s.To[r] = circuit.Dark
			}
		}
		p.Steps = append(p.Steps, s)
	}
	if c := circuit.Permutation(rng.Perm(n)); rng.IntN(3) > 0 && (p.Circuits != plans.Duplex || c.Involution()) {
		p.Initial = []circuit.Permutation{c}
	}
	return p
}

// TestDividedBrute: auto finds the optimum where steps have to be divided over settings of one plane.
func TestDividedBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(92, 1))
	problems := plantest.Cases(96)
	tried, optimal := 0, 0
	for i := 0; tried < problems; i++ {
		p := tinyDivided(rng)
		optimum := math.Inf(1)
		for visits := 1; visits <= 3; visits++ {
			us, err := brute.Steps(p, visits)
			if err != nil {
				t.Fatalf("problem %d: %v", i, err)
			}
			optimum = math.Min(optimum, us)
		}
		if math.IsInf(optimum, 1) {
			continue // it takes more work in a step than was tried
		}
		tried++
		plan := solve(t, "auto", p, planner.Options{TimeLimit: time.Minute, Effort: 5 * time.Millisecond})
		switch {
		case plan.LowerBoundUS > optimum+1e-6*(1+optimum):
			t.Errorf("problem %d: bound %v (%s), a plan takes %v: %s", i, plan.LowerBoundUS, plan.BoundProof, optimum,
				encoded(t, p))
		case plans.SameUS(plan.CCTUS, optimum):
			optimal++
		case plan.CCTUS < optimum && !beyondBrute(plan) || plan.CCTUS > 1.1*optimum:
			t.Errorf("problem %d: %s takes %v, the optimum is %v: %s", i, plan.Planner, plan.CCTUS, optimum, encoded(t, p))
		}
	}
	if t.Logf("%d of %d optimal", optimal, tried); optimal < tried-1 {
		t.Errorf("%d optima of %d", optimal, tried)
	}
}

// TestDividedByHand: steps for which one setting does not do, and one for which it does but costs a
// switch more.
func TestDividedByHand(t *testing.T) {
	step := func(bytes float64, to ...int) plans.Step { return plans.Step{Bytes: bytes, To: to} }
	cycle := &plans.Problem{
		Version: plans.Version, Ranks: 3, Planes: 1, BandwidthGbps: 8, ReconfigUS: 10, Circuits: plans.Duplex,
		Final: plans.Final{Kind: plans.FinalGiven, Maps: []circuit.Permutation{{1, 0, 2}}},
		Steps: []plans.Step{step(1000, 1, 2, 0)},
	}
	overlap := &plans.Problem{
		Version: plans.Version, Ranks: 4, Planes: 1, BandwidthGbps: 8, ReconfigUS: 1000, Circuits: plans.Simplex,
		Initial: []circuit.Permutation{{1, 0, 3, 2}},
		Steps:   []plans.Step{step(50e3, 1, 3, -1, -1), step(50e3, 3, -1, 0, -1), step(130e3, -1, -1, -1, 0)},
	}
	for _, c := range []struct {
		name    string
		p       *plans.Problem
		planner string
		us      float64
	}{
		{"a cycle on a duplex plane", cycle, "perstep", 23},
		{"a cycle on a duplex plane", cycle, "harvest", 23},
		{"a cycle on a duplex plane", cycle, "swot", 23},
		{"a cycle on a duplex plane", cycle, "weave", 23},
		{"a cycle on a duplex plane", cycle, "auto", 23},
		{"circuits of two steps at a time", overlap, "perstep", 3230},
		{"circuits of two steps at a time", overlap, "harvest", 2280},
		{"circuits of two steps at a time", overlap, "auto", 2280},
	} {
		if plan := solve(t, c.planner, c.p, quick); !plans.SameUS(plan.CCTUS, c.us) {
			t.Errorf("%s: %s takes %v us, want %v", c.name, c.planner, plan.CCTUS, c.us)
		}
	}
	if plan := trySolve(t, "static", cycle, quick); plan != nil {
		t.Errorf("static serves a cycle on one duplex plane in %v us", plan.CCTUS)
	}
}

// TestProofBrute: on problems whose optimum is known, no bound is above it, no plan is below it, and
// a plan that is said to be optimal is. Plans may do what package brute does not try (joint
// transmissions, more work in a step): a plan below its optimum must be of that kind.
func TestProofBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 1))
	type tally struct{ plans, optimal, proven int }
	count := map[string]*tally{}
	problems := plantest.Cases(96)
	tried := 0
	for i := 0; tried < problems; i++ {
		p := tiny(rng)
		if err := p.Validate(); err != nil {
			t.Fatalf("problem %d: %v", i, err)
		}
		optimum, err := brute.Steps(p, 1)
		if errors.Is(err, brute.ErrTooLarge) {
			continue
		}
		if p.Planes*len(p.Steps) < 4 {
			if more, err := brute.Steps(p, 2); err == nil {
				optimum = math.Min(optimum, more)
			}
		}
		if math.IsInf(optimum, 1) {
			continue // it takes more work in a step than was tried
		}
		tried++
		proven := 0.0
		for _, name := range planner.Names() {
			plan := trySolve(t, name, p, planner.Options{TimeLimit: time.Minute, Effort: 10 * time.Millisecond})
			if plan == nil {
				continue
			}
			if proven = math.Max(proven, plan.LowerBoundUS); name == "auto" && plan.LowerBoundUS < proven-1e-6*(1+proven) {
				t.Errorf("problem %d: auto states the bound %v, another planner %v: %s", i, plan.LowerBoundUS, proven,
					encoded(t, p))
			}
			c := count[name]
			if c == nil {
				c = &tally{}
				count[name] = c
			}
			c.plans++
			if plan.LowerBoundUS > optimum+1e-6*(1+optimum) {
				t.Errorf("problem %d: %s states the bound %v (%s), a plan takes %v: %s", i, name, plan.LowerBoundUS,
					plan.BoundProof, optimum, encoded(t, p))
			}
			if plan.CCTUS < optimum-1e-6*(1+optimum) && !beyondBrute(plan) {
				t.Errorf("problem %d: %s takes %v, the optimum is %v: %s", i, name, plan.CCTUS, optimum, encoded(t, p))
			}
			if plans.SameUS(plan.CCTUS, optimum) {
				c.optimal++
			}
			if plans.SameUS(plan.CCTUS, plan.LowerBoundUS) {
				c.proven++
			}
		}
	}
	for _, name := range planner.Names() {
		c := count[name]
		if c == nil || c.plans*3 < problems {
			t.Errorf("%s planned too few problems: %+v", name, c)
			continue
		}
		t.Logf("%-8s %3d plans, %3d optimal, %3d proven", name, c.plans, c.optimal, c.proven)
	}
	for name, percent := range map[string]int{"swot": 20, "weave": 4, "auto": 4} { // that may be missed, at least one
		if c := count[name]; c != nil && c.plans-c.optimal > max(1, c.plans*percent/100) {
			t.Errorf("%s found %d optima of %d", name, c.optimal, c.plans)
		}
	}
}

// beyondBrute reports whether a plan does what package brute does not try: joint transmissions, or a
// plane that works more than once in a step.
func beyondBrute(plan *plans.Plan) bool {
	for _, entries := range plan.Planes {
		times := map[int]int{}
		for _, e := range entries {
			if e.Kind == plans.Transmit {
				if times[e.Step]++; e.Joint != "" || times[e.Step] > 1 {
					return true
				}
			}
		}
	}
	return false
}

// TestProofBruteDemand is TestProofBrute for demands.
func TestProofBruteDemand(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 2))
	type tally struct{ problems, optimal, proven int }
	count := map[plans.CircuitKind]*tally{plans.Simplex: {}, plans.Duplex: {}, plans.Interleaved: {}}
	problems := plantest.Cases(144)
	for i := range problems {
		n := 2 + rng.IntN(2)
		p := &plans.Problem{
			Version: plans.Version, Ranks: n, Planes: 1 + rng.IntN(2), BandwidthGbps: 8,
			ReconfigUS: []float64{0, 1, 10, 80}[rng.IntN(4)],
			Circuits:   []plans.CircuitKind{plans.Simplex, plans.Interleaved, plans.Duplex}[i%3],
		}
		if p.Circuits == plans.Interleaved {
			p.Planes *= 2
		}
		for range n {
			row := make([]float64, n)
			for s := range row {
				if rng.IntN(4) > 0 {
					row[s] = 1000 * float64(rng.IntN(120))
				}
			}
			p.Demand = append(p.Demand, row)
		}
		optimum, err := brute.Demand(p)
		require.NoError(t, err)
		for _, name := range []string{"spectra", "auto", "weave"} {
			plan := solve(t, name, p, planner.Options{TimeLimit: time.Minute, Effort: 20 * time.Millisecond})
			if plan.LowerBoundUS > optimum+1e-6*(1+optimum) || plan.CCTUS < optimum-1e-6*(1+optimum) {
				t.Errorf("problem %d: %s: %v >= %v (%s), the optimum is %v: %s", i, name, plan.CCTUS, plan.LowerBoundUS,
					plan.BoundProof, optimum, encoded(t, p))
			}
			if name != "spectra" {
				continue
			}
			c := count[p.Circuits]
			c.problems++
			if plans.SameUS(plan.CCTUS, optimum) {
				c.optimal++
			} else if plan.CCTUS > 1.05*optimum {
				t.Errorf("problem %d: %v, the optimum is %v: %s", i, plan.CCTUS, optimum, encoded(t, p))
			}
			if plans.SameUS(plan.CCTUS, plan.LowerBoundUS) {
				c.proven++
			}
		}
	}
	for kind, c := range count {
		if t.Logf("%s: %+v", kind, *c); c.optimal*100 < c.problems*96 {
			t.Errorf("%s: %d optima of %d", kind, c.optimal, c.problems)
		}
	}
}

// encoded is a problem for a message: one that can be written to a file.
func encoded(t *testing.T, p *plans.Problem) string {
	t.Helper()
	text, err := plans.EncodeProblem(p)
	require.NoError(t, err)
	return string(text)
}
