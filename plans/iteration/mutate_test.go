package iteration_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	ofcalls "lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/trace"
)

// example is a problem whose plan switches both planes in every gap, and its plan: three calls of one step each, in a
// chain, with gaps that hide the switches except one. On packet planes the second call has a fifth of the bytes.
func example(t *testing.T, circuits plans.CircuitKind) (*iteration.Problem, *iteration.Plan) {
	t.Helper()
	f := &plans.Problem{Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 8, AlphaUS: 1, ReconfigUS: 100,
		Circuits: circuits}
	call := func(algorithm string, bytes, gap float64, i int) trace.Call {
		return trace.Call{Collective: "shift", Algorithm: algorithm, Bytes: bytes,
			After: []trace.After{{Call: i - 1, GapUS: gap}}}
	}
	tr := &trace.Trace{Ranks: 8, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}}},
		Calls: []trace.Call{call("1", 1e6, 150, 0), call("2", 1e6, 150, 1), call("3", 1e6, 40, 2)}}
	tr.Calls[2].TailUS = 10
	one := func(c *trace.Call, ranks int) (iteration.Exchange, error) {
		shift := int(c.Algorithm[0] - '0')
		x := iteration.Exchange{Steps: []plans.Step{{Bytes: c.Bytes, To: circuit.Shift(ranks, shift)}}, Rounds: 1, Bytes: 1e6}
		if shift == 2 {
			x.Bytes = 2e5
		}
		return x, nil
	}
	p, err := iteration.Pose(f, "fabric", tr, one)
	require.NoError(t, err)
	plan, err := solve(context.Background(), p, quick)
	require.NoError(t, err)
	return p, plan
}

// copyOf returns a plan that a test may change.
func copyOf(t *testing.T, p *iteration.Plan) *iteration.Plan {
	t.Helper()
	text, err := p.Encode()
	require.NoError(t, err)
	q, err := iteration.Decode(text)
	require.NoError(t, err)
	return q
}

func TestExample(t *testing.T) {
	p, plan := example(t, plans.Simplex)
	if _, err := check.Check(p, plan); err != nil {
		t.Fatal(err)
	}
	// Each call takes 501 us on both planes. The switches before calls 0 and 1 are hidden in 160 and 150 us, that before
	// call 2 has 40 of its 100 us.
	if want := 3*501.0 + 150 + 150 + 100 + 10; !plans.SameUS(plan.IterationUS, want) || plan.ComputeUS != 350 {
		t.Errorf("iteration %v us, want %v; computation %v us", plan.IterationUS, want, plan.ComputeUS)
	}
	for at, shift := range []int{1, 2} {
		moves, to := plan.Calls[at].Switches, plan.PlanAt(at).Initial
		if len(moves) != 2 || moves[1].Plane != 1 || !to[1].Equal(circuit.Shift(8, shift)) {
			t.Errorf("before call %d: %+v to %v", at, moves, to)
		}
	}
}

