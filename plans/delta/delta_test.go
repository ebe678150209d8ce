package delta

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
	"lightpath/plans/delta/sim"
	"lightpath/plans/delta/train"
)

func newPlanner(t testing.TB, g *dag.Graph) *Planner {
	t.Helper()
	p, err := NewPlanner(g)
	require.NoError(t, err)
	return p
}

func fast(t testing.TB, p *Planner, o Options) *Found {
	t.Helper()
	f, err := p.Fast(context.Background(), o)
	require.NoError(t, err)
	return f
}

// topologies calls visit with every topology of g.
func topologies(g *dag.Graph, visit func(dag.Circuits)) {
	c := make(dag.Circuits, len(g.Links))
	for l := range c {
		c[l] = 1
	}
	var from func(l int)
	from = func(l int) {
		if l == len(c) {
			visit(c)
			return
		}
		for c[l] = 1; g.CheckCircuits(c) == nil; c[l]++ {
			from(l + 1)
		}
		c[l] = 1
	}
	from(0)
}

// TestOptimum compares with every topology of small jobs: the fastest with fair shares, and of those
// the fewest ports that a descent can end with.
func TestOptimum(t *testing.T) {
	cases := 0
	for seed := uint64(0); cases < 40; seed++ {
		g := deltatest.Random(rand.New(rand.NewPCG(seed, 2)), 25)
		count := 0
		topologies(g, func(dag.Circuits) { count++ })
		if len(g.Links) == 0 || count > 1000 {
			continue
		}
		cases++
		p := newPlanner(t, g)
		net, err := sim.New(g)
		require.NoError(t, err)
		r, best := net.NewRunner(), math.Inf(1)
		topologies(g, func(c dag.Circuits) { best = min(best, r.Fair(c)) })
		f := fast(t, p, Options{Sharing: Fair, Seed: 1})
		if math.Abs(f.Makespan-best) > 1e-6*best {
			t.Errorf("seed %d: %v us, the best of %d topologies takes %v", seed, f.Makespan, count, best)
		}
		for l := range f.Circuits { // nothing can go alone
			if f.Circuits[l] > 1 {
				fewer := slices.Clone(f.Circuits)
				fewer[l]--
				if m := r.Fair(fewer); m <= f.Makespan*(1+equalTimes/2) {
					t.Errorf("seed %d: link %d could have %d circuits", seed, l, fewer[l])
				}
			}
		}
	}
}

// TestBounds: limiting circuits to the bounds loses nothing of any topology within the limit.
func TestBounds(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		g := deltatest.Random(rng, 40)
		net, err := sim.New(g)
		require.NoError(t, err)
		r := net.NewRunner()
		c := deltatest.Circuits(rng, g)
		makespan := r.Fair(c)
		bounded := slices.Clone(c)
		for l, most := range bounds(t.Context(), g, makespan) {
			bounded[l] = min(c[l], most)
		}
		if m := r.Fair(bounded); math.Abs(m-makespan) > 1e-6*makespan {
			t.Fatalf("seed %d: %v us with %v, %v within the bounds %v", seed, makespan, c, m, bounded)
		}
	}
}

// TestBoundsByHand: z waits for x, and may overlap y only where the limit leaves y some slack.
func TestBoundsByHand(t *testing.T) {
	g := &dag.Graph{
		Gbps:  100, // 12500 bytes/us: 80 us each
		Pods:  []dag.Pod{{Name: "a", Ports: 20}, {Name: "b", Ports: 20}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}},
		Tasks: []dag.Task{
			{Name: "x", From: 0, To: 1, Flows: 2, Bytes: 2e6}, {Name: "y", From: 0, To: 1, Flows: 3, Bytes: 3e6},
			{Name: "z", From: 0, To: 1, Flows: 4, Bytes: 4e6}, {Name: "back", From: 1, To: 0, Flows: 4, Bytes: 4e6},
		},
		Deps: []dag.Dep{{From: 0, To: 2}, {From: 1, To: 3, Delay: 1000}},
	}
	for _, c := range []struct {
		limit float64
		want  int
	}{
		{1159, 5}, // y must end before z can begin
		{1161, 7}, // y and z
		{1e9, 7},  // but never x and z
	} {
		if got := bounds(t.Context(), g, c.limit); got[0] != c.want {
			t.Errorf("limit %v: %v, want %d", c.limit, got, c.want)
		}
	}
}

