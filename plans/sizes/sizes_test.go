package sizes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/internal/planstest"
	"lightpath/plans/planner"
)

// grown is p with every step's bytes multiplied.
func grown(p *plans.Problem, factor float64) *plans.Problem {
	q := *p
	q.Steps = append([]plans.Step(nil), p.Steps...)
	for i := range q.Steps {
		q.Steps[i].Bytes *= factor
	}
	return &q
}

// halving is halving and doubling on 2^bits ranks: steps xor 1, 2, ... and back, of a call of
// so many bytes.
func halving(bits, planes int, bytes float64) *plans.Problem {
	p := &plans.Problem{
		Version: 1, Ranks: 1 << bits, Planes: planes, BandwidthGbps: 800 / float64(planes), AlphaUS: 20, ReconfigUS: 200,
		Circuits: plans.Simplex,
	}
	for i := range 2 * bits {
		k := min(i, 2*bits-1-i)
		p.Steps = append(p.Steps, plans.Step{Bytes: bytes / float64(int(2)<<k), To: circuit.Xor(1<<bits, 1<<k)})
	}
	return p
}

// Fig. 5 of SWOT: on its own problem the fitted plan is the paper's; the pattern divided evenly
// becomes it; and at other sizes the fit is what the timing allows.
func TestFitFig5(t *testing.T) {
	p, plan := planstest.Load(t, "swot-fig5")
	again, err := Fit(Sized{p, plan}, p)
	if err != nil || !plans.SameUS(again.CCTUS, 1200) {
		t.Fatalf("%v, %v", again, err)
	}
	// Spoil the division: 10 MB on both planes, then let the program divide.
	spoilt := *plan
	spoilt.Planes = [][]plans.Entry{append([]plans.Entry(nil), plan.Planes[0]...),
		append([]plans.Entry(nil), plan.Planes[1]...)}
	for j := range spoilt.Planes {
		for i := range spoilt.Planes[j] {
			if e := &spoilt.Planes[j][i]; e.Kind == plans.Transmit && (e.Step == 0 || e.Step == 5) {
				e.Bytes = 10e6
			}
		}
	}
	scaled, err := scale(Sized{p, &spoilt}, p)
	if err != nil || plans.SameUS(scaled.CCTUS, 1200) {
		t.Fatalf("the even division takes %v us, %v", scaled.CCTUS, err)
	}
	fitted, err := Fit(Sized{p, &spoilt}, p)
	if err != nil || !plans.SameUS(fitted.CCTUS, 1200) {
		t.Fatalf("fitted: %v, %v", fitted, err)
	}
	// At twice the size the proportional division has plane 1 leave step 0 400 us before its end,
	// although 200 us are enough to switch.
	big := grown(p, 2)
	prop, err := scale(Sized{p, plan}, big)
	require.NoError(t, err)
	best, err := Fit(Sized{p, plan}, big)
	if err != nil || best.CCTUS > prop.CCTUS-1 {
		t.Fatalf("fit %v us, proportional %v us, %v", best.CCTUS, prop.CCTUS, err)
	}
}

// randomProblem draws steps over shifts, with forwarding and interleaved planes now and then.
func randomProblem(rng *rand.Rand) *plans.Problem {
	n := 4 + 2*rng.IntN(4)
	p := &plans.Problem{
		Version: 1, Ranks: n, Planes: 1 + rng.IntN(4), BandwidthGbps: 400, AlphaUS: float64(rng.IntN(3)) * 5, HopUS: .5,
		ReconfigUS: 20 + float64(rng.IntN(200)), Forwarding: rng.IntN(2) == 0, Circuits: plans.Simplex,
	}
	if rng.IntN(3) == 0 {
		p.Circuits, p.Planes = plans.Interleaved, 2*p.Planes
	}
	if rng.IntN(3) == 0 {
		p.ReconfigPerPort = 1
	}
	if rng.IntN(3) == 0 {
		p.Final.Kind = plans.FinalInitial
	}
	for range 2 + rng.IntN(5) {
		p.Steps = append(p.Steps, plans.Step{Bytes: float64(1 + rng.IntN(20e6)), To: circuit.Shift(n, 1+rng.IntN(3))})
	}
	return p
}

