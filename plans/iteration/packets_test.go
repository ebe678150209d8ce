package iteration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	ofcalls "lightpath/plans/check"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/play"
	"lightpath/plans/iteration/trace"
	"lightpath/plans/packets"
)

// TestPackets: calls use packet planes where these are faster. The checker accepts plans with none, some and all calls
// there, and playing them takes the stated time.
func TestPackets(t *testing.T) {
	none, some, all := 0, 0, 0
	for seed := range 40 {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		p := random(t, r, seed%2 == 0, 2+r.IntN(6))
		costs := packets.Costs{AlphaUS: float64(r.IntN(100)), Gbps: []float64{4, 8, 16, 64}[r.IntN(4)], Stated: true}
		p.UsePackets(costs)
		c, err := iteration.Compare(context.Background(), p, quick)
		require.NoError(t, err)
		report, err := check.Check(p, c.Plan)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if !plans.SameUS(report.ExposedUS, c.Plan.ExposedUS()) || !plans.AtLeastUS(c.Plan.IterationUS, c.Plan.LowerBoundUS) {
			t.Errorf("seed %d: %+v, plan %v", seed, report, c.Plan.IterationUS)
		}
		played, err := play.Run(p, c.Plan, 64)
		if err != nil || !plans.SameUS(played, c.Plan.IterationUS) {
			t.Errorf("seed %d: played %v us, planned %v us: %v", seed, played, c.Plan.IterationUS, err)
		}
		text, err := c.Plan.Encode()
		require.NoError(t, err)
		again, err := iteration.Decode(text)
		require.NoError(t, err)
		if _, err := check.Check(p, again); err != nil || again.VerifyDigest() != nil {
			t.Errorf("seed %d: read again: %v, %v", seed, err, again.VerifyDigest())
		}
		count := 0
		for at := range c.Plan.Calls {
			if c.Plan.PlanAt(at) == nil {
				count++
			}
		}
		switch count {
		case 0:
			none++
		case len(c.Plan.Calls):
			all++
		default:
			some++
		}
	}
	if t.Logf("packet planes serve no call %d times, some %d, all %d", none, some, all); none*some*all == 0 {
		t.Error("a case is missing")
	}
}

// withPackets is the example with packet planes, on which its second call takes 300 us, and its plan.
func withPackets(t *testing.T) (*iteration.Problem, *iteration.Plan) {
	t.Helper()
	p, _ := example(t, plans.Simplex)
	p.UsePackets(packets.Costs{AlphaUS: 100, Gbps: 8, Stated: true})
	plan, err := solve(context.Background(), p, quick)
	require.NoError(t, err)
	return p, plan
}

// TestPacketsExample: the switch for the third call has the gaps before and after the second one, and its 300 us.
func TestPacketsExample(t *testing.T) {
	p, plan := withPackets(t)
	if want := 2*501.0 + 300 + 150 + 150 + 40 + 10; !plans.SameUS(plan.IterationUS, want) || plan.ComputeUS != 350 {
		t.Errorf("iteration %v us, want %v; computation %v us", plan.IterationUS, want, plan.ComputeUS)
	}
	for _, c := range []struct {
		says   string
		change func(q *iteration.Plan)
	}{
		{"calls[1]: lasts 299 us, it takes 300 us on packet planes", func(q *iteration.Plan) { q.Calls[1].EndUS-- }},
		{"calls[1]: call 1 starts at", func(q *iteration.Plan) { q.Calls[1].StartUS--; q.Calls[1].EndUS-- }},
		{"calls[1].plan: 0, but for call 1 packet planes are faster", func(q *iteration.Plan) { q.Calls[1].Plan = 0 }},
		{"calls[0].plan: -1, but for call 0 packet planes are not faster", func(q *iteration.Plan) {
			q.Calls[0].Plan, q.Calls[0].Switches = iteration.OnPackets, nil
		}},
		{"calls[1].switches: a call on packet planes", func(q *iteration.Plan) {
			q.Calls[1].Switches = []iteration.Switch{{Plane: 0, StartUS: 0, EndUS: 100}}
		}},
		{"calls[2]: plane 0 does not have the circuits", func(q *iteration.Plan) { q.Calls[2].Switches = nil }},
	} {
		q := copyOf(t, plan)
		c.change(q)
		if _, err := check.Check(p, q); !errors.Is(err, ofcalls.ErrInfeasible) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q:\n%v", c.says, err)
		}
	}
	text, err := plan.Encode()
	require.NoError(t, err)
	bad := strings.Replace(string(text), `"plan":-1, `, `"plan":-2, `, 1)
	if _, err := iteration.Decode([]byte(bad)); bad == string(text) || !errors.Is(err, iteration.ErrPlan) {
		t.Error(err)
	}
}

// TestPacketsSweep: packet planes stay the same on all fabrics of a sweep.
func TestPacketsSweep(t *testing.T) {
	p, _ := withPackets(t)
	one := func(c *trace.Call, ranks int) (iteration.Exchange, error) {
		c.Collective = "shift"
		x, err := exchange(c, ranks)
		x.Steps = x.Steps[len(x.Steps)-1:]
		return x, err
	}
	points, err := iteration.Sweep(context.Background(), p, one, []int{1, 2}, []float64{1, 100_000}, quick, nil)
	require.NoError(t, err)
	for i := range points {
		packet := points[i].Of(iteration.Packet)
		if want := 350 + 1100 + 300 + 1100.0; !plans.SameUS(packet.IterationUS, want) {
			t.Errorf("%d planes, %v us: %+v", points[i].Planes, points[i].ReconfigUS, *packet)
		}
	}
}

// TestPacketMessages: messages use packet planes if no matrix gains by circuits, as at run time. A message that two
// others precede on its ports waits for them, and one on other ports does not.
func TestPacketMessages(t *testing.T) {
	f := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 4, AlphaUS: 1, ReconfigUS: 500,
		Circuits: plans.Simplex}
	tr := &trace.Trace{Ranks: 4, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3}}}}}
	for _, flow := range [][2]int{{0, 1}, {0, 2}, {3, 2}, {1, 3}} {
		tr.Calls = append(tr.Calls, trace.Call{Flows: [][2]int{flow}, Bytes: 1e5, After: []trace.After{{Call: trace.Begin}}})
	}
	for _, c := range []struct {
		costs     packets.Costs
		onPackets bool
	}{
		{packets.Costs{AlphaUS: 100, Gbps: 8, Stated: true}, true}, // 200 us; circuits take 101 us, but 500 to switch
		{packets.Costs{AlphaUS: 600, Gbps: 8, Stated: true}, false},
	} {
		p, err := iteration.Pose(f, "", tr, exchange)
		require.NoError(t, err)
		p.UsePackets(c.costs)
		comparison, err := iteration.Compare(context.Background(), p, quick)
		require.NoError(t, err)
		_, err = check.Check(p, comparison.Plan)
		require.NoError(t, err)
		if _, on := p.PacketUS(0); on != c.onPackets {
			t.Errorf("%+v: packet planes: %v", c.costs, on)
		}
		if got, want := comparison.Of(iteration.Packet).IterationUS, 3*(c.costs.AlphaUS+100); !plans.SameUS(got, want) {
			t.Errorf("%+v: %v us on packet planes, want %v", c.costs, got, want)
		}
	}
}
