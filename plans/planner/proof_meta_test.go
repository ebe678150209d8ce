package planner_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/planner/internal/plantest"
)

// The optimum of a problem cannot rise if the problem gets easier. So no planner's bound for an easier problem may be
// above any planner's result for the harder one. This checks all bounds with plans of other problems, without knowing
// an optimum.

// easier are changes of a problem after which its optimum is at most what it was.
var easier = []struct {
	name string
	// change edits a deep enough copy; false where it does not apply.
	change func(rng *rand.Rand, q *plans.Problem) bool
}{
	{"bandwidth", func(_ *rand.Rand, q *plans.Problem) bool { q.BandwidthGbps *= 1.25; return true }},
	{"reconfig", func(_ *rand.Rand, q *plans.Problem) bool { q.ReconfigUS *= 0.5; return true }},
	{"alpha", func(_ *rand.Rand, q *plans.Problem) bool { q.AlphaUS *= 0.5; return true }},
	{"hop", func(_ *rand.Rand, q *plans.Problem) bool { q.HopUS = 0; return true }},
	{"per port", func(_ *rand.Rand, q *plans.Problem) bool { q.ReconfigPerPort = 0; return true }},
	{"forwarding", func(_ *rand.Rand, q *plans.Problem) bool { q.Forwarding = true; return true }},
	{"simplex", func(_ *rand.Rand, q *plans.Problem) bool { q.Circuits = plans.Simplex; return true }},
	{"free initial", func(_ *rand.Rand, q *plans.Problem) bool {
		q.Initial = nil
		return q.Final.Kind != plans.FinalInitial
	}},
	{"free final", func(_ *rand.Rand, q *plans.Problem) bool { q.Final = plans.Final{}; return true }},
	{"a plane more", func(_ *rand.Rand, q *plans.Problem) bool {
		if q.Circuits == plans.Interleaved {
			return false
		}
		q.Planes++
		if q.Initial != nil {
			q.Initial = append(slices.Clone(q.Initial), circuit.AllDark(q.Ranks))
		}
		if q.Final.Kind == plans.FinalGiven {
			q.Final = plans.Final{}
		}
		return true
	}},
	{"fewer bytes", func(rng *rand.Rand, q *plans.Problem) bool {
		q.Steps[rng.IntN(len(q.Steps))].Bytes *= 0.5
		return true
	}},
	{"a step less", func(rng *rand.Rand, q *plans.Problem) bool {
		if len(q.Steps) < 2 {
			return false
		}
		i := rng.IntN(len(q.Steps))
		q.Steps = slices.Delete(q.Steps, i, i+1)
		return true
	}},
	{"a flow less", func(rng *rand.Rand, q *plans.Problem) bool {
		s := &q.Steps[rng.IntN(len(q.Steps))]
		flows := slices.Clone(s.FlowList())
		if len(flows) < 2 || q.Circuits == plans.Duplex {
			return false
		}
		k := rng.IntN(len(flows))
		s.To, s.Flows = nil, slices.Delete(flows, k, k+1)
		return true
	}},
	{"steps as one", func(_ *rand.Rand, q *plans.Problem) bool {
		for i := 1; i < len(q.Steps); i++ {
			if a, b := &q.Steps[i-1], &q.Steps[i]; a.To != nil && b.To != nil && a.To.Equal(b.To) {
				a.Bytes += b.Bytes // one overhead and one wait less
				q.Steps = slices.Delete(q.Steps, i, i+1)
				return true
			}
		}
		return false
	}},
	{"time backwards", func(_ *rand.Rand, q *plans.Problem) bool {
		slices.Reverse(q.Steps)
		return q.Initial == nil && q.Final.Kind == plans.FinalAny && q.ReconfigPerPort == 0
	}},
	{"other names", func(rng *rand.Rand, q *plans.Problem) bool { *q = *relabel(q, rng.Perm(q.Ranks)); return true }},
	{"the other way round", func(_ *rand.Rand, q *plans.Problem) bool {
		// Every circuit and flow reversed: the same but for which end a port is counted at.
		if q.ReconfigPerPort > 0 {
			return false
		}
		turn := func(maps []circuit.Permutation) (out []circuit.Permutation) {
			for _, c := range maps {
				out = append(out, c.Inverse())
			}
			return out
		}
		q.Initial, q.Final.Maps = turn(q.Initial), turn(q.Final.Maps)
		for i := range q.Steps {
			s := &q.Steps[i]
			if s.To != nil {
				s.To = s.To.Inverse()
			}
			s.Flows = slices.Clone(s.Flows)
			for k, f := range s.Flows {
				s.Flows[k] = [2]int{f[1], f[0]}
			}
		}
		return true
	}},
}

func copyProblem(p *plans.Problem) *plans.Problem {
	q := *p
	q.Steps = slices.Clone(p.Steps)
	q.Initial = slices.Clone(p.Initial)
	q.Final.Maps = slices.Clone(p.Final.Maps)
	return &q
}

