package planner_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/plans/planner/doubling"
)

// TestFig5 is the worked example of SWOT: 1500 us for the strawman, 1200 for SWOT, proven
// optimal, 700 without switching costs.
func TestFig5(t *testing.T) {
	if plan := solve(t, "perstep", fig5(), planner.Options{}); plan.CCTUS != 1500 {
		t.Errorf("perstep: %v us, want 1500", plan.CCTUS)
	}
	plan := solve(t, "swot", fig5(), planner.Options{})
	if !plans.SameUS(plan.CCTUS, 1200) || !plans.SameUS(plan.LowerBoundUS, 1200) {
		t.Errorf("swot: %v us, bound %v, want 1200 proven", plan.CCTUS, plan.LowerBoundUS)
	}
	if !strings.HasPrefix(plan.BoundProof, "optimal") {
		t.Errorf("swot: proof %q", plan.BoundProof)
	}
	free := fig5()
	free.ReconfigUS = 0
	if plan := solve(t, "swot", free, planner.Options{}); !plans.SameUS(plan.CCTUS, 700) {
		t.Errorf("without switching costs: %v us, want 700", plan.CCTUS)
	}
	_, err := planner.Solve(context.Background(), "static", fig5(), planner.Options{})
	if !errors.Is(err, planner.ErrInfeasible) || !strings.Contains(err.Error(), "step 1:") {
		t.Errorf("static: %v, want infeasible at step 1", err)
	}
	if plan := solve(t, "auto", fig5(), planner.Options{}); plan.Planner != "swot" {
		t.Errorf("auto chose %s", plan.Planner)
	}
}

// TestPublishedInstances are proven or best known values of the SWOT evaluation setup.
func TestPublishedInstances(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    *plans.Problem
		us   float64
	}{
		{"pairwise p=5, free", pairwise(fabric(5, 4, 20, 200), 32*mb), 644},
		{"pairwise p=5, on shift 1", startOn(pairwise(fabric(5, 4, 20, 200), 32*mb), circuit.Shift(5, 1)), 685.3334},
		{"pairwise p=10", pairwise(fabric(10, 4, 20, 200), 32*mb), 1085.4},
		{"rabenseifner p=64", rabenseifner(fabric(64, 4, 20, 200), 32*mb), 1640},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("searches for a second")
			}
			plan := solve(t, "swot", tc.p, planner.Options{TimeLimit: time.Minute, Effort: 300 * time.Millisecond})
			if plan.CCTUS > tc.us*1.0001 {
				t.Errorf("%v us, want at most %v", plan.CCTUS, tc.us)
			}
			if plan.LowerBoundUS > tc.us*1.0001 {
				t.Errorf("bound %v above a known plan of %v us", plan.LowerBoundUS, tc.us)
			}
		})
	}
}

// TestHarvestDoubling is Table 1 of HARVEST: as switches get dearer, cyclic recursive
// doubling on 8 ranks takes 2, 1 and 0 of them, at 1, 2 and 4 hops and flows per circuit.
func TestHarvestDoubling(t *testing.T) {
	const hop, mbytes = 10.0, 1.0
	for _, tc := range []struct {
		reconfig   float64
		reconfigs  int
		congestion int // of the last step
	}{
		{1, 2, 1}, {35, 1, 2}, {1000, 0, 4},
	} {
		p := fabric(8, 1, 0, tc.reconfig)
		p.HopUS, p.Forwarding = hop, true
		for d := 1; d < 8; d *= 2 {
			p.Steps = append(p.Steps, plans.Step{Bytes: mbytes * mb, To: circuit.Shift(8, d)})
		}
		plan := solve(t, "harvest", p, planner.Options{})
		if n := reconfigurations(plan); n != tc.reconfigs {
			t.Errorf("reconfig %v: %d reconfigurations, want %d", tc.reconfig, n, tc.reconfigs)
		}
		last := plan.Planes[0][len(plan.Planes[0])-1]
		want := float64(tc.congestion) * (hop + plans.WireUS(p, mbytes*mb))
		if !plans.SameUS(last.EndUS-last.StartUS, want) {
			t.Errorf("reconfig %v: the last step takes %v us, want %v", tc.reconfig, last.EndUS-last.StartUS, want)
		}
	}
}

