package codesign

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/planner"
)

// fabric has 800 Gb/s per rank, as in SWOT's experiments.
func fabric(planes int, kind plans.CircuitKind) *plans.Problem {
	return &plans.Problem{
		Planes: planes, BandwidthGbps: 800 / float64(planes), AlphaUS: 20, ReconfigUS: 200, Circuits: kind,
	}
}

// counted returns options that limit the search by operations, so that results repeat. The time limit, of which each
// alternative has a share, is too long to matter under the race detector.
func counted(effort time.Duration) planner.Options {
	return planner.Options{TimeLimit: time.Hour, Effort: effort}
}

func choose(t *testing.T, r Request) *Choice {
	t.Helper()
	ch, err := Choose(context.Background(), r)
	require.NoError(t, err)
	return ch
}

// chooseOnly is choose among the orders of one algorithm.
func chooseOnly(t *testing.T, r Request, name string) *Choice {
	t.Helper()
	s, err := newSearch(context.Background(), r)
	require.NoError(t, err)
	ch, err := s.among(append(s.seeds(name), name))
	require.NoError(t, err)
	return ch
}

// verify checks a choice: its schedule is correct, its plan is valid, and it is the first of those considered.
func verify(t *testing.T, r Request, ch *Choice) {
	t.Helper()
	s, err := schedule.Build(r.Collective, ch.Algorithm, r.Ranks, r.Root, schedule.Disjoint)
	if err == nil {
		err = schedule.Verify(s)
	}
	if err != nil {
		t.Fatalf("%s: %v", ch.Algorithm, err)
	}
	p, _, err := schedule.Problem(s, r.Bytes, r.Fabric)
	if err != nil || !reflect.DeepEqual(p, ch.Problem) {
		t.Errorf("%s: wrong problem: %v", ch.Algorithm, err)
	}
	if report, err := check.Check(p, ch.Plan); err != nil || !plans.SameUS(report.CCTUS, ch.Plan.CCTUS) {
		t.Errorf("%s: %v", ch.Algorithm, err)
	}
	first := ch.Considered[0]
	if first.Algorithm != ch.Algorithm || first.CCTUS != ch.Plan.CCTUS || first.Planner != ch.Plan.Planner ||
		first.LowerBoundUS != ch.Plan.LowerBoundUS {
		t.Errorf("%+v is first, but %s by %s is chosen", first, ch.Algorithm, ch.Plan.Planner)
	}
	for i, a := range ch.Considered {
		switch {
		case a.Err == nil && a.CCTUS < first.CCTUS-plans.Tolerance(a.CCTUS, first.CCTUS)-1e-4:
			t.Errorf("%+v is better than the first", a)
		case a.Err == nil && a.LowerBoundUS > a.CCTUS:
			t.Errorf("%+v: the bound is above the completion time", a)
		case a.Err == nil && i > 0 && ch.Considered[i-1].Err != nil:
			t.Error("alternatives without a plan are not last")
		}
	}
}

// TestMixingPays checks that steps of several permutations, one per plane, are faster than a fixed algorithm. The
// least gain over SWOT's plan of the fixed algorithm is in the table, so that a regression fails.
func TestMixingPays(t *testing.T) {
	for _, c := range []struct {
		name  string
		r     Request
		fixed string
		most  float64 // largest ratio to the time of SWOT's plan of the fixed algorithm
	}{
		{"alltoall, 16 ranks", Request{Collective: schedule.AllToAll, Ranks: 16, Bytes: 32e6}, "pairwise", 0.55},
		{"alltoall, 64 ranks", Request{Collective: schedule.AllToAll, Ranks: 64, Bytes: 32e6}, "pairwise", 0.36},
		{"allreduce, 64 ranks", Request{Collective: schedule.AllReduce, Ranks: 64, Bytes: 32e6}, "rabenseifner", 0.80},
		{"allgather, 64 ranks", Request{Collective: schedule.AllGather, Ranks: 64, Bytes: 32e6},
			"recursive-doubling", 0.80},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.Fabric, c.r.Options = fabric(4, plans.Simplex), counted(200*time.Millisecond)
			ch := choose(t, c.r)
			verify(t, c.r, ch)
			s, err := schedule.Build(c.r.Collective, c.fixed, c.r.Ranks, 0)
			require.NoError(t, err)
			p, _, err := schedule.Problem(s, c.r.Bytes, c.r.Fabric)
			require.NoError(t, err)
			fixed, err := planner.Solve(context.Background(), "swot", p, counted(200*time.Millisecond))
			require.NoError(t, err)
			t.Logf("%s %.0f us, %s %.0f us: %.2f",
				ch.Algorithm, ch.Plan.CCTUS, c.fixed, fixed.CCTUS, ch.Plan.CCTUS/fixed.CCTUS)
			if ch.Plan.CCTUS > c.most*fixed.CCTUS {
				t.Errorf("%s takes %v us, %s %v us", ch.Algorithm, ch.Plan.CCTUS, c.fixed, fixed.CCTUS)
			}
		})
	}
}

