package planner_test

import (
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// direct is total exchange in one step.
func direct(p *plans.Problem, bytes float64) *plans.Problem {
	s := plans.Step{Bytes: bytes}
	for src := range p.Ranks {
		for d := 1; d < p.Ranks; d++ {
			s.Flows = append(s.Flows, [2]int{src, (src + d) % p.Ranks})
		}
	}
	p.Steps = append(p.Steps, s)
	return p
}

// TestPerStepRounds: a step of several matchings is served in rounds of as many matchings
// as makes it shortest. One matching takes 20 + 10 us on one plane, 20 + 5 on two.
func TestPerStepRounds(t *testing.T) {
	for _, tc := range []struct {
		name      string
		ranks     int
		planes    int
		reconfig  float64
		us        float64
		reconfigs int
	}{
		{"as many planes as matchings", 4, 3, 100, 30, 0},
		{"two rounds", 5, 2, 100, 30 + 100 + 30, 2},
		{"an odd one out has all planes", 4, 2, 100, 30 + 100 + 25, 2},
		{"one plane", 4, 1, 100, 3*30 + 2*100, 2},
		{"planes to spare", 3, 4, 100, 25, 0},
	} {
		p := fabric(tc.ranks, tc.planes, 20, tc.reconfig)
		p.BandwidthGbps = 800
		plan := solve(t, "perstep", direct(p, mb), planner.Options{})
		if !plans.SameUS(plan.CCTUS, tc.us) || reconfigurations(plan) != tc.reconfigs {
			t.Errorf("%s: %v us with %d reconfigurations, want %v with %d", tc.name, plan.CCTUS, reconfigurations(plan), tc.us,
				tc.reconfigs)
		}
	}
}

// TestPerStepRepeatsRounds: planes that hold the matchings of a step serve it again, and
// all of them are reconfigured for a step of one pattern.
func TestPerStepRepeatsRounds(t *testing.T) {
	p := fabric(3, 2, 20, 100)
	p.BandwidthGbps = 800
	direct(direct(p, mb), mb)
	p.Steps = append(p.Steps, plans.Step{Bytes: mb, To: circuit.Shift(3, 1)})
	plan := solve(t, "perstep", p, planner.Options{})
	if want := 30. + 30 + 100 + 25; !plans.SameUS(plan.CCTUS, want) || reconfigurations(plan) != 2 {
		t.Errorf("%v us with %d reconfigurations, want %v with 2", plan.CCTUS, reconfigurations(plan), want)
	}
}

// TestPerStepInterleaved: both planes of an interleaved pair serve a step of a broadcast. Circuits that serve part of a
// setting are not taken for the setting: here the planes begin on a ring, which has 0 -> 1 but not 0 <-> 1.
func TestPerStepInterleaved(t *testing.T) {
	broadcast := &plans.Problem{
		Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10, Circuits: plans.Interleaved,
		Steps: []plans.Step{{Bytes: 1e5, To: circuit.Permutation{2, -1, -1, -1}},
			{Bytes: 1e5, To: circuit.Permutation{1, -1, 3, -1}}},
	}
	for _, name := range []string{"perstep", "harvest", "swot", "weave", "auto"} {
		if plan := solve(t, name, broadcast, quick); !plans.SameUS(plan.CCTUS, 50+10+50) {
			t.Errorf("broadcast: %s takes %v us", name, plan.CCTUS)
		}
	}
	part := &plans.Problem{
		Version: plans.Version, Ranks: 3, Planes: 2, BandwidthGbps: 8, HopUS: 0.01, Circuits: plans.Interleaved,
		Forwarding: true, Initial: []circuit.Permutation{{1, 2, 0}, {2, 0, 1}},
		Steps: []plans.Step{{Bytes: 3, To: circuit.Permutation{1, 0, -1}}, {Bytes: 6e6, To: circuit.Permutation{1, 0, -1}},
			{Bytes: 1e6, To: circuit.Permutation{1, -1, 0}}},
	}
	solve(t, "auto", part, quick) // checks the plan
}
