package iteration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/play"
	"lightpath/plans/iteration/trace"
)

// exchange is that of two families of collectives: xor of n bits, and n shifts. Each step is a round.
func exchange(c *trace.Call, ranks int) (x iteration.Exchange, err error) {
	if _, err := fmt.Sscan(c.Algorithm, &x.Rounds); err != nil {
		return x, err
	}
	for i := range x.Rounds {
		to := circuit.Shift(ranks, i+1)
		if c.Collective == "xor" {
			to = circuit.Xor(ranks, 1<<i%ranks)
		}
		x.Steps = append(x.Steps, plans.Step{Bytes: c.Bytes, To: to})
	}
	x.Bytes = float64(x.Rounds) * c.Bytes
	return x, nil
}

// random returns a small random problem: chains, or calls that overlap.
func random(t *testing.T, r *rand.Rand, chain bool, calls int) *iteration.Problem {
	t.Helper()
	ranks := []int{4, 8}[r.IntN(2)]
	f := &plans.Problem{
		Version: plans.Version, Ranks: ranks, Planes: 1 + r.IntN(3), BandwidthGbps: 8, AlphaUS: float64(r.IntN(3)),
		ReconfigUS: []float64{0, 10, 100, 1000}[r.IntN(4)], Forwarding: r.IntN(2) == 0, Circuits: plans.Simplex,
		ReconfigPerPort: float64(r.IntN(2)),
	}
	switch r.IntN(4) {
	case 0:
		f.Circuits, f.Planes = plans.Interleaved, 2
	case 1:
		f.Circuits = plans.Duplex
	}
	half := make([][]int, 2)
	for i := range ranks {
		half[i%2] = append(half[i%2], i)
	}
	all := make([]int, ranks)
	for i := range all {
		all[i] = i
	}
	tr := &trace.Trace{Ranks: ranks, ComputeUS: float64(r.IntN(300)),
		Communicators: []trace.Communicator{{Groups: [][]int{all}}, {Groups: half}}}
	for i := range calls {
		c := trace.Call{Communicator: r.IntN(2), Collective: "xor", Algorithm: fmt.Sprint(1 + r.IntN(2)),
			Bytes: float64(1000 * (1 + r.IntN(100))), After: []trace.After{{Call: i - 1, GapUS: float64(r.IntN(150))}}}
		if f.Circuits != plans.Duplex && r.IntN(2) == 0 {
			c.Collective = "shift"
		}
		if r.IntN(5) == 0 {
			c = trace.Call{After: c.After}
			c.SetFlows(map[[2]int]float64{{0, 1}: float64(1000 * r.IntN(100)), {1, 0}: 5e4, {1, 2}: 1e4})
		}
		if !chain {
			c.After[0].Call = r.IntN(i+1) - 1
			c.TailUS = float64(r.IntN(50))
			if i > 1 && c.After[0].Call != i-2 && r.IntN(2) == 0 {
				c.After = append(c.After, trace.After{Call: i - 2, GapUS: float64(r.IntN(50))})
			}
		}
		tr.Calls = append(tr.Calls, c)
	}
	tr.Calls[calls-1].TailUS = float64(r.IntN(200))
	require.NoError(t, tr.Validate())
	p, err := iteration.Pose(f, "fabric", tr, exchange)
	require.NoError(t, err)
	return p
}

// quick is far beyond what tiny problems need: operations end their searches.
var quick = iteration.Options{TimeLimit: 400 * time.Millisecond}

// TestPerCallReturns: plans of single calls switch inside, and return in the gap. Only a call that needs other circuits
// waits for a setup.
func TestPerCallReturns(t *testing.T) {
	const reconfig = 100
	f := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 1, BandwidthGbps: 8, ReconfigUS: reconfig,
		Circuits: plans.Simplex}
	twice := trace.Call{Collective: "xor", Algorithm: "2", Bytes: 10_000}
	other := trace.Call{Collective: "shift", Algorithm: "1", Bytes: 10_000}
	for name, c := range map[string]struct {
		calls   []trace.Call
		gap     float64
		exposed float64 // by the calls: steps of 10 us, and switches
	}{
		"long gaps":      {[]trace.Call{twice, twice}, 300, 2 * (20 + reconfig)},
		"short gaps":     {[]trace.Call{twice, twice}, 30, 2 * (20 + reconfig + 70)},
		"other circuits": {[]trace.Call{twice, other}, 300, 20 + reconfig + 10 + 2*reconfig},
	} {
		tr := &trace.Trace{Ranks: 4, Communicators: []trace.Communicator{{Groups: [][]int{{0, 1, 2, 3}}}}}
		for i, call := range c.calls {
			call.After = []trace.After{{Call: i - 1, GapUS: c.gap}}
			tr.Calls = append(tr.Calls, call)
		}
		require.NoError(t, tr.Validate())
		p, err := iteration.Pose(f, "fabric", tr, exchange)
		require.NoError(t, err)
		all, err := iteration.Compare(context.Background(), p, quick)
		require.NoError(t, err)
		if got := all.Of(iteration.PerCall).ExposedUS; !plans.SameUS(got, c.exposed) {
			t.Errorf("%s: %v us exposed, want %v", name, got, c.exposed)
		}
	}
}

