package render

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/internal/svg"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/planstest"
)

// draw returns the picture of plan after checking that it is well-formed XML whose shapes
// lie within it.
func draw(t testing.TB, plan *plans.Plan, o Options) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Timeline(&b, plan, o))
	text := b.String()
	if bad := []string{"NaN", "Inf", "%!"}; strings.Contains(text, bad[0]) || strings.Contains(text, bad[1]) ||
		strings.Contains(text, bad[2]) {
		t.Fatalf("not a number in\n%s", text)
	}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	}
}

func TestTimelineShowsThePlan(t *testing.T) {
	problem, plan := planstest.Load(t, "swot-fig5")
	text := draw(t, plan, Options{Title: "a < b", Problem: problem})
	for want, count := range map[string]int{
		"a &lt; b": 1,
		"completes in 1200 us, lower bound 1200 us: optimal": 1,
		"CCT 1200 us = bound":                                1,
		">plane 0<":                                          1,
		">plane 1<":                                          1,
		">begins xor 1<":                                     2,
		">to xor 2<":                                         1,
		">to xor 4<":                                         1,
		">to xor 1<":                                         2,
		"switch to xor":                                      4,
		"step 5: xor 1, 20 MB":                               1,
		">step 0, 15 MB<":                                    1,
		"step 0, 5 MB for each flow: 0 us to 100 us (100 us)": 1,
		">reconfiguration<":                    1,
		">idle<":                               3, // the legend and a tool tip for each track
		`x="370.51" y="107.00" width="155.01"`: 1, // step 1: 300 to 500 of 1218 us on 944 pixels from 138
		"time [us]":                            1,
		"measured":                             0,
	} {
		if got := strings.Count(text, want); got != count {
			t.Errorf("%q appears %d times, want %d", want, got, count)
		}
	}
}

func TestTimelineShowsTheRun(t *testing.T) {
	_, plan := planstest.Load(t, "swot-fig5")
	plan.LowerBoundUS = 1000
	measured := make([][]plans.Entry, len(plan.Planes))
	for j, entries := range plan.Planes {
		for _, e := range entries {
			e.StartUS, e.EndUS = e.StartUS*1.1, e.EndUS*1.1
			measured[j] = append(measured[j], e)
		}
	}
	text := draw(t, plan, Options{Measured: measured})
	assert.Contains(t, text, "measured 1320 us (+10.0 %)", "at most 20 % above the optimum", ">measured<",
		">planned<", ">bound 1000 us<", ">CCT 1200 us<", ">measured 1320 us<")
	text = draw(t, plan, Options{Measured: measured, MeasuredCCTUS: 1260})
	if !strings.Contains(text, "measured 1260 us (+5.0 %)") {
		t.Error("stated completion time is not shown")
	}
}

func TestTimelineOfHoldsAndJoints(t *testing.T) {
	_, demand := planstest.Load(t, "demand")
	_, joint := planstest.Load(t, "joint")
	if text := draw(t, demand, Options{}); !strings.Contains(text, "hold shift 1") {
		t.Error("holds")
	}
	if text := draw(t, joint, Options{}); !strings.Contains(text, ">step 0, joint, H2<") ||
		!strings.Contains(text, "one joint transmit") {
		t.Error("joints")
	}
}

// TestForwardingIsMarked: on a ring of four, a step to the rank after next takes two hops
// and two flows share each circuit; after the switch to the step's own circuits, neither.
func TestForwardingIsMarked(t *testing.T) {
	problem := &plans.Problem{Ranks: 4, Steps: []plans.Step{{Bytes: 1e6, To: circuit.Shift(4, 2)}}}
	plan := &plans.Plan{
		CCTUS: 300, Initial: []circuit.Permutation{circuit.Shift(4, 1)},
		Planes: [][]plans.Entry{{
			{Kind: plans.Transmit, Bytes: 5e5, StartUS: 0, EndUS: 100},
			{Kind: plans.Reconfigure, To: circuit.Shift(4, 2), StartUS: 100, EndUS: 200},
			{Kind: plans.Transmit, Bytes: 5e5, StartUS: 200, EndUS: 300},
		}},
	}
	text := draw(t, plan, Options{Problem: problem})
	for want, count := range map[string]int{
		">step 0, 500 KB, H2 L2<":                        1,
		">step 0, 500 KB<":                               1,
		"forwarded over 2 hops, 2 flows share a circuit": 1,
		`fill="url(#forward)"`:                           2, // the block and the legend
		"planes send 67 %, switch 33 %, idle 0 %":        1,
	} {
		if got := strings.Count(text, want); got != count {
			t.Errorf("%q appears %d times, want %d", want, got, count)
		}
	}
	if text = draw(t, plan, Options{}); strings.Contains(text, "H2") {
		t.Error("hops without a problem")
	}
}