// TestMutationsAreInfeasible: each change of a feasible plan breaks one rule, and the checker says which.
func TestMutationsAreInfeasible(t *testing.T) {
	p, plan := example(t, plans.Simplex)
	for _, c := range []struct {
		says   string
		change func(q *iteration.Plan)
	}{
		{"trace: is not the trace", func(q *iteration.Plan) { q.Trace.Calls[1].Bytes++ }},
		{"trace: is not the trace", func(q *iteration.Plan) { q.Trace.Calls[1].After[0].GapUS-- }},
		{"fabric: the plan is for the fabric", func(q *iteration.Plan) { q.Fabric = "other" }},
		{"call 0 is there twice", func(q *iteration.Plan) { q.Calls[1].Call = 0 }},
		{"iteration_us: the plan states", func(q *iteration.Plan) { q.IterationUS-- }},
		{"iteration_us: the plan states", func(q *iteration.Plan) { q.IterationUS++ }},
		{"compute_us: the plan states", func(q *iteration.Plan) { q.ComputeUS++ }},
		{"lower_bound_us", func(q *iteration.Plan) { q.LowerBoundUS = q.IterationUS + 1 }},
		{"calls[1]: lasts 500 us, its plan needs 501 us", func(q *iteration.Plan) { q.Calls[1].EndUS-- }},
		{"calls[0]: call 0 starts at 149 us", func(q *iteration.Plan) { q.Calls[0].StartUS--; q.Calls[0].EndUS-- }},
		{"calls[1]: the switch of plane 0 starts at", func(q *iteration.Plan) { q.Calls[1].Switches[0].StartUS-- }},
		{"calls[1]: the switch of plane 1 lasts 99 us", func(q *iteration.Plan) { q.Calls[1].Switches[1].EndUS-- }},
		{"calls[2]: the switch of plane 0 ends at", func(q *iteration.Plan) { q.Calls[2].StartUS--; q.Calls[2].EndUS-- }},
		{"calls[1]: plane 1 does not have the circuits", func(q *iteration.Plan) {
			q.Calls[1].Switches = q.Calls[1].Switches[:1]
		}},
		{"plane 0 is there twice", func(q *iteration.Plan) { q.Calls[1].Switches[1].Plane = 0 }},
		{"calls[0]: plane 0 does not have the circuits", func(q *iteration.Plan) { q.Calls[0].Switches = nil }},
		{"calls[0]: the switch of plane 0 starts at", func(q *iteration.Plan) {
			q.Calls[0].Switches[0].StartUS -= 20
			q.Calls[0].Switches[0].EndUS -= 20
		}},
		{"has no circuits", func(q *iteration.Plan) {
			q.Calls[0].Plan, q.Calls[1].Plan = q.Calls[1].Plan, q.Calls[0].Plan
		}},
		{"gets 999999 of", func(q *iteration.Plan) { q.PlanAt(0).Planes[0][0].Bytes-- }},
		{"calls[0]: plans[", func(q *iteration.Plan) { q.PlanAt(0).Planes[0][0].EndUS-- }},
		{"calls[1]: starts at", func(q *iteration.Plan) { // before the call before has ended
			q.Calls[1].StartUS -= 400
			q.Calls[1].EndUS -= 400
		}},
		{"has 1 planes", func(q *iteration.Plan) { q.PlanAt(0).Planes = q.PlanAt(0).Planes[:1] }},
	} {
		q := copyOf(t, plan)
		c.change(q)
		_, err := check.Check(p, q)
		if !errors.Is(err, ofcalls.ErrInfeasible) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q:\n%v", c.says, err)
		}
		if q.VerifyDigest() == nil {
			t.Errorf("%s: the digest does not change", c.says)
		}
	}
	q := copyOf(t, plan)
	q.Digest = ""
	if err := q.VerifyDigest(); !errors.Is(err, iteration.ErrDigest) {
		t.Error(err)
	}
}

// TestTails: a switch that starts early, at the end of a plan, delays the next call if it ends after it has come.
func TestTails(t *testing.T) {
	p, plan := example(t, plans.Simplex)
	q := copyOf(t, plan)
	first := *q.PlanAt(0)
	first.Planes = slices.Clone(first.Planes)
	first.Planes[0] = append(slices.Clone(first.Planes[0]), plans.Entry{Kind: plans.Reconfigure,
		To: q.PlanAt(1).Initial[0], StartUS: 501, EndUS: 601})
	q.Plans = append(q.Plans, &first)
	q.Calls[0].Plan = len(q.Plans) - 1
	q.Calls[1].Switches = q.Calls[1].Switches[1:]
	if _, err := check.Check(p, q); err != nil {
		t.Error(err)
	}
	first.Planes[0][1].StartUS, first.Planes[0][1].EndUS = 560, 660
	if _, err := check.Check(p, q); err == nil || !strings.Contains(err.Error(), "plane 0 reconfigures until") {
		t.Error(err)
	}
}

// TestShortMaps: maps that are too short are refused, not followed.
func TestShortMaps(t *testing.T) {
	p, plan := example(t, plans.Simplex)
	p.Fabric.ReconfigPerPort = 1
	q := copyOf(t, plan)
	for _, one := range q.Plans {
		one.Initial[1] = circuit.Permutation{0}
		if _, err := check.Check(p, q); err == nil || !strings.Contains(err.Error(), "initial[1]: has 1 entries") {
			t.Error(err)
		}
	}
}

// TestInterleavedSwitches: the planes of a pair switch together between calls, too.
func TestInterleavedSwitches(t *testing.T) {
	p, plan := example(t, plans.Interleaved)
	if _, err := check.Check(p, plan); err != nil {
		t.Fatal(err)
	}
	q := copyOf(t, plan)
	for at := range q.Calls {
		if s := q.Calls[at].Switches; len(s) == 2 {
			s[1].StartUS += 5
			s[1].EndUS += 5
			for range 20 { // the order of messages is that of planes
				_, err := check.Check(p, q)
				if err == nil || !strings.Contains(err.Error(), "without its interleaved partner") {
					t.Fatal(err)
				}
				text := err.Error()
				if strings.Index(text, "plane 0 switches without") > strings.Index(text, "plane 1 switches without") {
					t.Fatal(text)
				}
			}
			return
		}
	}
	t.Error("no gap has a switch")
}