func reconfigurations(plan *plans.Plan) int {
	n := 0
	for _, entries := range plan.Planes {
		for _, e := range entries {
			if e.Kind == plans.Reconfigure {
				n++
			}
		}
	}
	return n
}

// TestDoublingEqualsGeneral: on one plane the closed form and the general dynamic program
// agree; a given start keeps the general one in play, and begins where the closed form
// would. On more planes, which need not all be set alike, the general one is no worse.
func TestDoublingEqualsGeneral(t *testing.T) {
	for _, n := range []int{2, 4, 8, 16, 32} {
		for _, bytes := range []float64{1e3, 1e6, 1e9} {
			for _, reconfig := range []float64{0.1, 5, 100, 1e4} {
				for _, planes := range []int{1, 2} {
					p := cyclicDoubling(fabric(n, planes, 0.5, reconfig), bytes)
					p.HopUS, p.Forwarding = 0.5, true
					var steps []doubling.Step
					for i, s := range p.Steps {
						steps = append(steps, doubling.Step{Log2: i, Bytes: s.Bytes})
					}
					closed := doubling.Synthesize(p, steps).US
					free := solve(t, "harvest", p, planner.Options{SinglePlane: true}).CCTUS
					given := solve(t, "harvest", startOn(p, circuit.Shift(n, 1)), planner.Options{SinglePlane: true}).CCTUS
					if planes == 1 && !plans.SameUS(closed, free) || planes == 1 && !plans.SameUS(closed, given) ||
						free > closed+1e-6 || given > closed+1e-6 {
						t.Errorf("n=%d planes=%d bytes=%v reconfig=%v: closed form %v, general %v, from a given start %v", n, planes,
							bytes, reconfig, closed, free, given)
					}
				}
			}
		}
	}
}

// TestPerStepBaseline follows the definition of the baseline by hand.
func TestPerStepBaseline(t *testing.T) {
	to := circuit.Shift(4, 1)
	back := circuit.Shift(4, 3)
	steps := []plans.Step{{Bytes: mb, To: to}, {Bytes: mb, To: to}, {Bytes: 0, To: back}, {Bytes: mb, To: back}}
	for _, tc := range []struct {
		name      string
		initial   circuit.Permutation
		us        float64
		reconfigs int
	}{
		{"free", nil, 3*30 + 100, 2},
		{"held", to, 3*30 + 100, 2},
		{"other", back, 3*30 + 200, 4},
		{"dark", circuit.AllDark(4), 3*30 + 200, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := fabric(4, 2, 20, 100)
			p.Steps = steps
			if tc.initial != nil {
				startOn(p, tc.initial)
			}
			plan := solve(t, "perstep", p, planner.Options{})
			if !plans.SameUS(plan.CCTUS, tc.us) || reconfigurations(plan) != tc.reconfigs {
				t.Errorf("%v us with %d reconfigurations, want %v with %d", plan.CCTUS, reconfigurations(plan), tc.us, tc.reconfigs)
			}
		})
	}
}

// TestStaticChoosesCircuits: with three planes for two patterns, the larger one gets two.
func TestStaticChoosesCircuits(t *testing.T) {
	p := fabric(4, 3, 0, 1e6)
	p.Steps = []plans.Step{{Bytes: mb, To: circuit.Shift(4, 1)}, {Bytes: 6 * mb, To: circuit.Shift(4, 2)}}
	plan := solve(t, "static", p, planner.Options{})
	if want := plans.WireUS(p, mb) + plans.WireUS(p, 3*mb); !plans.SameUS(plan.CCTUS, want) {
		t.Errorf("%v us, want %v", plan.CCTUS, want)
	}
	p.Forwarding, p.Planes = true, 1
	plan = solve(t, "static", p, planner.Options{}) // one ring serves both, one of them in two hops
	if want := plans.WireUS(p, mb) + plans.WireUS(p, 12*mb); plan.CCTUS > want+1e-6 {
		t.Errorf("forwarding: %v us, want at most %v", plan.CCTUS, want)
	}
}

