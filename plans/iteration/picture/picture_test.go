package picture

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/render"
)

// planned is two calls of 10 us on one plane of two ports, which switches in both gaps; the switch to the first call's
// circuits begins 20 us before the iteration.
func planned() *iteration.Plan {
	one, two := circuit.Permutation{1, 0}, circuit.Permutation{0, 1}
	plan := func(m circuit.Permutation) *plans.Plan {
		return &plans.Plan{Version: 1, CCTUS: 10, Initial: []circuit.Permutation{m}, Planes: [][]plans.Entry{{
			{Kind: plans.Transmit, Step: 0, Bytes: 1, EndUS: 4},
			{Kind: plans.Transmit, Step: 1, Bytes: 1, StartUS: 4, EndUS: 10}}}}
	}
	return &iteration.Plan{IterationUS: 200, ComputeUS: 170, LowerBoundUS: 190, Plans: []*plans.Plan{plan(one), plan(two)},
		Trace: &trace.Trace{Name: "small", Ranks: 2, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1}}}},
			Calls: []trace.Call{
				{Collective: "allreduce", Algorithm: "ring", After: []trace.After{{Call: trace.Begin, GapUS: 20}}},
				{Name: "moe", Collective: "alltoall", Algorithm: "pairwise", After: []trace.After{{Call: 0, GapUS: 30}},
					TailUS: 110}}},
		Calls: []iteration.Placed{
			{Call: 0, Plan: 0, StartUS: 30, EndUS: 40, Switches: []iteration.Switch{{Plane: 0, StartUS: -20, EndUS: 30}}},
			{Call: 1, Plan: 1, StartUS: 80, EndUS: 90, Switches: []iteration.Switch{{Plane: 0, StartUS: 40, EndUS: 80}}}}}
}

func TestTimeline(t *testing.T) {
	plan, o := Timeline(planned())
	want := [][3]float64{{0, 0, 30}, {1, 30, 40}, {0, 40, 80}, {1, 80, 90}, {0, 180, 200}}
	if len(plan.Planes[0]) != len(want) {
		t.Fatalf("%+v", plan.Planes[0])
	}
	for i, w := range want {
		e := plan.Planes[0][i]
		if (e.Kind == plans.Transmit) != (w[0] == 1) || e.StartUS != w[1] || e.EndUS != w[2] {
			t.Errorf("entry %d: %+v, want %v", i, e, w)
		}
	}
	lanes := map[string][]render.Span{}
	for _, l := range o.Lanes {
		lanes[l.Name] = l.Spans
	}
	if c := lanes["computation"]; len(c) != 3 || c[0].EndUS != 20 || c[1].StartUS != 40 || c[1].EndUS != 70 ||
		c[2].StartUS != 90 || c[2].EndUS != 200 {
		t.Errorf("computation %+v", c)
	}
	if w := lanes["waits for circuits"]; len(w) != 2 || w[0].StartUS != 20 || w[0].EndUS != 30 || w[1].StartUS != 70 {
		t.Errorf("waits %+v", w)
	}
	var svg, html bytes.Buffer
	require.NoError(t, render.Timeline(&svg, plan, o))
	require.NoError(t, render.HTML(&html, plan, o))
	for _, text := range []string{svg.String(), html.String()} {
		assert.Contains(t, text, "computation", "waits for circuits", ">moe<", ">allreduce<", "iteration 200 us")
	}
	if strings.Contains(html.String(), "step 0") {
		t.Error("the page calls a call a step")
	}
	text, err := json.Marshal(render.Trace(plan, o))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"moe"`, `"computation"`, `"iteration"`)
}

// TestPacketPlanes: calls on packet planes have a lane. An iteration may have no other calls, and then no planes.
func TestPacketPlanes(t *testing.T) {
	for _, all := range []bool{false, true} {
		p := planned()
		p.Calls[1].Plan, p.Calls[1].Switches = iteration.OnPackets, nil
		if all {
			p.Calls[0].Plan, p.Calls[0].Switches = iteration.OnPackets, nil
		}
		plan, o := Timeline(p)
		lanes := map[string]int{}
		for _, l := range o.Lanes {
			lanes[l.Name] = len(l.Spans)
		}
		if want := map[bool]int{false: 1, true: 2}[all]; lanes["packet planes"] != want || lanes["calls"] != 2-want {
			t.Errorf("lanes %v", lanes)
		}
		if all != (len(plan.Planes) == 0) {
			t.Errorf("%d planes", len(plan.Planes))
		}
		var svg, html bytes.Buffer
		require.NoError(t, render.Timeline(&svg, plan, o))
		require.NoError(t, render.HTML(&html, plan, o))
		if !strings.Contains(svg.String(), "packet planes") || !strings.Contains(html.String(), ">moe<") {
			t.Error("no packet planes in the picture")
		}
		for _, kind := range o.StepNames { // in the legend, whatever planes serve the call
			if !strings.Contains(svg.String(), ">"+kind+"</text>") {
				t.Errorf("the legend lacks %s", kind)
			}
		}
		if _, err := json.Marshal(render.Trace(plan, o)); err != nil {
			t.Error(err)
		}
	}
}
