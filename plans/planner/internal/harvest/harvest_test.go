package harvest

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/baseline"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/offer"
	"lightpath/plans/planner/internal/plantest"
)

// TestHarvestEqualsIntervals: the shortest path is what trying every division into intervals
// and every state for each interval finds, which is Algorithm 1 spelled out. The times are
// those of each plane set alike, counted from the cost model.
func TestHarvestEqualsIntervals(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	for i := range 150 {
		p := plantest.RandomForwarding(rng)
		p.Planes, p.Initial = 1, p.Initial[:min(1, len(p.Initial))]
		if len(p.Initial) == 0 {
			p.Initial = nil
		}
		m, err := model.Compile(p)
		require.NoError(t, err)
		states := states(t.Context(), m, fills(m), 0)
		var best func(from int, current circuit.Permutation) float64
		best = func(from int, current circuit.Permutation) float64 {
			if from == len(p.Steps) {
				return 0
			}
			least := math.Inf(1)
			for _, s := range states {
				us := 0.0
				switch {
				case current == nil || current.Equal(s[0]):
				default:
					us = plans.ReconfigUS(p, current, s[0])
				}
				for to := from; to < len(p.Steps); to++ { // the interval from..to stays on s
					hops, load, err := plans.Load(s[0], p.Steps[to].FlowList())
					if err != nil {
						break
					}
					us += plans.TransmitUS(p, hops, load, p.Steps[to].Bytes)
					least = math.Min(least, us+best(to+1, s[0]))
				}
			}
			return least
		}
		var start circuit.Permutation
		if p.Initial != nil {
			start = p.Initial[0]
		}
		want := best(0, start)
		plan, err := Solve(context.Background(), m, effort.Search{Effort: 2 * time.Second})
		require.NoError(t, err)
		if !plans.SameUS(plan.CCTUS, want) {
			t.Fatalf("problem %d: %v us, intervals %v", i, plan.CCTUS, want)
		}
	}
}

// TestLateRatherThanWrong: what only planes together can serve is found without any effort.
func TestLateRatherThanWrong(t *testing.T) {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 6, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10, HopUS: 1, Circuits: plans.Duplex,
		Forwarding: true,
		Steps:      []plans.Step{{Bytes: 1e3, To: circuit.Shift(6, 1)}},
	}
	m, err := model.Compile(p)
	require.NoError(t, err)
	o := effort.Search{}
	type solver func(context.Context, *model.Model, effort.Search) (*plans.Plan, error)
	for _, solve := range []solver{Solve, baseline.Static} {
		plan, err := solve(t.Context(), m, o)
		if err != nil || !plans.SameUS(plan.CCTUS, 2) {
			t.Errorf("%v, %v; want 2 us", plan, err)
		}
	}
	o.SinglePlane = true
	if _, err := Solve(context.Background(), m, o); err != nil {
		t.Errorf("flows on planes of their own: %v", err)
	}
}

// TestOutOfWork: without any effort there still is a plan, and it is no worse than static's.
func TestOutOfWork(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	for i := range 40 {
		p := plantest.RandomForwarding(rng)
		p.Planes, p.Initial = 3, nil
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e4, Flows: plantest.AllToAll(p.Ranks)})
		m, err := model.Compile(p)
		require.NoError(t, err)
		o := effort.Search{}
		harvest, err := Solve(context.Background(), m, o)
		require.NoError(t, err)
		static, err := baseline.Static(context.Background(), m, o)
		require.NoError(t, err)
		if harvest.CCTUS > static.CCTUS+model.Tolerance(static.CCTUS) {
			t.Fatalf("problem %d: harvest %v, static %v", i, harvest.CCTUS, static.CCTUS)
		}
	}
}

// TestSwitchTakesAsLongAsItsSlowestPlane: planes switch at the same time, so their times are not added.
func TestSwitchTakesAsLongAsItsSlowestPlane(t *testing.T) {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 4, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10, ReconfigPerPort: 2,
		Circuits: plans.Simplex, Steps: []plans.Step{{Bytes: 1e3, To: circuit.Shift(4, 1)}},
	}
	m, err := model.Compile(p)
	require.NoError(t, err)
	part := circuit.Permutation{2, circuit.Dark, circuit.Dark, circuit.Dark}
	h := &harvest{m: m, Table: &offer.Table{States: [][]circuit.Permutation{
		{circuit.Shift(4, 1), circuit.Shift(4, 1)},
		{circuit.Shift(4, 1), circuit.Shift(4, 2)},
		{circuit.Shift(4, 2), part},
	}}}
	whole := plans.ReconfigUS(p, circuit.Shift(4, 1), circuit.Shift(4, 2))
	for c, want := range []float64{0, whole, whole} {
		if us := h.switchUS(0, c); us != want {
			t.Errorf("from state 0 to %d: %v us, want %v", c, us, want)
		}
	}
}

// TestShortestPathChoosesPieces: two pieces that take 7 us beat the whole step, which takes 10 us and comes first.
func TestShortestPathChoosesPieces(t *testing.T) {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 2, Planes: 1, BandwidthGbps: 8, Circuits: plans.Simplex,
		Steps: []plans.Step{{Bytes: 1e3, To: circuit.Shift(2, 1)}},
	}
	m, err := model.Compile(p)
	require.NoError(t, err)
	tab := &offer.Table{States: [][]circuit.Permutation{{circuit.Shift(2, 1)}}, Pieces: []offer.Piece{
		{From: 0, To: 2, Kind: 0, Last: true}, {From: 0, To: 1, Kind: 1}, {From: 1, To: 2, Kind: 2, Last: true},
	}}
	path := (&harvest{m: m, Table: tab, positions: 2}).shortest([][]float64{{10}, {3}, {4}})
	if len(path) != 2 || path[0].piece.Kind != 1 || path[1].piece.Kind != 2 {
		t.Errorf("path %v", path)
	}
}