// Whatever a planner makes can be resized: feasible, never slower than in proportion, and between
// two fits of one pattern no slower than the interpolation says.
func TestFitsAndSpans(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	for range 60 {
		p := randomProblem(rng)
		name := []string{"static", "perstep", "harvest", "swot"}[rng.IntN(4)]
		plan, err := planner.Solve(context.Background(), name, p, planner.Options{TimeLimit: 20 * time.Millisecond})
		if errors.Is(err, planner.ErrInfeasible) {
			continue
		}
		require.NoError(t, err)
		s := Sized{p, plan}
		ratio := 1 + 9*rng.Float64()
		big := grown(p, ratio)
		high, err := Fit(s, big)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		low, err := Fit(s, p)
		if err != nil || low.CCTUS > plan.CCTUS+plans.Tolerance(low.CCTUS, plan.CCTUS) {
			t.Fatalf("%s: fit %v us, plan %v us: %v", name, low.CCTUS, plan.CCTUS, err)
		}
		low.LowerBoundUS = plan.LowerBoundUS
		const unit = 1 << 20
		span := &Span{Min: unit, Max: int64(ratio * unit), Low: Sized{p, low},
			High: Sized{grown(p, float64(int64(ratio*unit))/unit), high}}
		if span.High.Plan, err = Fit(s, span.High.Problem); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			bytes := span.Min + rng.Int64N(span.Max-span.Min+1)
			q := grown(p, float64(bytes)/unit)
			got, err := span.At(bytes, q)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := check.Check(q, got); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			slack := (p.AlphaUS + p.HopUS*float64(p.Ranks)) * float64(len(p.Steps)) // entries that are empty at one end
			if want := span.cctUS(bytes); got.CCTUS > want+slack+1e-6*want {
				t.Errorf("%s: %v us, the span says %v", name, got.CCTUS, want)
			}
			if got.LowerBoundUS > got.CCTUS {
				t.Errorf("bound %v above %v", got.LowerBoundUS, got.CCTUS)
			}
		}
	}
}

// TestFitAgainstGrid: Fit is as good as the best division of the bytes of each step over two planes on a grid.
func TestFitAgainstGrid(t *testing.T) {
	p := &plans.Problem{
		Version: 1, Ranks: 4, Planes: 2, BandwidthGbps: 8, AlphaUS: 3, ReconfigUS: 100, Circuits: plans.Simplex,
		Initial: []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 1)},
		Steps:   []plans.Step{{Bytes: 200e3, To: circuit.Shift(4, 1)}, {Bytes: 100e3, To: circuit.Shift(4, 2)}},
	}
	pattern := func(x, y float64) *plans.Plan {
		plane := func(a, b float64) []plans.Entry {
			return []plans.Entry{{Kind: plans.Transmit, Step: 0, Bytes: a}, {Kind: plans.Reconfigure, To: circuit.Shift(4, 2)},
				{Kind: plans.Transmit, Step: 1, Bytes: b}}
		}
		return &plans.Plan{Version: 1, Initial: p.Initial, Planes: [][]plans.Entry{plane(x, y), plane(200e3-x, 100e3-y)}}
	}
	best := math.Inf(1)
	for i := 1; i < 100; i++ {
		for k := 1; k < 100; k++ {
			plan, err := retime(p, pattern(2e3*float64(i), 1e3*float64(k)))
			require.NoError(t, err)
			best = math.Min(best, plan.CCTUS)
		}
	}
	even := pattern(100e3, 50e3)
	fitted, err := Fit(Sized{p, even}, p)
	if err != nil || fitted.CCTUS > best+1e-6 || fitted.CCTUS < best-5 {
		t.Fatalf("fit %v us, grid %v us: %v", fitted.CCTUS, best, err)
	}
}