// TestOrderPays checks the search of orders on interleaved planes. There an offset and its opposite share circuits, so
// taking them one after the other halves the reconfigurations.
func TestOrderPays(t *testing.T) {
	r := Request{
		Collective: schedule.AllToAll, Ranks: 16, Bytes: 32e6, Fabric: fabric(2, plans.Interleaved),
		Planner: "perstep", Options: counted(50 * time.Millisecond),
	}
	free := chooseOnly(t, r, "pairwise")
	verify(t, r, free)
	r.FixedOrder = true
	fixed := chooseOnly(t, r, "pairwise")
	t.Logf("%s: %.0f us, in order %.0f us", free.Algorithm, free.Plan.CCTUS, fixed.Plan.CCTUS)
	if fixed.Algorithm != "pairwise" || free.Plan.CCTUS > 0.75*fixed.Plan.CCTUS {
		t.Errorf("%s takes %v us, %s %v us", free.Algorithm, free.Plan.CCTUS, fixed.Algorithm, fixed.Plan.CCTUS)
	}
}

// TestDirectionsPay checks that Choose uses both directions of a ring. A pair of interleaved planes holds a ring and
// its inverse, and no other algorithm is faster there.
func TestDirectionsPay(t *testing.T) {
	r := Request{
		Collective: schedule.AllReduce, Ranks: 6, Bytes: 1e6, Fabric: fabric(4, plans.Interleaved),
		Options: counted(50 * time.Millisecond),
	}
	one, two, both := chooseOnly(t, r, "ring"), chooseOnly(t, r, "ring:2"), choose(t, r)
	verify(t, r, both)
	wire := func(ch *Choice) float64 { return ch.Plan.CCTUS - r.Fabric.AlphaUS*float64(len(ch.Problem.Steps)) }
	if math.Abs(wire(two)-wire(one)/2) > 1e-6*wire(one) || both.Plan.CCTUS > two.Plan.CCTUS+1e-6 {
		t.Errorf("%s %v us, ring:2 %v us, ring %v us",
			both.Algorithm, both.Plan.CCTUS, two.Plan.CCTUS, one.Plan.CCTUS)
	}
}

// TestNeverWorse compares choices for random requests with every algorithm alone, in its default order, planned with
// screening effort.
func TestNeverWorse(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	kinds := []plans.CircuitKind{plans.Simplex, plans.Duplex, plans.Interleaved}
	for range 8 {
		f := fabric(2*(1+rng.IntN(2)), kinds[rng.IntN(3)])
		f.ReconfigUS, f.Forwarding, f.HopUS = float64(int(1)<<rng.IntN(12)), rng.IntN(2) == 0, .5
		if rng.IntN(2) == 0 {
			f.Final.Kind = plans.FinalInitial
		}
		r := Request{
			Collective: schedule.Collective(rng.IntN(int(schedule.NumCollectives))), Ranks: 2 + rng.IntN(11),
			Bytes:   float64(int(1) << (10 + rng.IntN(16))),
			Fabric:  f,
			Options: counted(10 * time.Millisecond),
		}
		ch, err := Choose(context.Background(), r)
		if err != nil && !errors.Is(err, planner.ErrInfeasible) {
			t.Fatal(err)
		}
		if err == nil {
			verify(t, r, ch)
		}
		for _, name := range schedule.Algorithms(r.Collective) {
			s, err := schedule.Build(r.Collective, name, r.Ranks, 0)
			if err != nil {
				continue
			}
			p, _, err := schedule.Problem(s, r.Bytes, f)
			require.NoError(t, err)
			for _, by := range []string{"static", "perstep"} {
				if by == "static" && f.Forwarding {
					continue // with forwarding, static searches until its time limit
				}
				plan, err := planner.Solve(context.Background(), by, p, counted(time.Millisecond))
				if err != nil {
					continue
				}
				if ch == nil {
					t.Fatalf("%v on %d ranks: %s has a plan by %s, but Choose found none", r.Collective, r.Ranks, name, by)
				}
				if ch.Plan.CCTUS > plan.CCTUS+plans.Tolerance(ch.Plan.CCTUS, plan.CCTUS)+1e-4 {
					t.Errorf("%v on %d ranks: %s takes %v us, %s by %s %v us",
						r.Collective, r.Ranks, ch.Algorithm, ch.Plan.CCTUS, name, by, plan.CCTUS)
				}
			}
		}
	}
}

