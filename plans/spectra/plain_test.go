package spectra_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/spectra"
)

// randomDemand is a matrix with empty, small and large entries.
func randomDemand(rng *rand.Rand, n int) [][]float64 {
	d := make([][]float64, n)
	for r := range d {
		d[r] = make([]float64, n)
		for s := range d[r] {
			switch rng.IntN(3) {
			case 1:
				d[r][s] = float64(rng.IntN(1000))
			case 2:
				d[r][s] = float64(rng.IntN(1000000))
			}
		}
	}
	return d
}

func feasible(t *testing.T, p *plans.Problem, plan *plans.Plan) {
	t.Helper()
	if _, err := check.Check(p, plan); err != nil {
		t.Fatalf("%s: %v", plan.Planner, err)
	}
}

// TestPlainAndFrom checks that plans in plain order, spread plans, and plans moved to the present maps, solve the
// problem on every kind of planes. Moved plans take no longer, and less if the planes already have the map of a hold.
func TestPlainAndFrom(t *testing.T) {
	for _, kind := range []plans.CircuitKind{plans.Simplex, plans.Duplex, plans.Interleaved} {
		t.Run(string(kind), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 9))
			for i := range 60 {
				n := 2 + rng.IntN(7)
				p := &plans.Problem{
					Version: plans.Version, Ranks: n, Planes: (1 + rng.IntN(3)) * kind.UnitPlanes(), BandwidthGbps: 10,
					ReconfigUS: float64(max(0, rng.IntN(100)-30)),
					Circuits:   kind, Demand: randomDemand(rng, n),
				}
				plain, err := spectra.Plain(p)
				require.NoError(t, err)
				feasible(t, p, plain)
				planned, err := spectra.Solve(context.Background(), p, spectra.Options{Mode: spectra.Fast})
				require.NoError(t, err)
				dark := make([]circuit.Permutation, p.Planes)
				for j := range dark {
					dark[j] = circuit.AllDark(n)
				}
				spread, settled, err := spectra.Spread(p)
				require.NoError(t, err)
				feasible(t, p, spread)
				if len(spread.Planes[0]) > 0 && !plans.SameUS(settled, spread.CCTUS-p.ReconfigUS) {
					t.Fatalf("%d: spread takes %v us, settled %v", i, spread.CCTUS, settled)
				}
				for _, plan := range []*plans.Plan{plain, planned, spread} {
					moved, cct := spectra.From(p, plan, dark)
					feasible(t, p, moved)
					if !plans.AtLeastUS(plan.CCTUS, cct) || !plans.SameUS(moved.CCTUS, cct) {
						t.Fatalf("%d: %s from the dark: %v us, %v from where it stands, planned were %v", i, plan.Planner, moved.CCTUS,
							cct, plan.CCTUS)
					}
					saved := !slices.ContainsFunc(moved.Planes, func(e []plans.Entry) bool { return len(e) == 0 })
					again, cct := spectra.From(p, moved, spectra.Left(moved, dark))
					feasible(t, p, again)
					if want := moved.CCTUS - p.ReconfigUS; saved && !plans.SameUS(cct, want) {
						t.Fatalf("%d: %s again: %v us, want %v", i, plan.Planner, cct, want)
					}
				}
			}
		})
	}
}

// TestPlainOrder: distances in their order, planes in turn.
func TestPlainOrder(t *testing.T) {
	d := [][]float64{{0, 1000, 2000, 0}, {0, 0, 3000, 0}, {0, 0, 0, 500}, {0, 0, 0, 0}}
	p := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10,
		Circuits: plans.Simplex, Demand: d}
	plan, err := spectra.Plain(p)
	require.NoError(t, err)
	var got string
	for j, entries := range plan.Planes {
		for _, e := range entries {
			if e.Kind == plans.Hold {
				got += fmt.Sprintf("plane %d: %v for %v us\n", j, e.To, e.EndUS-e.StartUS)
			}
		}
	}
	want := "plane 0: [1 2 3 -1] for 3 us\nplane 1: [2 -1 -1 -1] for 2 us\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestFrom: the hold that is there goes first, and circuits stay while their ports are free.