func TestScaleRefuses(t *testing.T) {
	p, plan := planstest.Load(t, "swot-fig5")
	for name, change := range map[string]func(q *plans.Problem){
		"steps":  func(q *plans.Problem) { q.Steps = q.Steps[1:] },
		"planes": func(q *plans.Problem) { q.Planes = 3 },
		"empty":  func(q *plans.Problem) { q.Steps[2].Bytes = 0 },
		"flows":  func(q *plans.Problem) { q.Steps[0].To = circuit.Xor(8, 7) },
		"demand": func(q *plans.Problem) { q.Demand = [][]float64{} },
	} {
		q := grown(p, 1)
		change(q)
		if got, err := Fit(Sized{p, plan}, q); got != nil || !errors.Is(err, ErrPattern) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dp, dplan := planstest.Load(t, "demand")
	if _, err := Fit(Sized{dp, dplan}, dp); !errors.Is(err, ErrPattern) {
		t.Errorf("demand: %v", err)
	}
	jp, jplan := planstest.Load(t, "joint")
	for _, f := range []float64{.5, 1, 7} {
		if got, err := Fit(Sized{jp, jplan}, grown(jp, f)); err != nil {
			t.Errorf("joint: %v, %v", got, err)
		}
	}
}

// TestEmptyRoute: a route that carries nothing costs no hops.
func TestEmptyRoute(t *testing.T) {
	p, plan := planstest.Load(t, "joint")
	want, err := newGraph(p, plan)
	require.NoError(t, err)
	routes := &plan.Planes[0][0].Routes
	*routes = append(*routes, plans.Route{Flow: (*routes)[0].Flow, Path: make([][2]int, 9)})
	got, err := newGraph(p, plan)
	require.NoError(t, err)
	if got.nodes[0].fixed != want.nodes[0].fixed {
		t.Errorf("%v us before the first byte, want %v", got.nodes[0].fixed, want.nodes[0].fixed)
	}
}

func survey(planner func(ctx context.Context, p *plans.Problem) (*plans.Plan, error)) *Survey {
	return &Survey{
		Pose:  func(bytes int64) (*plans.Problem, error) { return halving(4, 4, float64(bytes)), nil },
		Solve: planner,
	}
}

func swot(ctx context.Context, p *plans.Problem) (*plans.Plan, error) {
	return planner.Solve(ctx, "swot", p, planner.Options{TimeLimit: time.Minute, Effort: 10 * time.Millisecond})
}

// A survey of four decades plans few sizes; every size then has a plan within tolerance of one
// made anew.
func TestSurvey(t *testing.T) {
	s := survey(swot)
	const lo, hi = 64 << 10, 1 << 30
	ladder, err := s.Cover(context.Background(), lo, hi, 60)
	require.NoError(t, err)
	t.Logf("%d spans from %d plannings", len(ladder), s.Plannings)
	rng := rand.New(rand.NewPCG(1, 1))
	covered, worst := 0, 0.0
	const tries = 40
	for range tries {
		bytes := int64(lo * math.Pow(float64(hi/lo), rng.Float64()))
		span := ladder.Find(bytes)
		if span == nil {
			continue
		}
		covered++
		p, _ := s.Pose(bytes)
		got, err := span.At(bytes, p)
		require.NoError(t, err)
		anew, err := swot(context.Background(), p)
		require.NoError(t, err)
		worst = math.Max(worst, got.CCTUS/anew.CCTUS-1)
		if got.LowerBoundUS > anew.CCTUS+plans.Tolerance(anew.CCTUS, anew.CCTUS) {
			t.Errorf("%d bytes: bound %v us, but a plan takes %v us", bytes, got.LowerBoundUS, anew.CCTUS)
		}
	}
	t.Logf("%d of %d sizes covered, at most %.2f %% over a plan of their own", covered, tries, 100*worst)
	if covered < tries*9/10 || worst > 3*defaultTolerance || s.Plannings > 40 {
		t.Errorf("%d of %d covered, worst %v, %d plannings", covered, tries, worst, s.Plannings)
	}
	again := survey(swot)
	if second, err := again.Cover(context.Background(), lo, hi, 60); err != nil ||
		fmt.Sprint(bounds(second)) != fmt.Sprint(bounds(ladder)) {
		t.Errorf("another survey finds %v, %v", bounds(second), err)
	}
}

func bounds(l Ladder) (out [][2]int64) {
	for _, s := range l {
		out = append(out, [2]int64{s.Min, s.Max})
	}
	return out
}

// Where costs are affine, as those of the baselines are, the method finds the exact breakpoint.
func TestSurveyOfAffineCosts(t *testing.T) {
	best := func(ctx context.Context, p *plans.Problem) (*plans.Plan, error) {
		var best *plans.Plan
		for _, name := range []string{"static", "perstep"} {
			if plan, err := planner.Solve(ctx, name, p, planner.Options{}); err == nil &&
				(best == nil || plan.CCTUS < best.CCTUS) {
				best = plan
			}
		}
		return best, nil
	}
	ring := func(bytes int64) (*plans.Problem, error) {
		p := &plans.Problem{Version: 1, Ranks: 8, Planes: 1, BandwidthGbps: 8, ReconfigUS: 100, Forwarding: true,
			Circuits: plans.Simplex}
		for _, d := range []int{1, 2} {
			p.Steps = append(p.Steps, plans.Step{Bytes: float64(bytes), To: circuit.Shift(8, d)})
		}
		return p, nil
	}
	s := &Survey{Pose: ring, Solve: best}
	ladder, err := s.Cover(context.Background(), 1000, 1e7, 10)
	require.NoError(t, err)
	// Static: b + 2b us per kB at 1 us/kB; perstep 2b + 100: they meet at 100 kB.
	var at int64
	for _, span := range ladder {
		if span.Low.Plan.Planner == "static" {
			at = max(at, span.Max)
		}
	}
	if at != 100e3 || s.Plannings > 9 || len(ladder) < 2 {
		t.Errorf("breakpoint %d, %d plannings, spans %v", at, s.Plannings, bounds(ladder))
	}
}

func TestLadder(t *testing.T) {
	span := func(a, b int64) *Span { return &Span{Min: a, Max: b} }
	var l Ladder
	for _, s := range []*Span{span(10, 10), span(5, 6), span(20, 40), span(40, 80), span(8, 12), span(100, 100)} {
		l = l.With(s)
	}
	if fmt.Sprint(bounds(l)) != "[[5 6] [8 12] [20 40] [40 80] [100 100]]" {
		t.Fatal(bounds(l))
	}
	for bytes, want := range map[int64]int64{4: 0, 5: 5, 7: 0, 8: 8, 12: 8, 13: 0, 39: 20, 40: 40, 41: 40, 80: 40, 99: 0,
		100: 100, 101: 0} {
		got := l.Find(bytes)
		if (got == nil) != (want == 0) || got != nil && got.Min != want {
			t.Errorf("%d: %+v, want %d", bytes, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { l.Find(30) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReach(t *testing.T) {
	s := survey(swot)
	for _, bytes := range []int64{100, 700} {
		problem, _ := s.Pose(bytes)
		s.Known(Point(bytes, problem, &plans.Plan{}))
	}
	for bytes, want := range map[int64][2]int64{1: {1, 8}, 99: {12, 100}, 200: {100, 700}, 5000: {700, 40000},
		80000: {10000, 640000}, math.MaxInt64: {math.MaxInt64 / 8, math.MaxInt64}} {
		if lo, hi := s.Reach(bytes, 8); lo != want[0] || hi != want[1] {
			t.Errorf("%d: %d..%d, want %v", bytes, lo, hi, want)
		}
	}
}

// The first call of a size pays for its plan's bytes, once; a survey pays for many fits.
func BenchmarkResize(b *testing.B) {
	for _, c := range []struct {
		name         string
		bits, planes int
	}{{"8x2", 3, 2}, {"64x4", 6, 4}, {"512x4", 9, 4}} {
		p := halving(c.bits, c.planes, 32e6)
		plan, err := swot(b.Context(), p)
		require.NoError(b, err)
		s := Sized{p, plan}
		big := grown(p, 4)
		high, err := Fit(s, big)
		require.NoError(b, err)
		span := &Span{Min: 32e6, Max: 128e6, Low: s, High: Sized{big, high}}
		mid := grown(p, 2)
		b.Run("at/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := span.At(64e6, mid); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("fit/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Fit(s, mid); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
