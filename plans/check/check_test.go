package check

import (
	"errors"
	"math"
	"strings"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/planstest"
)

func TestFeasible(t *testing.T) {
	for _, c := range []struct {
		name        string
		cct         float64
		reconfigure int
	}{
		{"swot-fig5", 1200, 4},
		{"demand", 253, 2},
		{"joint", 113, 0},
	} {
		report, err := Check(planstest.Load(t, c.name))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if report.CCTUS != c.cct || report.Reconfigurations != c.reconfigure {
			t.Errorf("%s: %+v", c.name, report)
		}
	}
}

// mutation breaks one rule of a feasible plan.
type mutation struct {
	base, want string
	change     func(p *plans.Problem, q *plans.Plan)
}

func entry(q *plans.Plan, j, i int) *plans.Entry { return &q.Planes[j][i] }

var mutations = []mutation{
	{"swot-fig5", "planes: has 1 planes", func(_ *plans.Problem, q *plans.Plan) { q.Planes = q.Planes[:1] }},
	{"swot-fig5", "initial: has 1 maps", func(_ *plans.Problem, q *plans.Plan) { q.Initial = q.Initial[:1] }},
	{"swot-fig5", "initial[1]: is not the initial map", func(_ *plans.Problem, q *plans.Plan) {
		q.Initial[1] = circuit.Xor(8, 2)
	}},
	{"swot-fig5", "initial[1]: [1]: port 0 already", func(_ *plans.Problem, q *plans.Plan) {
		q.Initial[1] = make(circuit.Permutation, 8)
	}},
	{"swot-fig5", "planes[0][1] (reconfigure): lasts 199 us", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).StartUS++
	}},
	{"swot-fig5", "planes[0][1] (reconfigure): starts at 99 us, while", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).StartUS--
	}},
	{"swot-fig5", "planes[0][0] (transmit of step 0): lasts 99 us", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 0).EndUS--
	}},
	{"swot-fig5", "before 0", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).StartUS-- }},
	{"swot-fig5", "before its start", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 1).EndUS = 50 }},
	{"swot-fig5", "planes[1][3] (transmit of step 3): starts at 599 us", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 1, 3).StartUS--
	}},
	{"swot-fig5", "flow 0 -> 2 has no circuits", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).To = circuit.Xor(8, 4)
	}},
	{"swot-fig5", "to: [1]: port 0 already", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).To = make(circuit.Permutation, 8)
	}},
	{"swot-fig5", "to: has 4 entries", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 1).To = circuit.Xor(4, 1) }},
	{"swot-fig5", "the problem has 6 steps", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Step = 6 }},
	{"swot-fig5", "the problem has 6 steps", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Step = -1 }},
	{"swot-fig5", "steps[0]: flow 0 (0 -> 1) gets 1.9999999e+07 of 2e+07", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 0).Bytes--
	}},
	{"swot-fig5", "steps[4]: flow 0 (0 -> 2) gets 0 of", func(_ *plans.Problem, q *plans.Plan) {
		q.Planes[0] = append(q.Planes[0][:3:3], q.Planes[0][4:]...)
	}},
	{"swot-fig5", "is negative", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Bytes = -1 }},
	{"swot-fig5", "must be finite", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Bytes = math.NaN() }},
	{"swot-fig5", "must be finite", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).EndUS = math.Inf(1) }},
	{"swot-fig5", "(P3)", func(_ *plans.Problem, q *plans.Plan) {
		e := entry(q, 0, 3)
		e.StartUS, e.EndUS = 600, 800
	}},
	{"swot-fig5", "cct_us: the plan states 1199 us", func(_ *plans.Problem, q *plans.Plan) { q.CCTUS-- }},
	{"swot-fig5", "cct_us: the plan states 1201 us", func(_ *plans.Problem, q *plans.Plan) { q.CCTUS++ }},
	{"swot-fig5", "cct_us: NaN is not finite", func(_ *plans.Problem, q *plans.Plan) { q.CCTUS = math.NaN() }},
	{"swot-fig5", "lower_bound_us: 1201 us is above", func(_ *plans.Problem, q *plans.Plan) { q.LowerBoundUS++ }},
	{"swot-fig5", "has no holds", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 1).Kind = plans.Hold }},
	{"swot-fig5", "unknown kind", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 1).Kind = "wait" }},
	{"swot-fig5", "step 0 has no flow 8", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Flows = []int{8} }},
	{"swot-fig5", "lists a flow twice", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Flows = []int{1, 1} }},
	{"swot-fig5", "flow 0 (0 -> 1) gets 1.5e+07", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 0).Flows = []int{}
	}},
	{"swot-fig5", "planes[0]: does not end on final[0]", func(p *plans.Problem, _ *plans.Plan) {
		p.Final = plans.Final{Kind: plans.FinalGiven, Maps: []circuit.Permutation{circuit.Xor(8, 2), circuit.Xor(8, 1)}}
	}},
	{"swot-fig5", "planes[0]: does not end on the map that it began with", func(p *plans.Problem, q *plans.Plan) {
		p.Final.Kind = plans.FinalInitial
		q.Planes[0] = append(q.Planes[0], plans.Entry{Kind: plans.Reconfigure, To: circuit.Xor(8, 2), StartUS: 1200,
			EndUS: 1400})
	}},
	{"swot-fig5", "flow 0 -> 1 has no circuits", func(p *plans.Problem, q *plans.Plan) {
		p.Initial = []circuit.Permutation{circuit.AllDark(8), circuit.AllDark(8)}
		q.Initial = nil
	}},
	{"swot-fig5", "flow 0 -> 1 has no circuits", func(p *plans.Problem, q *plans.Plan) {
		p.Initial, q.Initial = nil, nil
	}},
	{"swot-fig5", "a duplex plane holds involutions only", func(p *plans.Problem, q *plans.Plan) {
		p.Circuits = plans.Duplex
		entry(q, 0, 1).To = circuit.Shift(8, 2)
	}},
	{"swot-fig5", "interleaved partner planes[1][1] does not switch at the same time",
		func(p *plans.Problem, _ *plans.Plan) { p.Circuits = plans.Interleaved }},
	{"swot-fig5", "does not take the inverse map", func(p *plans.Problem, _ *plans.Plan) {
		p.Circuits = plans.Interleaved
	}},
	{"swot-fig5", "switch 2 and 1 times", func(p *plans.Problem, q *plans.Plan) {
		p.Circuits = plans.Interleaved
		q.Planes[1] = q.Planes[1][:4]
	}},
	{"swot-fig5", "lasts 200 us, the model needs 208 us", func(p *plans.Problem, _ *plans.Plan) { p.ReconfigPerPort = 1 }},
	{"swot-fig5", "lasts 100 us, the model needs 101 us", func(p *plans.Problem, _ *plans.Plan) { p.AlphaUS = 1 }},

	{"swot-fig5", "the model needs +Inf us", func(p *plans.Problem, _ *plans.Plan) { p.BandwidthGbps = 1e-320 }},
	{"demand", "need +Inf us", func(p *plans.Problem, _ *plans.Plan) { p.BandwidthGbps = 1e-320 }},

	{"demand", "planes[0][1] (hold): no reconfiguration to this map", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).To = circuit.Shift(3, 2)
	}},
	{"demand", "planes[1][0] (hold): no reconfiguration", func(_ *plans.Problem, q *plans.Plan) {
		q.Planes[1] = q.Planes[1][1:]
	}},
	{"demand", "demand[0][0]: is served for 79 us", func(_ *plans.Problem, q *plans.Plan) { entry(q, 1, 1).EndUS-- }},
	{"demand", "lasts 12 us, the model needs 13 us", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).StartUS++ }},
	{"demand", "has no transmits", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 1).Kind = plans.Transmit }},
	{"demand", "involutions only", func(p *plans.Problem, _ *plans.Plan) { p.Circuits = plans.Duplex }},

	{"joint", "a route has 2 hops, and forwarding is off", func(p *plans.Problem, _ *plans.Plan) { p.Forwarding = false }},
	{"joint", "a flow needs 3 hops, and forwarding is off", func(p *plans.Problem, q *plans.Plan) {
		p.Forwarding = false
		entry(q, 0, 1).Flows = []int{1}
	}},
	{"joint", "lasts 27 us, the model needs 47 us", func(_ *plans.Problem, q *plans.Plan) {
		r := entry(q, 0, 0).Routes
		for k := range r {
			r[k].Bytes *= 2
		}
	}},
	{"joint", "flow 0 (0 -> 2) gets 500000 of 1e+06", func(_ *plans.Problem, q *plans.Plan) {
		e := entry(q, 0, 0)
		e.Routes = e.Routes[1:]
	}},
	{"joint", "routes[0].path[0]: plane 0 has no circuit 0 -> 3", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 0).Routes[0].Path[0] = [2]int{0, 3}
	}},
	{"joint", "routes[0].path[1]: plane 7 is not part", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 0).Routes[0].Path[1] = [2]int{7, 2}
	}},
	{"joint", "routes[0]: ends at rank 1, not 2", func(_ *plans.Problem, q *plans.Plan) {
		r := &entry(q, 0, 0).Routes[0]
		r.Path = r.Path[:1]
	}},
	{"joint", "routes[0]: 0 -> 3 is no flow", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 0).Routes[0].Flow[1] = 3
	}},
	{"joint", "routes[0]: -1 bytes", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 0).Routes[0].Bytes = -1 }},
	{"joint", "has other times on planes[0][0]", func(_ *plans.Problem, q *plans.Plan) { entry(q, 1, 0).StartUS += 0.5 }},
	{"joint", `joint "a" has no entry on another plane`, func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 1, 0).Joint = "b"
	}},
	{"joint", `joint "b" has no routes`, func(_ *plans.Problem, q *plans.Plan) { entry(q, 1, 0).Joint = "b" }},
	{"joint", `joint "a" has its routes in its first entry only, on planes[0][0]`, func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 1, 0).Routes = entry(q, 0, 0).Routes
	}},
	{"joint", "states no bytes", func(_ *plans.Problem, q *plans.Plan) { entry(q, 1, 0).Bytes = 5 }},
	{"joint", "only a joint transmit has routes", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).Routes = []plans.Route{}
	}},
	{"joint", "lasts 86 us, the model needs 88 us", func(_ *plans.Problem, q *plans.Plan) {
		entry(q, 0, 1).Flows = []int{1}
		entry(q, 0, 1).EndUS = 113
	}},
}