// TestMorePlanesNeverWorse: a fabric with more planes of the same bandwidth never gets a worse choice.
func TestMorePlanesNeverWorse(t *testing.T) {
	before := math.Inf(1)
	for _, k := range []int{1, 3, 8, 24} {
		f := &plans.Problem{Planes: k, BandwidthGbps: 400, AlphaUS: 20, ReconfigUS: 20000, Circuits: plans.Simplex}
		ch := choose(t, Request{
			Collective: schedule.AllToAll, Ranks: 24, Bytes: 1e7, Fabric: f, FixedOrder: true,
			Options: counted(leastEffort),
		})
		if ch.Plan.CCTUS > before+plans.Tolerance(before, ch.Plan.CCTUS) {
			t.Errorf("%d planes take %v us, fewer take %v us (%s)", k, ch.Plan.CCTUS, before, ch.Algorithm)
		}
		before = ch.Plan.CCTUS
	}
}

// TestPromisingRadixFirst: on 4096 ranks a short time limit leaves time for few radices.
func TestPromisingRadixFirst(t *testing.T) {
	s := &search{Request: Request{
		Collective: schedule.AllToAll, Ranks: 4096, Bytes: 1e9,
		Fabric: &plans.Problem{Planes: 64, BandwidthGbps: 12.5, AlphaUS: 5, ReconfigUS: 200},
	}}
	names := []string{"direct", "bruck", "bruck:3", "bruck:16", "bruck:64", "bruck:129"}
	slices.SortStableFunc(names, s.bySize)
	if names[0] != "bruck:64" || names[5] != "direct" {
		t.Error(names)
	}
}

// TestRadices: if each step has circuits of its own, no plane switches. Then the best of the radices takes less than
// 1.5 times as long as the best of all. The measure is the time of a block on one circuit.
func TestRadices(t *testing.T) {
	for _, n := range []int{6, 16, 64, 100, 512, 4096} {
		for k := 1; k <= plans.MaxPlanes; k++ {
			for _, alpha := range []float64{0.01, 1, 100} {
				cost := func(r int) float64 {
					steps := digits(n, r)
					if planes := steps * (r - 1); planes <= k {
						return float64(steps) * (alpha + float64(n)/float64(r)/float64(k/planes))
					}
					return math.Inf(1)
				}
				least, found := math.Inf(1), cost(2)
				for r := 2; r <= k+1 && r <= n; r++ {
					least = min(least, cost(r))
				}
				for _, r := range radices(n, k) {
					if r <= n {
						found = min(found, cost(r))
					}
				}
				if found > 1.5*least {
					t.Errorf("%d ranks, %d planes, alpha %v: %v, all radices: %v", n, k, alpha, found, least)
				}
			}
		}
	}
}

// TestBounds: planners round differently, but the bound of an alternative is never above its completion time. The plan
// has the best bound of all planners.
func TestBounds(t *testing.T) {
	for kind, c := range map[plans.CircuitKind]schedule.Collective{
		plans.Simplex: schedule.Gather, plans.Duplex: schedule.Scatter,
	} {
		r := Request{
			Collective: c, Ranks: 12, Bytes: 1e9, Fabric: fabric(2, kind), Options: counted(time.Millisecond),
		}
		r.Fabric.Forwarding = true
		verify(t, r, choose(t, r))
	}
}

