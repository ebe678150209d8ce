package spectra_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/sim"
	"lightpath/plans/spectra"
)

// solve plans p, and fails unless checker and simulator agree with the plan.
func solve(t *testing.T, p *plans.Problem, o spectra.Options) *plans.Plan {
	t.Helper()
	plan, err := spectra.Solve(context.Background(), p, o)
	require.NoError(t, err)
	report, err := check.Check(p, plan)
	if err != nil {
		t.Fatalf("%d ranks, %d %s planes, mode %d: %v", p.Ranks, p.Planes, p.Circuits, o.Mode, err)
	}
	run, err := sim.Run(p, plan)
	require.NoError(t, err)
	if !plans.SameUS(report.CCTUS, plan.CCTUS) || !plans.SameUS(run.CCTUS, plan.CCTUS) {
		t.Fatalf("plan says %v us, the checker %v, the simulator %v", plan.CCTUS, report.CCTUS, run.CCTUS)
	}
	if plan.BoundProof == "" {
		t.Fatal("the bound has no proof")
	}
	return plan
}

func random(rng *rand.Rand) *plans.Problem {
	n := 1 + rng.IntN(9)
	p := &plans.Problem{
		Version: 1, Ranks: n, Planes: 1 + rng.IntN(5), BandwidthGbps: 1 + rng.Float64()*400,
		ReconfigUS: []float64{0, 0.1, 5, 200}[rng.IntN(4)], Circuits: plans.Simplex,
		Demand: make([][]float64, n),
	}
	if rng.IntN(3) == 0 {
		p.ReconfigPerPort = rng.Float64() * 5
	}
	switch rng.IntN(3) {
	case 0:
		p.Circuits = plans.Duplex
	case 1:
		p.Circuits, p.Planes = plans.Interleaved, 2*p.Planes
	}
	density, alike := rng.Float64(), rng.IntN(2) == 0
	for r := range p.Demand {
		p.Demand[r] = make([]float64, n)
		for s := range p.Demand[r] {
			if rng.Float64() < density {
				p.Demand[r][s] = math.Exp(6*rng.NormFloat64()) * 1e3
				if alike { // a few sizes and noise: where the bounds are close
					p.Demand[r][s] = []float64{1e6, 3e5, 5e4}[rng.IntN(3)] * (1 + 0.1*rng.Float64())
				}
			}
		}
	}
	return p
}

func TestRandomDemands(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		p := random(rng)
		faithful := solve(t, p, spectra.Options{Mode: spectra.Faithful})
		fast := solve(t, p, spectra.Options{Mode: spectra.Fast})
		anytime := solve(t, p, spectra.Options{Work: 2e5})
		if p.ReconfigPerPort > 0 {
			continue // the order of holds, chosen last, decides what changes cost
		}
		if fast.CCTUS > faithful.CCTUS*(1+1e-9)+1e-6 || anytime.CCTUS > fast.CCTUS*(1+1e-9)+1e-6 {
			t.Fatalf("faithful %v, fast %v, anytime %v us", faithful.CCTUS, fast.CCTUS, anytime.CCTUS)
		}
	}
}

func TestRepeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 12))
	for range 10 {
		p := random(rng)
		o := spectra.Options{Work: 3e5, Seed: 7}
		if !reflect.DeepEqual(solve(t, p, o), solve(t, p, o)) {
			t.Fatal("two runs with one seed differ")
		}
	}
}

func TestEdges(t *testing.T) {
	zero := &plans.Problem{Version: 1, Ranks: 3, Planes: 2, BandwidthGbps: 1, ReconfigUS: 5, Circuits: plans.Simplex,
		Demand: [][]float64{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}}
	if plan := solve(t, zero, spectra.Options{}); plan.CCTUS != 0 || plan.LowerBoundUS != 0 ||
		len(plan.Planes[0])+len(plan.Planes[1]) != 0 {
		t.Errorf("nothing takes %v us", plan.CCTUS)
	}
	self := *zero
	self.Demand = [][]float64{{1000, 0, 0}, {0, 0, 0}, {0, 0, 0}}
	if plan := solve(t, &self, spectra.Options{}); plan.CCTUS != 9 { // 8 us, a half on each plane
		t.Errorf("one entry takes %v us, want 9", plan.CCTUS)
	}
	for _, kind := range []plans.CircuitKind{plans.Simplex, plans.Duplex, plans.Interleaved} {
		tiny := *zero
		tiny.Circuits = kind
		tiny.Demand = [][]float64{{0, 1e-300, 1e9}, {1e-12, 0, 0}, {3, 5e-324, 0}}
		solve(t, &tiny, spectra.Options{Work: 1e5})
		huge := *zero
		huge.Circuits = kind
		huge.Demand = [][]float64{{0, 1e308, 1e308}, {1e308, 0, 0}, {3, 5e-324, 0}}
		for _, rate := range []float64{1e-3, 1e100} {
			huge.BandwidthGbps = rate
			_, err := spectra.Solve(context.Background(), &huge, spectra.Options{})
			if !errors.Is(err, spectra.ErrTooLong) {
				t.Errorf("a demand that takes too long at %v Gb/s: %v", rate, err)
			}
		}
	}
	steps := *zero
	steps.Demand = nil
	if _, err := spectra.Solve(context.Background(), &steps, spectra.Options{}); !errors.Is(err, spectra.ErrNoDemand) {
		t.Errorf("steps: %v", err)
	}
	broken := *zero
	broken.Demand = zero.Demand[:2]
	if _, err := spectra.Solve(context.Background(), &broken, spectra.Options{}); !errors.Is(err, plans.ErrProblem) {
		t.Errorf("two rows of three: %v", err)
	}
}

// TestStops: a search that may not begin still plans.
func TestStops(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 12))
	for range 20 {
		p := random(rng)
		solve(t, p, spectra.Options{TimeLimit: 1})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := spectra.Solve(ctx, p, spectra.Options{TimeLimit: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBoundMonotone: more planes or bandwidth and less delay never raise the bound.
func TestBoundMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 12))
	for range 100 {
		p := random(rng)
		b := solve(t, p, spectra.Options{Work: 1e4}).LowerBoundUS
		for _, easier := range []func(*plans.Problem){
			func(q *plans.Problem) { q.Planes *= 2 },
			func(q *plans.Problem) { q.BandwidthGbps *= 2 },
			func(q *plans.Problem) { q.ReconfigUS /= 2 },
			func(q *plans.Problem) { q.ReconfigPerPort /= 2 },
		} {
			q := *p
			easier(&q)
			if c := solve(t, &q, spectra.Options{Work: 1e4}).LowerBoundUS; c > b*(1+1e-7)+1e-6 {
				t.Fatalf("bound %v us, of an easier problem %v", b, c)
			}
		}
	}
}
