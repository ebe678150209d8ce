package sim

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/planstest"
)

// forget removes the times of plan, which the simulator must not need.
func forget(plan *plans.Plan) {
	for _, entries := range plan.Planes {
		for i := range entries {
			if entries[i].Kind != plans.Hold {
				entries[i].StartUS, entries[i].EndUS = -1, -2
			}
		}
	}
}

func TestTightPlansKeepTheirTimes(t *testing.T) {
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		problem, plan := planstest.Load(t, name)
		_, blank := planstest.Load(t, name)
		forget(blank)
		result, err := Run(problem, blank)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if result.CCTUS != plan.CCTUS {
			t.Errorf("%s: %v us, want %v", name, result.CCTUS, plan.CCTUS)
		}
		for j, entries := range plan.Planes {
			for i, e := range entries {
				if got := result.Planes[j].Spans[i]; !plans.SameUS(got.StartUS, e.StartUS) || !plans.SameUS(got.EndUS, e.EndUS) {
					t.Errorf("%s: planes[%d][%d] ran %v, planned %v..%v", name, j, i, got, e.StartUS, e.EndUS)
				}
			}
		}
	}
}

// fig5Lockstep is the strawman of SWOT Fig. 5: every step split evenly over both planes,
// which switch in lockstep where the pattern changes.
func fig5Lockstep(reconfig float64) (*plans.Problem, *plans.Plan) {
	problem := &plans.Problem{Version: 1, Ranks: 8, Planes: 2, BandwidthGbps: 400, ReconfigUS: reconfig,
		Circuits: plans.Simplex,
		Initial:  []circuit.Permutation{circuit.Xor(8, 1), circuit.Xor(8, 1)}}
	plan := &plans.Plan{Version: 1, Planes: make([][]plans.Entry, 2)}
	last := 1
	for i, step := range []struct {
		xor   int
		bytes float64
	}{{1, 20e6}, {2, 10e6}, {4, 5e6}, {4, 5e6}, {2, 10e6}, {1, 20e6}} {
		problem.Steps = append(problem.Steps, plans.Step{Bytes: step.bytes, To: circuit.Xor(8, step.xor)})
		for j := range plan.Planes {
			if step.xor != last {
				plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: circuit.Xor(8, step.xor)})
			}
			plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Transmit, Step: i, Bytes: step.bytes / 2})
		}
		last = step.xor
	}
	return problem, plan
}

func TestSwotFig5Lockstep(t *testing.T) {
	// The planes wait for each other's step before they can switch only where they
	// transmit it too, so lockstep needs nothing but the order.
	for reconfig, want := range map[float64]float64{200: 1500, 0: 700} {
		problem, plan := fig5Lockstep(reconfig)
		result, err := Run(problem, plan)
		require.NoError(t, err)
		if result.CCTUS != want {
			t.Errorf("reconfiguration %v us: %v us, want %v", reconfig, result.CCTUS, want)
		}
		if got := result.Utilization(0); got != 700/want {
			t.Errorf("reconfiguration %v us: plane 0 transmits for %v of the time", reconfig, got)
		}
	}
}

// randomPlan makes a plan that carries every byte: each step is divided over some planes,
// which switch where their circuits do not do.
func randomPlan(rng *rand.Rand) (*plans.Problem, *plans.Plan) {
	n, k := 2+rng.IntN(7), 1+rng.IntN(3)
	p := &plans.Problem{Version: 1, Ranks: n, Planes: k, BandwidthGbps: 1 + 99*rng.Float64(), AlphaUS: 5 * rng.Float64(),
		HopUS: rng.Float64(), ReconfigUS: 50 * rng.Float64(), ReconfigPerPort: rng.Float64(), Circuits: plans.Simplex,
		Forwarding: rng.IntN(2) == 0}
	plan := &plans.Plan{Version: 1, Planes: make([][]plans.Entry, k)}
	current := make([]circuit.Permutation, k)
	for j := range current {
		current[j] = circuit.Shift(n, rng.IntN(n))
		plan.Initial = append(plan.Initial, current[j])
	}
	for i := range 1 + rng.IntN(6) {
		step := plans.Step{Bytes: float64(rng.IntN(1e5)), To: circuit.Shift(n, rng.IntN(n))}
		p.Steps = append(p.Steps, step)
		users := rng.Perm(k)[:1+rng.IntN(k)]
		for u, j := range users {
			ready := current[j].Covers(step.To)
			if h, _, err := plans.Load(current[j], step.FlowList()); p.Forwarding && err == nil && h > 0 {
				ready = ready || rng.IntN(2) == 0
			}
			if !ready {
				current[j] = step.To
				plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: step.To})
			}
			bytes := step.Bytes / float64(len(users))
			if flows := len(step.FlowList()); u == 0 && flows > 1 { // the first flow apart from the rest
				rest := make([]int, flows-1)
				for f := range rest {
					rest[f] = f + 1
				}
				plan.Planes[j] = append(plan.Planes[j],
					plans.Entry{Kind: plans.Transmit, Step: i, Bytes: bytes, Flows: []int{0}},
					plans.Entry{Kind: plans.Transmit, Step: i, Bytes: bytes, Flows: rest})
				continue
			}
			plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Transmit, Step: i, Bytes: bytes})
		}
	}
	if rng.IntN(2) == 0 {
		p.Final.Kind = plans.FinalInitial
		for j := range current {
			if !current[j].Equal(plan.Initial[j]) {
				plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Reconfigure, To: plan.Initial[j]})
			}
		}
	}
	return p, plan
}

