package brute

import (
	"math"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

func problem(n, planes int, steps ...plans.Step) *plans.Problem {
	return &plans.Problem{Version: plans.Version, Ranks: n, Planes: planes, BandwidthGbps: 8, Circuits: plans.Simplex,
		Steps: steps}
}

func step(us float64, to ...int) plans.Step { return plans.Step{Bytes: 1000 * us, To: to} }

// TestByHand: optima that can be seen.
func TestByHand(t *testing.T) {
	one, two := []int{1, 0}, []int{1, 2, 0}
	back := []int{2, 0, 1}
	p := problem(2, 1, step(100, one...))
	p.AlphaUS = 7
	q := problem(3, 1, step(100, two...), step(50, back...))
	q.ReconfigUS = 30
	split := problem(3, 2, step(100, two...), step(50, back...))
	split.ReconfigUS = 1000
	swap := problem(3, 2, step(100, two...), step(100, back...), step(100, two...))
	swap.ReconfigUS = 50
	ring := problem(3, 1, step(90, back...))
	ring.ReconfigUS, ring.HopUS, ring.Forwarding = 1000, 1, true
	ring.Initial = []circuit.Permutation{two}
	dark := problem(2, 2, step(100, one...))
	dark.ReconfigUS, dark.Initial = 10, []circuit.Permutation{{-1, -1}, {-1, -1}}
	ports := problem(3, 1, step(100, two...), step(50, 1, 0, -1))
	ports.ReconfigUS, ports.ReconfigPerPort = 10, 3 // 1 -> 0 is the only new circuit; port 2 goes dark
	for name, tc := range map[string]struct {
		p    *plans.Problem
		want float64
	}{
		"one step, alpha":           {p, 107},
		"switch between":            {q, 180},
		"cost of a port":            {ports, 163},
		"a plane for each":          {split, 150},
		"overlapped or in lockstep": {swap, 250},
		"two hops round a ring":     {ring, 182},
		"dark planes both switch":   {dark, 60},
	} {
		got, err := Steps(tc.p, 1)
		if err != nil || (math.Abs(got-tc.want) > 1e-6) {
			t.Errorf("%s: %v, want %v: %v", name, got, tc.want, err)
		}
	}
}

// TestVisits: a plane that may work twice in a step serves both halves of a pattern of which no
// circuits hold more than a half.
func TestVisits(t *testing.T) {
	p := problem(3, 1, plans.Step{Bytes: 1e5, Flows: [][2]int{{0, 1}, {0, 2}}})
	p.ReconfigUS = 30
	if once, err := Steps(p, 1); err != nil || !math.IsInf(once, 1) {
		t.Errorf("once: %v, %v", once, err)
	}
	if twice, err := Steps(p, 2); err != nil || math.Abs(twice-230) > 1e-6 {
		t.Errorf("twice: %v, %v", twice, err)
	}
}

func TestDemandByHand(t *testing.T) {
	p := problem(2, 1)
	p.Steps, p.Demand, p.ReconfigUS = nil, [][]float64{{0, 1e5}, {5e4, 2e4}}, 10
	if got, err := Demand(p); err != nil || math.Abs(got-140) > 1e-6 {
		t.Errorf("one plane: %v, %v", got, err)
	}
	p.Planes = 2
	if got, err := Demand(p); err != nil || math.Abs(got-75) > 1e-6 {
		t.Errorf("two planes: %v, %v", got, err) // 65 of the swap; the identity, and 35 of the swap
	}
	p.Circuits = plans.Interleaved
	if got, err := Demand(p); err != nil || math.Abs(got-80) > 1e-6 {
		t.Errorf("an interleaved pair: %v, %v", got, err) // 50 of the swap and 10 of the identity, on both planes
	}
}

// TestRefuses: Steps returns an error for problems that it does not try.
func TestRefuses(t *testing.T) {
	p := problem(4, 4, step(1, 1, 2, 3, 0), step(1, 2, 3, 0, 1), step(1, 3, 0, 1, 2), step(1, 1, 0, 3, 2))
	if _, err := Steps(p, 2); err == nil {
		t.Error("a large problem has an answer")
	}
	p.Circuits = plans.Interleaved
	if _, err := Steps(p, 1); err == nil {
		t.Error("interleaved planes have an answer")
	}
}