func TestMutationsAreInfeasible(t *testing.T) {
	for _, m := range mutations {
		problem, plan := planstest.Load(t, m.base)
		m.change(problem, plan)
		_, err := Check(problem, plan)
		if !errors.Is(err, ErrInfeasible) {
			t.Errorf("%s, want %q: %v", m.base, m.want, err)
		} else if !strings.Contains(err.Error(), m.want) {
			t.Errorf("%s:\n  got  %v\n  want %s", m.base, err, m.want)
		}
	}
}

// TestSlackIsFeasible: the checker allows everything that the model does not forbid.
func TestSlackIsFeasible(t *testing.T) {
	for _, m := range []mutation{
		{"swot-fig5", "more bytes than asked", func(_ *plans.Problem, q *plans.Plan) {
			entry(q, 0, 2).Bytes = 1e7
			entry(q, 1, 3).Bytes = 5e6
		}},
		{"swot-fig5", "no stated initial maps", func(_ *plans.Problem, q *plans.Plan) { q.Initial = nil }},
		{"swot-fig5", "free initial maps", func(p *plans.Problem, _ *plans.Plan) { p.Initial = nil }},
		{"swot-fig5", "a longer entry", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 5).EndUS, q.CCTUS = 1250, 1250 }},
		{"swot-fig5", "back where it began", func(p *plans.Problem, _ *plans.Plan) { p.Final.Kind = plans.FinalInitial }},
		{"swot-fig5", "a step without bytes", func(p *plans.Problem, q *plans.Plan) {
			p.Steps = append(p.Steps, plans.Step{To: circuit.Shift(8, 3)})
			q.Planes[0] = append(q.Planes[0], plans.Entry{Kind: plans.Transmit, Step: 6, StartUS: 1200, EndUS: 1200})
		}},
		{"swot-fig5", "rounding", func(_ *plans.Problem, q *plans.Plan) { entry(q, 0, 1).StartUS -= 0.9e-6 }},
		{"swot-fig5", "involutions on duplex planes", func(p *plans.Problem, _ *plans.Plan) { p.Circuits = plans.Duplex }},
		{"demand", "another hold of the same map", func(_ *plans.Problem, q *plans.Plan) {
			e := *entry(q, 1, 1)
			e.StartUS, e.EndUS = 91, 100
			q.Planes[1] = append(q.Planes[1], e)
		}},
		{"joint", "two entries instead of one", func(_ *plans.Problem, q *plans.Plan) {
			e := *entry(q, 1, 1)
			entry(q, 1, 1).Bytes, entry(q, 1, 1).EndUS = 1e6, 53
			e.Bytes, e.StartUS, e.EndUS = 3e6, 53, 119
			q.Planes[1] = append(q.Planes[1], e)
			q.CCTUS = 119
		}},
	} {
		problem, plan := planstest.Load(t, m.base)
		m.change(problem, plan)
		if _, err := Check(problem, plan); err != nil {
			t.Errorf("%s: %v", m.want, err)
		}
	}
}