func TestFrom(t *testing.T) {
	d := [][]float64{{0, 1000, 1000, 0}, {1000, 0, 0, 0}, {0, 0, 0, 1000}, {0, 0, 1000, 0}}
	p := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 1, BandwidthGbps: 8, ReconfigUS: 10,
		Circuits: plans.Simplex, Demand: d}
	hold := func(to ...int) plans.Entry { return plans.Entry{Kind: plans.Hold, To: to, EndUS: 1} }
	plan := &plans.Plan{Planes: [][]plans.Entry{{hold(2, 0, 3, -1), hold(1, -1, -1, 2), hold(-1, -1, -1, 2)}}}
	got, cct := spectra.From(p, plan, []circuit.Permutation{{1, 3, 0, 2}})
	want := []circuit.Permutation{{1, 3, 0, 2}, {2, 0, 3, -1}}
	for i, e := range got.Planes[0] {
		if !e.To.Equal(want[i/2]) {
			t.Errorf("entry %d: %v, want %v", i, e.To, want[i/2])
		}
	}
	if cct != 13 || got.CCTUS != 23 {
		t.Errorf("%v us from there, %v from the dark", cct, got.CCTUS)
	}
	if _, cct = spectra.From(p, plan, []circuit.Permutation{{1, -1, -1, -1}}); cct != 23 {
		t.Errorf("%v us from one circuit of the first", cct)
	}
}

// TestStanding: the circuits of a pair share its demand; a pair without one has no plan.
func TestStanding(t *testing.T) {
	d := [][]float64{{0, 4000, 0, 1000}, {0, 0, 3000, 0}, {0, 0, 0, 0}, {0, 0, 1500, 0}}
	p := &plans.Problem{Version: plans.Version, Ranks: 4, Planes: 3, BandwidthGbps: 8, ReconfigUS: 10,
		Circuits: plans.Simplex, Demand: d}
	maps := []circuit.Permutation{{1, 2, 3, 0}, {1, 2, 3, 0}, {3, 0, -1, 2}}
	plan, us := spectra.Standing(p, maps)
	if us != 2 || plan.CCTUS != 12 {
		t.Errorf("%v us, %v from the dark", us, plan.CCTUS)
	}
	feasible(t, p, plan)
	d[0][2] = 1
	if plan, _ := spectra.Standing(p, maps); plan != nil {
		t.Error("0 has no circuit to 2")
	}
}

// BenchmarkPlanning is what a leader does while ranks wait: a dense uneven matrix, two planes.
func BenchmarkPlanning(b *testing.B) {
	for _, n := range []int{8, 16, 32, 64} {
		d := workload(n)
		p := &plans.Problem{Version: plans.Version, Ranks: n, Planes: 2, BandwidthGbps: 10, ReconfigUS: 50,
			Circuits: plans.Simplex, Demand: d}
		dark := []circuit.Permutation{circuit.AllDark(n), circuit.AllDark(n)}
		b.Run(fmt.Sprintf("plain/%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := spectra.Plain(p); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("fast/%d", n), func(b *testing.B) {
			for b.Loop() {
				plan, err := spectra.Solve(context.Background(), p, spectra.Options{Mode: spectra.Fast})
				require.NoError(b, err)
				spectra.From(p, plan, dark)
			}
		})
	}
}

// workload is a matrix whose entries are log-normal.
func workload(n int) [][]float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	d := make([][]float64, n)
	for r := range d {
		d[r] = make([]float64, n)
		for s := range d[r] {
			if r != s {
				d[r][s] = math.Round(1e5 * math.Exp(rng.NormFloat64()))
			}
		}
	}
	return d
}