// TestSharing: critical transfers first is never slower than fair shares on the same topology. Its schedules of the
// whole job pass the validator, with the makespan that the reduced job promised.
func TestSharing(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 4))
		g := deltatest.Random(rng, 40)
		p := newPlanner(t, g)
		c := deltatest.Circuits(rng, g)
		var makespan [2]float64
		for k, sharing := range []Sharing{Fair, Critical} {
			plan, err := p.Evaluate(c, sharing)
			require.NoError(t, err)
			s, err := p.Schedule(plan)
			require.NoError(t, err)
			if err := check.Check(g, s); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, sharing, err)
			}
			if math.Abs(s.Makespan-plan.Makespan) > 1e-6 {
				t.Fatalf("seed %d, %s: %v us, the plan says %v", seed, sharing, s.Makespan, plan.Makespan)
			}
			if makespan[k] = plan.Makespan; plan.Makespan < p.LowerBound()*(1-1e-9) {
				t.Fatalf("seed %d, %s: below the lower bound", seed, sharing)
			}
		}
		if makespan[1] > makespan[0]*(1+1e-9) {
			t.Fatalf("seed %d: %v us fair, %v critical", seed, makespan[0], makespan[1])
		}
	}
}

// TestDeterministic: the same seed gives the same result on any number of workers.
func TestDeterministic(t *testing.T) {
	c, err := train.Preset("mixtral-8x22b")
	require.NoError(t, err)
	c.MicroBatches = 16
	g, err := train.Generate(c)
	require.NoError(t, err)
	p := newPlanner(t, g)
	for _, sharing := range []Sharing{Fair, Critical} {
		var first *Found
		for _, workers := range []int{1, 2, 5} {
			f := fast(t, p, Options{Sharing: sharing, Seed: 3, Workers: workers, stable: 10})
			if first == nil {
				first = f
			}
			if !slices.Equal(f.Circuits, first.Circuits) || f.Makespan != first.Makespan || f.Evaluations != first.Evaluations {
				t.Errorf("%s: %v in %v us with 1 worker, %v in %v us with %d", sharing, first.Circuits, first.Makespan, f.Circuits,
					f.Makespan, workers)
			}
		}
	}
}

// TestTableI: on every model of the evaluation the search beats all baselines, or is as good, under both
// rules, and the schedules are valid.
func TestTableI(t *testing.T) {
	for _, name := range train.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := train.Preset(name)
			require.NoError(t, err)
			c.MicroBatches = 2 * c.PP // the tables of the evaluation have 8 times as many stages
			g, err := train.Generate(c)
			require.NoError(t, err)
			p := newPlanner(t, g)
			for _, sharing := range []Sharing{Fair, Critical} {
				f := fast(t, p, Options{Sharing: sharing, Seed: 1, stable: 15})
				s, err := p.Schedule(f.Plan)
				require.NoError(t, err)
				if err := check.Check(g, s); err != nil {
					t.Error(err)
				}
				for _, baseline := range Baselines() {
					circuits, err := p.Baseline(baseline)
					require.NoError(t, err)
					b, err := p.Evaluate(circuits, sharing)
					require.NoError(t, err)
					if b.Makespan < f.Makespan*(1-1e-9) {
						t.Errorf("%s, %s: %v us, fast %v", baseline, sharing, b.Makespan, f.Makespan)
					}
				}
			}
		})
	}
}

func TestBaselinesByHand(t *testing.T) {
	g := &dag.Graph{
		Gbps:  100,
		Pods:  []dag.Pod{{Name: "a", Ports: 10}, {Name: "b", Ports: 10}, {Name: "c", Ports: 10}},
		Links: []dag.Link{{Pods: [2]int{0, 1}, Ports: [2]int{1, 1}}, {Pods: [2]int{0, 2}, Ports: [2]int{1, 1}}},
		Tasks: []dag.Task{
			{Name: "x", From: 0, To: 1, Flows: 1, Bytes: 16e6},
			{Name: "y", From: 2, To: 0, Flows: 1, Bytes: 4e6}, {Name: "z", From: 0, To: 2, Flows: 1, Bytes: 1e6},
		},
	}
	p := newPlanner(t, g)
	for name, want := range map[string]dag.Circuits{
		PropAlloc: {8, 2}, // 16 : 4
		SqrtAlloc: {7, 3}, // 4 : 2; a tie at 6 : 3 goes to the first
		IterHalve: {6, 4}, // 8, 4, 2 to the first, then in turn from a tie
	} {
		if got, err := p.Baseline(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v (%v), want %v", name, got, err, want)
		}
	}
	if _, err := p.Baseline("none"); err == nil {
		t.Error("a baseline that does not exist")
	}
}

func TestContextEnds(t *testing.T) {
	g := deltatest.Random(rand.New(rand.NewPCG(1, 1)), 40)
	p := newPlanner(t, g)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f, err := p.Fast(ctx, Options{Sharing: Fair})
	if err != nil || g.CheckCircuits(f.Circuits) != nil {
		t.Fatalf("%v %v", f, err)
	}
	if _, err := p.Fast(ctx, Options{}); err == nil {
		t.Error("no rule of sharing")
	}
}