func TestInterleavedPlanesSwitchTogether(t *testing.T) {
	n := 4
	problem := &plans.Problem{Version: 1, Ranks: n, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10,
		Circuits: plans.Interleaved,
		Steps:    []plans.Step{{Bytes: 1000, To: circuit.Shift(n, 1)}, {Bytes: 1000, To: circuit.Shift(n, 2)}}}
	plan := &plans.Plan{Version: 1, CCTUS: 1.5 + 10,
		Initial: []circuit.Permutation{circuit.Shift(n, 1), circuit.Shift(n, -1)},
		Planes: [][]plans.Entry{
			{{Kind: plans.Transmit, Step: 0, Bytes: 1000, StartUS: 0, EndUS: 1},
				{Kind: plans.Reconfigure, To: circuit.Shift(n, 2), StartUS: 1, EndUS: 11},
				{Kind: plans.Transmit, Step: 1, Bytes: 500, StartUS: 11, EndUS: 11.5}},
			{{Kind: plans.Reconfigure, To: circuit.Shift(n, -2), StartUS: 1, EndUS: 11},
				{Kind: plans.Transmit, Step: 1, Bytes: 500, StartUS: 11, EndUS: 11.5}}}}
	if _, err := Check(problem, plan); err != nil {
		t.Fatal(err)
	}
	plan.Planes[1][0].StartUS, plan.Planes[1][0].EndUS = 0, 10
	if _, err := Check(problem, plan); !errors.Is(err, ErrInfeasible) {
		t.Fatalf("apart: %v", err)
	}
	plan.Initial[1] = circuit.Shift(n, 1)
	if _, err := Check(problem, plan); err == nil || !strings.Contains(err.Error(), "initial[0]") {
		t.Fatalf("not inverse: %v", err)
	}
}

