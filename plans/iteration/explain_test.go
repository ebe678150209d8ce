package iteration_test

import (
	"context"
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/trace"
)

// twoCalls are calls on different circuits, each after 1 ms of computation.
func twoCalls() *trace.Trace {
	call := func(shift, i int) trace.Call {
		c := trace.Call{Bytes: 1e6, After: []trace.After{{Call: i - 1, GapUS: 1000}}}
		for r := range 8 {
			c.Flows = append(c.Flows, [2]int{r, (r + shift) % 8})
		}
		return c
	}
	return &trace.Trace{Ranks: 8, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}}},
		Calls: []trace.Call{call(1, 0), call(2, 1)}}
}

// TestSweep: planes share the bandwidth, and the advice names the slowest switches that are fast enough.
func TestSweep(t *testing.T) {
	f := &plans.Problem{Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 50, ReconfigUS: 1,
		Circuits: plans.Simplex}
	calls := 0
	p, err := iteration.Pose(f, "", twoCalls(), exchange)
	require.NoError(t, err)
	points, err := iteration.Sweep(context.Background(), p, exchange, []int{1, 4}, []float64{100, 1000, 50_000},
		quick, func(done, of int) {
			if calls++; done != calls || of != 6 {
				t.Errorf("%d of %d", done, of)
			}
		})
	require.NoError(t, err)
	if len(points) != 6 || calls != 6 {
		t.Fatalf("%d points, %d calls", len(points), calls)
	}
	packet := points[0].Of(iteration.Packet).IterationUS
	for i := range points {
		if got := points[i].Of(iteration.Packet).IterationUS; !plans.SameUS(got, packet) {
			t.Errorf("point %d: %v us on packet planes, want %v", i, got, packet)
		}
		if points[i].Over() < -1e-9 {
			t.Errorf("point %d: faster than packet planes", i)
		}
	}
	advice := iteration.Advice(points)
	assert.Contains(t, advice, "switches of 1 ms or faster", "on 1 plane:")
	for _, i := range []int{2, 5} { // switches of 50 ms alone
		if advice := iteration.Advice(points[i : i+1]); !strings.Contains(advice, "No circuits of this sweep") {
			t.Error(advice)
		}
	}
	if iteration.Advice(nil) != "" {
		t.Error("advice about nothing")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if points, err := iteration.Sweep(ctx, p, exchange, []int{1}, []float64{1}, quick, nil); err == nil ||
		len(points) != 0 {
		t.Errorf("%v, %v", points, err)
	}
}

func TestMillis(t *testing.T) {
	for us, want := range map[float64]string{0: "0 us", 12.3456: "12.35 us", 1500: "1.5 ms", 2.5e6: "2.5 s"} {
		if got := iteration.Millis(us); got != want {
			t.Errorf("%v: %s, want %s", us, got, want)
		}
	}
}

// TestOrderOfGrants: a call that comes first is granted first, wherever it is in the trace.
func TestOrderOfGrants(t *testing.T) {
	tr := twoCalls()
	tr.Calls[0].After = []trace.After{{Call: trace.Begin, GapUS: 900}}
	tr.Calls[1].After = []trace.After{{Call: trace.Begin, GapUS: 10}}
	f := &plans.Problem{Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 50, ReconfigUS: 1,
		Circuits: plans.Simplex}
	p, err := iteration.Pose(f, "", tr, exchange)
	require.NoError(t, err)
	plan, err := solve(context.Background(), p, quick)
	require.NoError(t, err)
	if plan.Calls[0].Call != 1 || plan.Calls[1].Call != 0 {
		t.Errorf("%+v", plan.Calls)
	}
	if _, err := check.Check(p, plan); err != nil {
		t.Error(err)
	}
}