// TestProgress: there is one event for each entry, even if entries take less than the distance between two doubles.
func TestProgress(t *testing.T) {
	problem, plan := fig5Lockstep(1e12)
	problem.Steps[2].Bytes = 1
	for j := range plan.Planes {
		for i := range plan.Planes[j] {
			if e := &plan.Planes[j][i]; e.Step == 2 && e.Kind == plans.Transmit {
				e.Bytes = 0.5
			}
		}
	}
	s := &simulator{p: problem, plan: plan}
	require.NoError(t, s.prepare())
	entries := len(plan.Planes[0]) + len(plan.Planes[1])
	if events := s.play(); events != entries || s.stuck() != nil {
		t.Errorf("%d events for %d entries, %v", events, entries, s.stuck())
	}
}

// TestCheckerAgrees: the checker accepts the timeline of the simulator, with the same completion time. Playing it again
// changes nothing.
func TestCheckerAgrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		problem, plan := randomPlan(rng)
		result, err := Run(problem, plan)
		if err != nil {
			t.Fatalf("%v\n%+v\n%+v", err, problem, plan)
		}
		timed := result.Retimed(plan)
		report, err := check.Check(problem, timed)
		if err != nil {
			t.Fatalf("%v\n%+v\n%+v", err, problem, timed)
		}
		if report.CCTUS != result.CCTUS || report.EndUS != result.EndUS {
			t.Fatalf("check %+v, sim %v %v", report, result.CCTUS, result.EndUS)
		}
		again, err := Run(problem, timed)
		if err != nil || again.CCTUS != result.CCTUS {
			t.Fatalf("again: %v %v", again, err)
		}
	}
}

// TestMonotone: more bandwidth or faster switching never makes a given plan slower.
func TestMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		problem, plan := randomPlan(rng)
		before, err := Run(problem, plan)
		require.NoError(t, err)
		problem.BandwidthGbps *= 1 + rng.Float64()
		problem.ReconfigUS *= rng.Float64()
		after, err := Run(problem, plan)
		if err != nil || after.CCTUS > before.CCTUS+plans.Tolerance(after.CCTUS, before.CCTUS) {
			t.Fatalf("%v us became %v us, %v", before.CCTUS, after.CCTUS, err)
		}
	}
}

func TestInterleavedPlanesWaitForEachOther(t *testing.T) {
	n := 4
	problem := &plans.Problem{Version: 1, Ranks: n, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10,
		Circuits: plans.Interleaved,
		Steps:    []plans.Step{{Bytes: 1000, To: circuit.Shift(n, 1)}, {Bytes: 1000, To: circuit.Shift(n, 2)}}}
	plan := &plans.Plan{Version: 1, Initial: []circuit.Permutation{circuit.Shift(n, 1), circuit.Shift(n, -1)},
		Planes: [][]plans.Entry{
			{{Kind: plans.Transmit, Step: 0, Bytes: 1000}, {Kind: plans.Reconfigure, To: circuit.Shift(n, 2)},
				{Kind: plans.Transmit, Step: 1, Bytes: 500}},
			{{Kind: plans.Reconfigure, To: circuit.Shift(n, 2)}, {Kind: plans.Transmit, Step: 1, Bytes: 500}}}}
	result, err := Run(problem, plan)
	require.NoError(t, err)
	if result.Planes[1].Spans[0] != (Span{1, 11}) || result.CCTUS != 11.5 {
		t.Fatalf("%+v", result)
	}
	plan.Planes[1] = plan.Planes[1][1:]
	if _, err := Run(problem, plan); err == nil {
		t.Fatal("played a switch without its partner")
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		base, want string
		change     func(q *plans.Plan)
	}{
		{"swot-fig5", "has 1 planes", func(q *plans.Plan) { q.Planes = q.Planes[:1] }},
		{"swot-fig5", "initial: has 1 maps", func(q *plans.Plan) { q.Initial = q.Initial[:1] }},
		{"swot-fig5", "initial[0]: has 0 entries", func(q *plans.Plan) { q.Initial[0] = nil }},
		{"swot-fig5", "planes[0][2]: flow 0 -> 2: no route", func(q *plans.Plan) { q.Planes[0][1].To = circuit.Xor(8, 4) }},
		{"swot-fig5", "planes[0][1]: to: has 2 entries", func(q *plans.Plan) { q.Planes[0][1].To = circuit.Xor(2, 1) }},
		{"swot-fig5", "waits for step 2, which waits for it", func(q *plans.Plan) {
			q.Planes[1][2].Step, q.Planes[1][3].Step = 3, 2
		}},
		{"swot-fig5", "no step 6", func(q *plans.Plan) { q.Planes[1][2].Step = 6 }},
		{"swot-fig5", "no flow 9", func(q *plans.Plan) { q.Planes[1][2].Flows = []int{9} }},
		{"swot-fig5", "no flow 8", func(q *plans.Plan) { q.Planes[1][2].Flows = []int{8} }},
		{"swot-fig5", "a hold does not belong", func(q *plans.Plan) { q.Planes[1][2].Kind = plans.Hold }},
		{"demand", "a transmit does not belong", func(q *plans.Plan) { q.Planes[1][1].Kind = plans.Transmit }},
		{"demand", "no reconfiguration to the map", func(q *plans.Plan) { q.Planes[1][1].To = circuit.Shift(3, 1) }},
		{"joint", `joint "b" of step 0 never has all its planes`, func(q *plans.Plan) {
			e := q.Planes[1]
			e[0].Joint = "b"
			q.Planes[1] = append(e, plans.Entry{Kind: plans.Transmit, Step: 0, Joint: "a"})
			e[0], q.Planes[1][2] = q.Planes[1][2], e[0]
			q.Planes[0] = append([]plans.Entry{{Kind: plans.Transmit, Step: 0, Joint: "b"}}, q.Planes[0]...)
		}},
	} {
		problem, plan := planstest.Load(t, c.base)
		c.change(plan)
		if _, err := Run(problem, plan); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
}