// TestJointWithoutForwarding: routes of one circuit need no rank that forwards.
func TestJointWithoutForwarding(t *testing.T) {
	swap := circuit.Permutation{1, 0}
	p := &plans.Problem{
		Version: plans.Version, Ranks: 2, Planes: 2, BandwidthGbps: 8, HopUS: 3, Circuits: plans.Simplex,
		Steps: []plans.Step{{Bytes: 2000, To: swap}},
	}
	joint := plans.Entry{Kind: plans.Transmit, Joint: "a", EndUS: 4}
	first := joint
	for r := range 2 {
		for plane := range 2 {
			first.Routes = append(first.Routes, plans.Route{
				Flow: [2]int{r, 1 - r}, Bytes: 1000, Path: [][2]int{{plane, 1 - r}},
			})
		}
	}
	plan := &plans.Plan{
		Version: plans.Version, Planner: "test", CCTUS: 4, Initial: []circuit.Permutation{swap, swap},
		Planes: [][]plans.Entry{{first}, {joint}},
	}
	if _, err := Check(p, plan); err != nil {
		t.Error(err)
	}
}

func TestInvalidProblem(t *testing.T) {
	problem, plan := planstest.Load(t, "swot-fig5")
	problem.BandwidthGbps = 0
	if _, err := Check(problem, plan); !errors.Is(err, plans.ErrProblem) {
		t.Fatal(err)
	}
}

// FuzzCheck: no plan text makes the checker panic, and a plan that it accepts completes
// no earlier than it states.
func FuzzCheck(f *testing.F) {
	var problems []*plans.Problem
	for _, name := range []string{"swot-fig5", "demand", "joint"} {
		f.Add(planstest.Read(f, name+".plan.json"))
		p, _ := planstest.Load(f, name)
		problems = append(problems, p)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		plan, err := plans.DecodePlan(data)
		if err != nil {
			return
		}
		for _, p := range problems {
			report, err := Check(p, plan)
			if err == nil && !plans.SameUS(report.CCTUS, plan.CCTUS) {
				t.Fatalf("accepted %v us as %v us", report.CCTUS, plan.CCTUS)
			}
		}
	})
}