// TestPartialPatternsShareAPlane: patterns that do not conflict need no switch.
func TestPartialPatternsShareAPlane(t *testing.T) {
	p := fabric(4, 1, 0, 1000)
	p.Steps = []plans.Step{{Bytes: mb, Flows: [][2]int{{0, 1}}}, {Bytes: mb, Flows: [][2]int{{2, 3}}},
		{Bytes: mb, To: circuit.Permutation{1, -1, -1, -1}}}
	for _, name := range []string{"static", "swot"} {
		if plan := solve(t, name, p, planner.Options{}); !plans.SameUS(plan.CCTUS, 3*plans.WireUS(p, mb)) {
			t.Errorf("%s: %v us", name, plan.CCTUS)
		}
	}
}

// TestEmptyUses is a problem whose best greedy pattern leaves a unit without bytes: the
// search must time what is left.
func TestEmptyUses(t *testing.T) {
	a, b := circuit.Permutation{4, -1, -1, 0, -1, 2, -1}, circuit.Permutation{1, 2, 0, 4, 5, 6, 3}
	p := fabric(7, 4, 7, 5)
	p.Initial = []circuit.Permutation{a, b, b, a}
	for i, bytes := range []float64{1e5, 1, 1, 1e5, 1e6} {
		p.Steps = append(p.Steps, plans.Step{Bytes: bytes, To: []circuit.Permutation{a, b, a, b, b}[i]})
	}
	if plan := solve(t, "swot", p, planner.Options{TimeLimit: time.Minute, Effort: time.Second}); plan.CCTUS > 48.3334 {
		t.Errorf("%v us, bound %v, want 48.3334", plan.CCTUS, plan.LowerBoundUS)
	}
}

func TestRefusals(t *testing.T) {
	fan := fabric(3, 1, 0, 10)
	fan.Steps = []plans.Step{{Bytes: 1, To: circuit.Shift(3, 1)}, {Bytes: 1, Flows: [][2]int{{0, 1}, {0, 2}}}}
	duplex := fabric(4, 1, 0, 10)
	duplex.Circuits = plans.Duplex
	duplex.Steps = []plans.Step{{Bytes: 1, To: circuit.Shift(4, 1)}}
	demand := fabric(2, 1, 0, 10)
	demand.Demand = [][]float64{{0, 1}, {1, 0}}
	ends := startOn(rabenseifner(fabric(2, 1, 0, 10), mb), circuit.Xor(2, 1))
	ends.Final = plans.Final{Kind: plans.FinalGiven, Maps: []circuit.Permutation{{0, 1}}}
	split := startOn(fabric(4, 1, 0, 10), circuit.Xor(4, 1))
	split.Steps = []plans.Step{{Bytes: 1, To: circuit.Xor(4, 2)}}
	split.Forwarding = true
	for _, tc := range []struct {
		name, planner string
		p             *plans.Problem
		want          string
	}{
		{"flows", "static", fan, "step 1: rank 0 has no circuit to rank 2 on any plane"},
		{"duplex", "static", duplex, "step 0: rank 1 has no circuit to rank 2 on any plane"},
		{"demand", "swot", demand, "spectra"},
		{"final", "static", ends, "static never reconfigures"},
		{"unreachable", "static", split, "step 0: rank 0 cannot reach rank 2"},
	} {
		_, err := planner.Solve(context.Background(), tc.planner, tc.p, planner.Options{})
		if !errors.Is(err, planner.ErrInfeasible) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s, %s: %v, want %q", tc.name, tc.planner, err, tc.want)
		}
	}
	slow, late := pairwise(fabric(4, 2, 0, 10), 1e300), pairwise(fabric(4, 2, 0, 1.7e308), 1)
	slow.BandwidthGbps = 1e-300
	for _, name := range planner.Names() {
		for _, p := range []*plans.Problem{slow, late} {
			_, err := planner.Solve(context.Background(), name, p, planner.Options{})
			if !errors.Is(err, planner.ErrInfeasible) || !strings.Contains(err.Error(), "longer than a number can say") {
				t.Errorf("%s, times that overflow: %v", name, err)
			}
		}
	}
	broken := fabric(3, 1, 0, 10)
	broken.Steps = []plans.Step{{Bytes: 1, To: circuit.Permutation{1, 2}}}
	if _, err := planner.Solve(context.Background(), "swot", broken,
		planner.Options{}); !errors.Is(err, plans.ErrProblem) {
		t.Errorf("invalid problem: %v", err)
	}
	if _, err := planner.Solve(context.Background(), "best", fan,
		planner.Options{}); !errors.Is(err, planner.ErrUnknownPlanner) {
		t.Errorf("unknown planner: %v", err)
	}
}

