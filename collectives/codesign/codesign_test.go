package codesign

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/planner"
)

// fabric is one of 800 Gb/s a rank, as in SWOT's experiments.
func fabric(planes int, kind plans.CircuitKind) *plans.Problem {
	return &plans.Problem{Planes: planes, BandwidthGbps: 800 / float64(planes), AlphaUS: 20, ReconfigUS: 200, Circuits: kind}
}

// counted are options whose search is bounded by operations, so that results repeat.
func counted(effort time.Duration) planner.Options {
	return planner.Options{TimeLimit: time.Minute, Effort: effort}
}

func choose(t *testing.T, r Request) *Choice {
	t.Helper()
	ch, err := Choose(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// verify holds a choice against the packages that it comes from.
func verify(t *testing.T, r Request, ch *Choice) {
	t.Helper()
	s, err := schedule.Build(r.Collective, ch.Algorithm, r.Ranks, r.Root, schedule.Disjoint())
	if err == nil {
		err = schedule.Verify(s)
	}
	if err != nil {
		t.Fatalf("%s: %v", ch.Algorithm, err)
	}
	p, stepOf, err := schedule.Problem(s, r.Bytes, r.Fabric)
	if err != nil || !reflect.DeepEqual(p, ch.Problem) || !reflect.DeepEqual(stepOf, ch.StepOf) {
		t.Errorf("%s: the problem is another's: %v", ch.Algorithm, err)
	}
	if report, err := check.Check(p, ch.Plan); err != nil || !plans.SameUS(report.CCTUS, ch.Plan.CCTUS) {
		t.Errorf("%s: %v", ch.Algorithm, err)
	}
	first := ch.Considered[0]
	if first.Algorithm != ch.Algorithm || first.CCTUS != ch.Plan.CCTUS || first.Planner != ch.Plan.Planner {
		t.Errorf("%+v is first, but %s by %s is chosen", first, ch.Algorithm, ch.Plan.Planner)
	}
	for i, a := range ch.Considered {
		switch {
		case a.Err == nil && (a.CCTUS < first.CCTUS-plans.Tolerance(a.CCTUS, first.CCTUS)-1e-4 || a.LowerBoundUS > a.CCTUS):
			t.Errorf("%+v is better than the first, or its bound wrong", a)
		case a.Err == nil && i > 0 && ch.Considered[i-1].Err != nil:
			t.Error("those without a plan are not last")
		}
	}
}

// Mixing: steps of several permutations give every plane its own, where a pairwise exchange
// switches all planes for every offset. The gain over the best plan of the fixed algorithm is
// stated, so that a loss of it is seen.
func TestMixingPays(t *testing.T) {
	for _, c := range []struct {
		name  string
		r     Request
		fixed string
		most  float64 // of the time that SWOT's plan of the fixed algorithm takes
	}{
		{"alltoall, 16 ranks", Request{Collective: schedule.AllToAll, Ranks: 16, Bytes: 32e6}, "pairwise", 0.55},
		{"alltoall, 64 ranks", Request{Collective: schedule.AllToAll, Ranks: 64, Bytes: 32e6}, "pairwise", 0.36},
		{"allreduce, 64 ranks", Request{Collective: schedule.AllReduce, Ranks: 64, Bytes: 32e6}, "rabenseifner", 0.80},
		{"allgather, 64 ranks", Request{Collective: schedule.AllGather, Ranks: 64, Bytes: 32e6}, "recursive-doubling", 0.80},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.r.Fabric, c.r.Options = fabric(4, plans.Simplex), counted(200*time.Millisecond)
			ch := choose(t, c.r)
			verify(t, c.r, ch)
			s, err := schedule.Build(c.r.Collective, c.fixed, c.r.Ranks, 0)
			if err != nil {
				t.Fatal(err)
			}
			p, _, err := schedule.Problem(s, c.r.Bytes, c.r.Fabric)
			if err != nil {
				t.Fatal(err)
			}
			fixed, err := planner.Solve(context.Background(), "swot", p, counted(200*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %.0f us, %s %.0f us: %.2f", ch.Algorithm, ch.Plan.CCTUS, c.fixed, fixed.CCTUS, ch.Plan.CCTUS/fixed.CCTUS)
			if ch.Plan.CCTUS > c.most*fixed.CCTUS {
				t.Errorf("%s takes %v us, %s %v us", ch.Algorithm, ch.Plan.CCTUS, c.fixed, fixed.CCTUS)
			}
		})
	}
}

// Order: on interleaved planes an offset and its opposite share circuits, so taking them one
// after the other halves the reconfigurations.
func TestOrderPays(t *testing.T) {
	r := Request{
		Collective: schedule.AllToAll, Ranks: 16, Bytes: 32e6, Fabric: fabric(2, plans.Interleaved), Planner: "perstep",
		Algorithms: []string{"pairwise"}, Options: counted(50 * time.Millisecond),
	}
	free := choose(t, r)
	verify(t, r, free)
	r.FixedOrder = true
	fixed := choose(t, r)
	t.Logf("%s: %.0f us, in order %.0f us", free.Algorithm, free.Plan.CCTUS, fixed.Plan.CCTUS)
	if fixed.Algorithm != "pairwise" || free.Plan.CCTUS > 0.75*fixed.Plan.CCTUS {
		t.Errorf("%s takes %v us, %s %v us", free.Algorithm, free.Plan.CCTUS, fixed.Algorithm, fixed.Plan.CCTUS)
	}
}

// Direction: a pair of interleaved planes holds a ring and its inverse, and a ring in both
// directions uses both; nothing is faster.
func TestDirectionsPay(t *testing.T) {
	r := Request{
		Collective: schedule.AllReduce, Ranks: 6, Bytes: 1e6, Fabric: fabric(4, plans.Interleaved), Options: counted(50 * time.Millisecond),
		Algorithms: []string{"ring"},
	}
	one := choose(t, r)
	r.Algorithms = nil
	both := choose(t, r)
	verify(t, r, both)
	r.Algorithms = []string{"ring:2"}
	wire := func(ch *Choice) float64 { return ch.Plan.CCTUS - r.Fabric.AlphaUS*float64(len(ch.Problem.Steps)) }
	two := choose(t, r)
	if math.Abs(wire(two)-wire(one)/2) > 1e-6*wire(one) || both.Plan.CCTUS > two.Plan.CCTUS+1e-6 {
		t.Errorf("%s %v us, ring:2 %v us, ring %v us", both.Algorithm, both.Plan.CCTUS, two.Plan.CCTUS, one.Plan.CCTUS)
	}
}

// Never worse than an algorithm on its own, with its own order, under the planners that the
// screening uses and with its effort.
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
			Bytes: float64(int(1) << (10 + rng.IntN(16))), Fabric: f, Options: counted(60 * time.Millisecond),
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
			if err != nil {
				t.Fatal(err)
			}
			for _, by := range []string{"static", "perstep"} {
				if by == "static" && f.Forwarding {
					continue // then it searches, for as long as it may
				}
				plan, err := planner.Solve(context.Background(), by, p, counted(time.Millisecond))
				if err != nil {
					continue
				}
				if ch == nil {
					t.Fatalf("%v on %d ranks: %s has a plan by %s, the choice has none", r.Collective, r.Ranks, name, by)
				}
				if ch.Plan.CCTUS > plan.CCTUS+plans.Tolerance(ch.Plan.CCTUS, plan.CCTUS)+1e-4 {
					t.Errorf("%v on %d ranks: %s takes %v us, %s by %s %v us", r.Collective, r.Ranks, ch.Algorithm, ch.Plan.CCTUS, name, by, plan.CCTUS)
				}
			}
		}
	}
}