func TestChoiceRepeats(t *testing.T) {
	r := Request{
		Collective: schedule.AllReduce, Ranks: 8, Bytes: 1e6, Fabric: fabric(2, plans.Simplex),
		Options: counted(50 * time.Millisecond),
	}
	a, b := choose(t, r), choose(t, r)
	if a.Algorithm != b.Algorithm || !reflect.DeepEqual(a.Plan, b.Plan) || len(a.Considered) != len(b.Considered) {
		t.Errorf("%s %v us, then %s %v us", a.Algorithm, a.Plan.CCTUS, b.Algorithm, b.Plan.CCTUS)
	}
}

// TestTimeLimit checks that a time limit skips alternatives, but that the shortest limit still gives a plan.
func TestTimeLimit(t *testing.T) {
	r := Request{
		Collective: schedule.AllToAll, Ranks: 64, Bytes: 32e6, Fabric: fabric(4, plans.Simplex),
		Options: planner.Options{TimeLimit: time.Nanosecond},
	}
	ch := choose(t, r)
	verify(t, r, ch)
	late := 0
	for _, a := range ch.Considered {
		if errors.Is(a.Err, ErrOutOfTime) {
			late++
		}
	}
	if late == 0 {
		t.Error("no alternative was skipped within one nanosecond")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Choose(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDuplexServesEverything checks that duplex planes can serve every step. A step that is not an involution needs
// several configurations in turn.
func TestDuplexServesEverything(t *testing.T) {
	for name, c := range map[string]schedule.Collective{
		"pairwise": schedule.AllToAll, "bruck": schedule.AllToAll,
		"ring": schedule.AllReduce, "recursive-doubling": schedule.AllReduce,
	} {
		r := Request{
			Collective: c, Ranks: 8, Bytes: 1e6, Fabric: fabric(2, plans.Duplex),
			Options: counted(5 * time.Millisecond),
		}
		ch := chooseOnly(t, r, name)
		if _, err := check.Check(ch.Problem, ch.Plan); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	good := Request{
		Collective: schedule.AllToAll, Ranks: 5, Bytes: 1e6, Fabric: fabric(1, plans.Duplex),
		Options: counted(time.Millisecond),
	}
	for name, c := range map[string]struct {
		edit func(r *Request)
		want error
		says string
	}{
		"collective": {func(r *Request) { r.Collective = schedule.NumCollectives }, ErrRequest, "collective"},
		"ranks":      {func(r *Request) { r.Ranks = 0 }, ErrRequest, "ranks"},
		"fabric":     {func(r *Request) { r.Fabric = nil }, ErrRequest, "fabric"},
		"planner":    {func(r *Request) { r.Planner = "magic" }, ErrRequest, "magic"},
		"no plan":    {func(r *Request) { r.Planner = "static" }, planner.ErrInfeasible, "pairwise"},
		"bandwidth": {func(r *Request) {
			f := *r.Fabric
			f.BandwidthGbps = 0
			r.Fabric = &f
		}, plans.ErrProblem, "bandwidth"},
		"root": {func(r *Request) { r.Collective, r.Root = schedule.Broadcast, 7 }, schedule.ErrRoot, "root"},
		"size": {func(r *Request) { r.Bytes = -1 }, schedule.ErrProblem, "bytes"},
	} {
		r := good
		c.edit(&r)
		ch, err := Choose(context.Background(), r)
		if ch != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommon(t *testing.T) {
	call := func(times ...float64) *Choice {
		ch := &Choice{}
		for i, us := range times {
			a := Alternative{Algorithm: string(rune('a' + i)), CCTUS: us}
			if us == 0 {
				a.Err = ErrOutOfTime
			}
			ch.Considered = append(ch.Considered, a)
		}
		return ch
	}
	for _, c := range []struct {
		choices []*Choice
		want    string
	}{
		{nil, ""},
		{[]*Choice{call(3, 2, 1)}, "c"},
		{[]*Choice{call(1, 2, 4), call(100, 20, 10)}, "b"}, // products 100, 40, 40: the better of the first call wins
		{[]*Choice{call(1, 2, 4), call(100, 0, 10)}, "c"},
		{[]*Choice{call(1, 2), call(0, 0)}, ""},
	} {
		if got := Common(c.choices); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