// TestManyStepsAreAScale: the colours of many steps follow their order, and the legend
// names some of them only.
func TestManyStepsAreAScale(t *testing.T) {
	plan := &plans.Plan{CCTUS: 500, Planes: make([][]plans.Entry, 64)}
	for j := range plan.Planes {
		for i := range 500 {
			plan.Planes[j] = append(plan.Planes[j], plans.Entry{Kind: plans.Transmit, Step: i, Bytes: 1, StartUS: float64(i),
				EndUS: float64(i) + 1})
		}
	}
	text := draw(t, plan, Options{})
	assert.Contains(t, text, ">step 0<", ">step 499<", "(500 steps)", `fill="`+svg.Shade(0)+`"`,
		`fill="`+svg.Shade(1)+`"`)
	if strings.Contains(text, ">step 100<") {
		t.Error("the legend lists every step")
	}
}

// TestAnythingCanBeDrawn: the drawing does not rely on a feasible plan.
func TestAnythingCanBeDrawn(t *testing.T) {
	odd := []plans.Entry{
		{Kind: plans.Transmit, Step: -3, Bytes: math.Inf(1), StartUS: math.NaN(), EndUS: 5},
		{Kind: plans.Transmit, Step: 1 << 30, StartUS: 5, EndUS: 1},
		{Kind: plans.Reconfigure, StartUS: -10, EndUS: math.Inf(1)},
		{Kind: plans.Hold, To: circuit.Permutation{5, 6, 7}, StartUS: 0, EndUS: 1e300},
		{Kind: "\x00<&>", Joint: "]]>\x01"},
	}
	for _, plan := range []*plans.Plan{
		{},
		{CCTUS: math.NaN(), LowerBoundUS: math.Inf(1), Planner: "\x02\"'<"},
		{Planes: [][]plans.Entry{nil, odd}, Initial: []circuit.Permutation{nil}},
		{Planes: make([][]plans.Entry, 64), CCTUS: 1e-9},
	} {
		var b bytes.Buffer
		o := Options{Measured: [][]plans.Entry{odd, odd, odd}, Width: 1, Problem: &plans.Problem{}}
		assert.NoError(t, Timeline(&b, plan, o))
		if err := xml.Unmarshal(b.Bytes(), new(struct{})); err != nil {
			t.Errorf("%v\n%s", err, b.String())
		}
		assert.NoError(t, HTML(io.Discard, plan, o))
	}
}

func TestManyEntriesStaySmall(t *testing.T) {
	plan := &plans.Plan{CCTUS: 1e6, Planes: make([][]plans.Entry, 1)}
	for i := range 200000 {
		plan.Planes[0] = append(plan.Planes[0], plans.Entry{Kind: plans.Transmit, Step: i, StartUS: float64(i) * 5,
			EndUS: float64(i)*5 + 5})
	}
	if text := draw(t, plan, Options{}); len(text) > 1<<20 {
		t.Errorf("%d bytes", len(text))
	}
}

func TestHTML(t *testing.T) {
	problem, plan := planstest.Load(t, "swot-fig5")
	plan.BoundProof, plan.Digest = "busiest <port>.", "abc"
	var b bytes.Buffer
	require.NoError(t, HTML(&b, plan, Options{Problem: problem}))
	text := b.String()
	if strings.Count(text, "<svg ") != 1 || strings.Count(text, "<script>") != 1 {
		t.Error("want one picture and one script")
	}
	assert.Contains(t, text, `data-t="0 300" data-labels="step 0, 15 MB|step 0|0"`, "<svg ",
		"busiest &lt;port&gt;.", "<code>abc</code>", "<td>switch to xor 4</td>", "<td>step 0, 15 MB for each flow</td>",
		"<title>Lightpath plan: swot</title>")
	for _, foreign := range []string{"src=", "href=", "url(http", "fetch("} {
		if strings.Contains(text, foreign) {
			t.Errorf("not self-contained: %s", foreign)
		}
	}
}