func TestDecodeRefuses(t *testing.T) {
	_, plan := example(t, plans.Simplex)
	text, err := plan.Encode()
	require.NoError(t, err)
	for _, c := range []struct{ old, with, says string }{
		{`"version":1, "iter`, `"version":3, "iter`, "version"},
		{`"iteration_us":`, `"iteration":`, "iteration: unknown field"},
		{`{"call":0, "plan":0,`, `{"call":9, "plan":0,`, "calls[0].call: the trace has no call 9"},
		{`{"call":0, "plan":0,`, `{"call":0, "plan":9,`, "calls[0].plan: there is no plan 9"},
		{`"plane":0`, `"plane":5`, "switches[0].plane: the plan has no plane 5"},
		{`"ranks":8, "compute_us"`, `"ranks":7, "compute_us"`, "groups[0][7]: 7 is outside 0..6"},
		{`"initial":`, `"initials":`, "plans[0].initial: has 0 maps for 2 planes"},
	} {
		if !strings.Contains(string(text), c.old) {
			t.Fatalf("no %q in\n%s", c.old, text)
		}
		_, err := iteration.Decode([]byte(strings.Replace(string(text), c.old, c.with, 1)))
		if !errors.Is(err, iteration.ErrPlan) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.with, err, c.says)
		}
	}
}

// FuzzDecode: a plan that Decode accepts is the same when it is written and read again, and its methods do not fail.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"iteration_us":1,"compute_us":0,
"trace":{"version":1,"ranks":1,"communicators":[{"groups":[[0]]}],"calls":[{"flows":[],"bytes":0}]},
"plans":[{"version":1,"cct_us":0,"planes":[[]],"initial":[[0]]}],
"calls":[{"call":0,"plan":0,"start_us":0,"end_us":0,"switches":[{"plane":0,"start_us":0,"end_us":0}]}]}`))
	f.Add([]byte(`{"version":1,"iteration_us":3,"compute_us":0,
"trace":{"version":1,"ranks":3,"communicators":[{"groups":[[0,1,2]]}],"calls":[{"flows":[[0,1],[1,2]],"flow_bytes":[5,4.5],
"bytes":5}]},"plans":[],"calls":[{"call":0,"plan":-1,"start_us":0,"end_us":3}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := iteration.Decode(data)
		if err != nil {
			if p != nil || !errors.Is(err, iteration.ErrPlan) {
				t.Fatalf("%v with %v", p, err)
			}
			return
		}
		text, err := p.Encode()
		require.NoError(t, err)
		again, err := iteration.Decode(text)
		require.NoError(t, err)
		second, err := again.Encode()
		require.NoError(t, err)
		if string(second) != string(text) {
			t.Fatal("not the same when read again")
		}
	})
}

// TestInfeasible: a call without a plan is named.
func TestInfeasible(t *testing.T) {
	f := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 1, BandwidthGbps: 8, ReconfigUS: 1,
		Circuits: plans.Duplex}
	tr := &trace.Trace{Ranks: 4, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3}}}}, Calls: []trace.Call{
		{Flows: [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 0}}, Bytes: 5, After: []trace.After{{Call: trace.Begin}}}}}
	p, err := iteration.Pose(f, "", tr, exchange)
	require.NoError(t, err)
	if _, err := solve(context.Background(), p, quick); err != nil && !errors.Is(err, iteration.ErrProblem) {
		t.Error(err)
	}
	tr.Ranks = 5
	if _, err := iteration.Pose(f, "", tr, exchange); !errors.Is(err, iteration.ErrProblem) {
		t.Error(err)
	}
	tr.Ranks, tr.Calls[0] = 4, trace.Call{Collective: "xor", Algorithm: "none", After: []trace.After{{Call: trace.Begin}}}
	if _, err := iteration.Pose(f, "", tr, exchange); !errors.Is(err, iteration.ErrProblem) ||
		!strings.Contains(err.Error(), "calls[0] (xor none, 0 bytes)") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := solve(ctx, p, quick); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