// TestPlans: for any trace the checker accepts the plan, and playing it takes the stated time. The time is between the
// bound and each baseline that can be run.
func TestPlans(t *testing.T) {
	cases := 40
	if testing.Short() {
		cases = 12
	}
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		p := random(t, r, seed%2 == 0, 2+r.IntN(6))
		c, err := iteration.Compare(context.Background(), p, quick)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		report, err := check.Check(p, c.Plan)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if !plans.SameUS(report.IterationUS, c.Plan.IterationUS) || !plans.SameUS(report.ExposedUS, c.Plan.ExposedUS()) {
			t.Errorf("seed %d: %+v, plan %v", seed, report, c.Plan.IterationUS)
		}
		played, err := play.Run(p, c.Plan, 64)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		} else if !plans.SameUS(played, c.Plan.IterationUS) {
			t.Errorf("seed %d: played %v us, planned %v us", seed, played, c.Plan.IterationUS)
		}
		for _, o := range c.Outcomes {
			if o.Name == iteration.Packet {
				if !plans.AtLeastUS(c.Plan.IterationUS, o.IterationUS) {
					t.Errorf("seed %d: the plan takes %v us, planes without circuits %v us", seed, c.Plan.IterationUS, o.IterationUS)
				}
				continue
			}
			if o.Name != iteration.Free && !plans.AtLeastUS(o.IterationUS, c.Plan.IterationUS) {
				t.Errorf("seed %d: %s takes %v us, the plan %v us", seed, o.Name, o.IterationUS, c.Plan.IterationUS)
			}
			if !plans.AtLeastUS(o.IterationUS, c.Plan.LowerBoundUS) {
				t.Errorf("seed %d: %s takes %v us, below the bound of %v us", seed, o.Name, o.IterationUS, c.Plan.LowerBoundUS)
			}
			if h := o.Hidden(); h < 0 || h > 1 || o.ExposedSwitchingUS > o.SwitchingUS+1e-6 {
				t.Errorf("seed %d: %+v", seed, o)
			}
		}
		require.NoError(t, c.Plan.VerifyDigest())
		text, err := c.Plan.Encode()
		require.NoError(t, err)
		again, err := iteration.Decode(text)
		require.NoError(t, err)
		if _, err := check.Check(p, again); err != nil || again.VerifyDigest() != nil {
			t.Errorf("seed %d: read again: %v, %v", seed, err, again.VerifyDigest())
		}
	}
}

func solve(ctx context.Context, p *iteration.Problem, o iteration.Options) (*iteration.Plan, error) {
	c, err := iteration.Compare(ctx, p, o)
	if err != nil {
		return nil, err
	}
	return c.Plan, nil
}

// TestKnownWay: a search without time keeps a known way to run the iteration, and puts all switches into the plans of
// calls where gaps must have none.
func TestKnownWay(t *testing.T) {
	worse := 0
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		p := random(t, r, true, 2+r.IntN(5))
		known, err := solve(context.Background(), p, quick)
		require.NoError(t, err)
		way := make([]*plans.Plan, len(known.Calls))
		for at := range known.Calls {
			way[known.Calls[at].Call] = known.PlanAt(at)
		}
		hasty, err := solve(context.Background(), p, iteration.Options{TimeLimit: 1, Effort: 1})
		require.NoError(t, err)
		if hasty.IterationUS > known.IterationUS*1.01 {
			worse++
		}
		plan, err := solve(context.Background(), p, iteration.Options{TimeLimit: 1, Effort: 1, Tails: true,
			Ways: [][]*plans.Plan{way}})
		require.NoError(t, err)
		if !plans.AtLeastUS(known.IterationUS, plan.IterationUS) {
			t.Errorf("seed %d: %v us, a known way takes %v us", seed, plan.IterationUS, known.IterationUS)
		}
		if _, err := check.Check(p, plan); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if played, err := play.Run(p, plan, 64); err != nil || !plans.SameUS(played, plan.IterationUS) {
			t.Errorf("seed %d: played %v us, planned %v us: %v", seed, played, plan.IterationUS, err)
		}
		for at := range plan.Calls {
			if n := len(plan.Calls[at].Switches); n > 0 {
				t.Errorf("seed %d: %d switches in the gap before call at %d", seed, n, at)
			}
		}
	}
	if worse == 0 {
		t.Error("a search without time is never worse: the test checks nothing")
	}
}