// TestBarrierAndResetsAreExplained draws a run that is faster than the optimum of the model, and circuits that
// change after the completion time.
func TestBarrierAndResetsAreExplained(t *testing.T) {
	planes := [][]plans.Entry{{
		{Kind: plans.Transmit, Bytes: 1, StartUS: 0, EndUS: 539},
		{Kind: plans.Reconfigure, To: circuit.Shift(4, 1), StartUS: 539, EndUS: 600},
	}}
	plan := &plans.Plan{CCTUS: 539, LowerBoundUS: 539, Planes: planes}
	text := draw(t, plan, Options{Measured: planes, MeasuredCCTUS: 480, WithoutBarrierUS: 478})
	assert.Contains(t, text, ": optimal with the barrier;", ">bound without barrier 478 us<", ">CCT 539 us = bound with barrier<",
		">The plan has a barrier between steps and the run has none. Without the barrier this plan needs at least 478 us.<",
		">After the last step of their plane: 1 reconfiguration planned, 1 measured. They set the circuits for the next call")
	plan.Planes = [][]plans.Entry{planes[0][:1]}
	if text = draw(t, plan, Options{}); strings.Contains(text, "barrier") || strings.Contains(text, "After the last") {
		t.Error("notes without a cause")
	}
}

// TestEqualPlanesShareARow draws 64 planes, of which all but plane 9 do the same.
func TestEqualPlanesShareARow(t *testing.T) {
	plan := &plans.Plan{CCTUS: 100, Planes: make([][]plans.Entry, 64)}
	for j := range plan.Planes {
		plan.Planes[j] = []plans.Entry{{Kind: plans.Transmit, Bytes: 5, EndUS: 100}}
	}
	plan.Planes[9][0].EndUS = 90
	text := draw(t, plan, Options{})
	assert.Contains(t, text, ">planes 0 to 8<", ">plane 9<", ">planes 10 to 63<")
	if n := strings.Count(text, ">idle<"); n != 4 { // three tracks and the legend
		t.Errorf("%d tracks and legends, want 4", n)
	}
}

// TestTrace checks that every plane has a named lane, and every entry a complete event in us.
func TestTrace(t *testing.T) {
	problem, plan := planstest.Load(t, "swot-fig5")
	f := Trace(plan, Options{Problem: problem, Measured: plan.Planes[:1]})
	lanes, slices, entries := map[[2]int]any{}, 0, len(plan.Planes[0])
	for _, plane := range plan.Planes {
		entries += len(plane)
	}
	for _, e := range f.Events {
		switch {
		case e.Name == "thread_name":
			lanes[[2]int{e.PID, e.TID}] = e.Args["name"]
		case e.Phase == "X":
			if slices++; lanes[[2]int{e.PID, e.TID}] == nil || e.Dur == nil {
				t.Errorf("%+v", e)
			}
		}
	}
	if lanes[[2]int{0, 0}] != "plane 0" || lanes[[2]int{0, 1}] != "plane 1" ||
		lanes[[2]int{1, 0}] != "plane 0" || slices != entries {
		t.Errorf("lanes %v, %d slices of %d", lanes, slices, entries)
	}
	if e := f.Events[2]; e.Name != "step 0" || e.TS != 0 || *e.Dur != 100 || e.Args["bytes per flow"] != 5e6 {
		t.Errorf("first slice %+v, %v us", e, *e.Dur)
	}
	for _, e := range []plans.Entry{{EndUS: math.Inf(1)}, {StartUS: -1e308, EndUS: 1e308}} {
		plan.Planes[0][0].StartUS, plan.Planes[0][0].EndUS = e.StartUS, e.EndUS
		lanes := []Lane{{Spans: []Span{{StartUS: e.StartUS, EndUS: e.EndUS}}}}
		if text, err := json.Marshal(Trace(plan, Options{Lanes: lanes})); err != nil || len(text) == 0 {
			t.Error(err)
		}
	}
}

func TestMapName(t *testing.T) {
	dark := circuit.Dark
	for _, c := range []struct {
		p    circuit.Permutation
		want string
	}{
		{nil, "dark"},
		{circuit.AllDark(4), "dark"},
		{circuit.Xor(8, 4), "xor 4"},
		{circuit.Xor(6, 4), "xor 4"},
		{circuit.Shift(8, 3), "shift 3"},
		{circuit.Shift(8, 7), "shift -1"},
		{circuit.Shift(8, 0), "loops"},
		{circuit.Permutation{1, 2, 3, dark}, "part of shift 1"},
		{circuit.Permutation{1, 0, dark, dark}, "part of xor 1"},
		{circuit.Permutation{0, dark, dark}, "part of loops"},
	} {
		if got := MapName(c.p); got != c.want {
			t.Errorf("%v: %s, want %s", c.p, got, c.want)
		}
	}
	if got := MapName(circuit.Permutation{2, 0, 1, 3}); len(got) != 7 || got[0] != '#' {
		t.Errorf("fingerprint %q", got)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestWriterErrors(t *testing.T) {
	_, plan := planstest.Load(t, "swot-fig5")
	if err := Timeline(failingWriter{}, plan, Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	if err := HTML(failingWriter{}, plan, Options{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}