// manyToMany turns some steps of a random problem into ones of flows that are no permutation.
func manyToMany(rng *rand.Rand, p *plans.Problem) {
	for i := range p.Steps {
		if rng.IntN(4) > 0 {
			continue
		}
		var flows [][2]int
		for s := range p.Ranks {
			for d := range p.Ranks {
				if s != d && rng.IntN(p.Ranks) < 2 {
					flows = append(flows, [2]int{s, d})
				}
			}
		}
		if p.Circuits != plans.Duplex && flows != nil {
			p.Steps[i] = plans.Step{Bytes: p.Steps[i].Bytes, Flows: flows}
		}
	}
}

// TestProofEasier: see above; and auto and weave are never above another planner.
func TestProofEasier(t *testing.T) {
	rng := rand.New(rand.NewPCG(32, 1))
	o := planner.Options{TimeLimit: time.Minute, Effort: 2 * time.Millisecond}
	applied := map[string]int{}
	for i := range plantest.Cases(96) {
		p := randomProblem(rng)
		manyToMany(rng, p)
		least, by := math.Inf(1), ""
		bound, proof := 0.0, ""
		cct := map[string]float64{}
		for _, name := range planner.Names() {
			cct[name] = math.Inf(1)
			if plan := trySolve(t, name, p, o); plan != nil {
				if cct[name] = plan.CCTUS; plan.CCTUS < least {
					least, by = plan.CCTUS, name
				}
				if plan.LowerBoundUS > bound {
					bound, proof = plan.LowerBoundUS, plan.BoundProof
				}
			}
		}
		for _, name := range []string{"weave", "auto"} {
			if best, ok := cct[name]; ok && best > least+1e-6*(1+least) {
				t.Errorf("problem %d: %s takes %v, %s %v: %s", i, name, best, by, least, encoded(t, p))
			}
		}
		if math.IsInf(least, 1) {
			continue
		}
		if bound > least+1e-6*(1+least) {
			t.Errorf("problem %d: bound %v (%s); %s has a plan of %v for\n%s", i, bound, proof, by, least, encoded(t, p))
		}
		for _, e := range easier {
			q := copyProblem(p)
			if !e.change(rng, q) {
				continue
			}
			if err := q.Validate(); err != nil {
				t.Fatalf("problem %d: %s: %v", i, e.name, err)
			}
			applied[e.name]++
			for _, name := range []string{"perstep", "harvest", "swot"} {
				if plan := trySolve(t, name, q, o); plan != nil && plan.LowerBoundUS > least+1e-6*(1+least) {
					t.Errorf("problem %d: with %s, %s states the bound %v (%s); %s has a plan of %v for\n%s", i, e.name, name,
						plan.LowerBoundUS, plan.BoundProof, by, least, encoded(t, p))
				}
			}
		}
	}
	for _, e := range easier {
		if applied[e.name] < 1 {
			t.Errorf("%s applied to %d problems", e.name, applied[e.name])
		}
	}
}

// TestProofScale: all times twice as long, or all sizes and the bandwidth twice as large, change
// nothing but the unit: powers of two are exact.
func TestProofScale(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 1))
	o := planner.Options{TimeLimit: time.Minute, Effort: 2 * time.Millisecond}
	for i := range plantest.Cases(96) {
		p := randomProblem(rng)
		for _, sc := range []struct{ time, size float64 }{{2, 1}, {1, 4}, {0.5, 8}} {
			q := copyProblem(p)
			q.AlphaUS *= sc.time
			q.HopUS *= sc.time
			q.ReconfigUS *= sc.time
			q.ReconfigPerPort *= sc.time
			q.BandwidthGbps *= sc.size / sc.time
			for k := range q.Steps {
				q.Steps[k].Bytes *= sc.size
			}
			for _, name := range []string{"static", "perstep", "harvest"} {
				a, b := trySolve(t, name, p, o), trySolve(t, name, q, o)
				if (a == nil) != (b == nil) {
					t.Fatalf("problem %d: %s: feasible %v, scaled %v", i, name, a != nil, b != nil)
				}
				if a == nil {
					continue
				}
				if math.Abs(b.CCTUS-sc.time*a.CCTUS) > 1e-5*(1+b.CCTUS) ||
					math.Abs(b.LowerBoundUS-sc.time*a.LowerBoundUS) > 1e-5*(1+b.LowerBoundUS) {
					t.Errorf("problem %d: %s: %v >= %v, scaled by %v: %v >= %v: %s", i, name, a.CCTUS, a.LowerBoundUS, sc, b.CCTUS,
						b.LowerBoundUS, encoded(t, p))
				}
			}
		}
	}
}

// TestProofRepeats: equal problem, effort and seed give equal plans to the last bit, also where
// planners run side by side.
func TestProofRepeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(34, 1))
	for i := range plantest.Cases(128) {
		p := randomProblem(rng)
		manyToMany(rng, p)
		for _, name := range planner.Names() {
			var first []byte
			for range 2 {
				plan := trySolve(t, name, p, planner.Options{TimeLimit: time.Minute, Effort: 2 * time.Millisecond, Seed: int64(i)})
				if plan == nil {
					break
				}
				text, err := plans.EncodePlan(plan)
				if err != nil {
					t.Fatal(err)
				}
				if first != nil && !bytes.Equal(text, first) {
					t.Errorf("problem %d: %s: two plans of\n%s\n%s\n%s", i, name, encoded(t, p), first, text)
				}
				first = text
			}
		}
	}
}