func TestChoiceRepeats(t *testing.T) {
	r := Request{Collective: schedule.AllReduce, Ranks: 8, Bytes: 1e6, Fabric: fabric(2, plans.Simplex), Options: counted(50 * time.Millisecond)}
	a, b := choose(t, r), choose(t, r)
	if a.Algorithm != b.Algorithm || !reflect.DeepEqual(a.Plan, b.Plan) || len(a.Considered) != len(b.Considered) {
		t.Errorf("%s %v us, then %s %v us", a.Algorithm, a.Plan.CCTUS, b.Algorithm, b.Plan.CCTUS)
	}
}

// The time limit is a cap, but there is a plan however short it is.
func TestTimeLimit(t *testing.T) {
	r := Request{Collective: schedule.AllToAll, Ranks: 64, Bytes: 32e6, Fabric: fabric(4, plans.Simplex), Options: planner.Options{TimeLimit: time.Nanosecond}}
	ch := choose(t, r)
	verify(t, r, ch)
	late := 0
	for _, a := range ch.Considered {
		if errors.Is(a.Err, ErrOutOfTime) {
			late++
		}
	}
	if late == 0 {
		t.Error("everything was considered in no time")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Choose(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDuplexServesEverything: duplex planes serve every step, those that are no involutions on several
// settings in turn.
func TestDuplexServesEverything(t *testing.T) {
	for name, c := range map[string]schedule.Collective{
		"pairwise": schedule.AllToAll, "bruck": schedule.AllToAll, "ring": schedule.AllReduce, "recursive-doubling": schedule.AllReduce,
	} {
		r := Request{Collective: c, Ranks: 8, Bytes: 1e6, Fabric: fabric(2, plans.Duplex), Algorithms: []string{name}, Options: counted(5 * time.Millisecond)}
		if ch, err := Choose(context.Background(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := check.Check(ch.Problem, ch.Plan); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChooseRefuses(t *testing.T) {
	good := Request{Collective: schedule.AllToAll, Ranks: 5, Bytes: 1e6, Fabric: fabric(1, plans.Duplex), Options: counted(time.Millisecond)}
	for name, c := range map[string]struct {
		edit func(r *Request)
		want error
		says string
	}{
		"collective": {func(r *Request) { r.Collective = schedule.NumCollectives }, ErrRequest, "collective"},
		"ranks":      {func(r *Request) { r.Ranks = 0 }, ErrRequest, "ranks"},
		"fabric":     {func(r *Request) { r.Fabric = nil }, ErrRequest, "fabric"},
		"planner":    {func(r *Request) { r.Planner = "magic" }, ErrRequest, "magic"},
		"algorithm":  {func(r *Request) { r.Algorithms = []string{"telepathy"} }, ErrRequest, "telepathy"},
		"no plan": {func(r *Request) {
			r.Algorithms, r.Planner = []string{"pairwise", "bruck"}, "static"
		}, planner.ErrInfeasible, "pairwise"},
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
		{[]*Choice{call(1, 2, 4), call(100, 20, 10)}, "b"}, // 100, 40, 40: among equals the better of the first
		{[]*Choice{call(1, 2, 4), call(100, 0, 10)}, "c"},
		{[]*Choice{call(1, 2), call(0, 0)}, ""},
	} {
		if got := Common(c.choices); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