// TestRepeatable: equal seeds give equal plans, and a cancelled search still gives one.
func TestRepeatable(t *testing.T) {
	p := pairwise(fabric(10, 4, 20, 200), 32*mb)
	o := planner.Options{TimeLimit: time.Minute, Effort: 50 * time.Millisecond, Seed: 5}
	a, b := solve(t, "swot", p, o), solve(t, "swot", p, o)
	if !reflect.DeepEqual(a.Planes, b.Planes) {
		t.Error("two runs with one seed differ")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if plan, err := planner.Solve(ctx, "swot", p, planner.Options{TimeLimit: time.Hour}); err != nil || plan.CCTUS > 2068 {
		t.Errorf("cancelled: %v", err)
	}
}

// TestFinal: a reset follows the last transmit and does not count.
func TestFinal(t *testing.T) {
	for _, name := range []string{"perstep", "swot"} {
		p := fig5()
		plain := solve(t, name, p, planner.Options{})
		p.Steps = p.Steps[:4]
		p.Final.Kind = plans.FinalInitial
		reset := solve(t, name, p, planner.Options{})
		for j := range reset.Planes {
			last := reset.Planes[j][len(reset.Planes[j])-1]
			if last.Kind == plans.Reconfigure && !last.To.Equal(p.Initial[j]) {
				t.Errorf("%s: plane %d ends on %v", name, j, last.To)
			}
		}
		if reset.CCTUS >= plain.CCTUS {
			t.Errorf("%s: %v us for 4 steps, %v for 6", name, reset.CCTUS, plain.CCTUS)
		}
	}
}

func TestNoWork(t *testing.T) {
	p := fabric(4, 2, 20, 100)
	p.Steps = []plans.Step{{Bytes: 0, To: circuit.Shift(4, 1)}, {Bytes: 5, To: circuit.AllDark(4)}}
	for _, name := range planner.Names() {
		if plan := solve(t, name, p, planner.Options{}); plan.CCTUS != 0 {
			t.Errorf("%s: %v us", name, plan.CCTUS)
		}
	}
}

// TestInterleaved: a pair serves an involution on both of its planes and any other
// pattern on one; the halves switch together.
func TestInterleaved(t *testing.T) {
	p := fabric(8, 4, 0, 200)
	p.Circuits = plans.Interleaved
	rabenseifner(p, 40*mb)
	whole := fabric(8, 2, 0, 200) // two pairs are two planes of twice the rate
	rabenseifner(whole, 40*mb)
	a, b := solve(t, "swot", p, planner.Options{}), solve(t, "swot", whole, planner.Options{})
	if !plans.SameUS(a.CCTUS, b.CCTUS) {
		t.Errorf("interleaved %v, two planes %v", a.CCTUS, b.CCTUS)
	}
	shift := fabric(8, 2, 0, 200)
	shift.Circuits = plans.Interleaved
	shift.Steps = []plans.Step{{Bytes: mb, To: circuit.Shift(8, 1)}, {Bytes: mb, To: circuit.Shift(8, 7)}}
	if plan := solve(t, "swot", shift, planner.Options{}); reconfigurations(plan) != 0 {
		t.Errorf("a pattern and its inverse took %d reconfigurations", reconfigurations(plan))
	}
}
