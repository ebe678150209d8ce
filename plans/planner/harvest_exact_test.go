package planner

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

func testOptions(single bool) Options {
	return Options{Effort: 2 * time.Second, SinglePlane: single}
}

// randomForwarding is a small problem of steps that are patterns, on a fabric that forwards.
func randomForwarding(rng *rand.Rand) *plans.Problem {
	n := 3 + rng.IntN(3)
	p := &plans.Problem{
		Version: plans.Version, Ranks: n, Planes: 1 + rng.IntN(2), BandwidthGbps: 8, Circuits: plans.Simplex,
		AlphaUS: float64(rng.IntN(3)), HopUS: float64(rng.IntN(4)), ReconfigUS: float64(1 + rng.IntN(60)), Forwarding: true,
	}
	if rng.IntN(3) == 0 {
		p.ReconfigPerPort = 2
	}
	for range 1 + rng.IntN(4) {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e3 * float64(1+rng.IntN(40)), To: circuit.Shift(n, 1+rng.IntN(n-1))})
	}
	if rng.IntN(2) == 0 {
		for range p.Planes {
			p.Initial = append(p.Initial, circuit.Shift(n, 1+rng.IntN(n-1)))
		}
	}
	return p
}

// TestHarvestEqualsIntervals: the shortest path is what trying every division into intervals
// and every state for each interval finds, which is Algorithm 1 spelled out. The times are
// those of each plane set alike, counted from the cost model.
func TestHarvestEqualsIntervals(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	for i := range 150 {
		p := randomForwarding(rng)
		p.Planes, p.Initial = 1, p.Initial[:min(1, len(p.Initial))]
		if len(p.Initial) == 0 {
			p.Initial = nil
		}
		m, err := compile(p)
		require.NoError(t, err)
		states := m.harvestStates(t.Context(), m.fills(), 0)
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
		plan, err := solveHarvest(context.Background(), m, testOptions(false))
		require.NoError(t, err)
		if !plans.SameUS(plan.CCTUS, want) {
			t.Fatalf("problem %d: %v us, intervals %v", i, plan.CCTUS, want)
		}
	}
}

// TestTableBracketsTimes: a floor is never above a time that is attained, and searches bring
// them together.
func TestTableBracketsTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	opened := 0
	for i := range 60 {
		p := randomForwarding(rng)
		p.Planes, p.Initial = 2+rng.IntN(2), nil
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e4, Flows: allToAll(p.Ranks)})
		m, err := compile(p)
		require.NoError(t, err)
		single := i%4 == 0
		pieces, _ := m.pieces(nil)
		tab := newTable(context.Background(), testOptions(single), newServer(m, testOptions(single)), pieces,
			m.harvestStates(t.Context(), m.fills(), 0))
		for k := range tab.kinds {
			for c := range tab.states {
				for tab.isOpen(k, c) {
					floor := tab.floor[k][c]
					tab.refine(k, c)
					opened++
					if tab.floor[k][c] < floor-tolerance(floor) {
						t.Fatalf("problem %d: a floor of %v fell to %v", i, floor, tab.floor[k][c])
					}
					if tab.us[k][c] < tab.floor[k][c]-tolerance(floor) {
						t.Fatalf("problem %d: %v us below the floor %v", i, tab.us[k][c], tab.floor[k][c])
					}
				}
			}
		}
	}
	if opened == 0 {
		t.Error("nothing was open")
	}
}

// TestLateRatherThanWrong: what only planes together can serve is found without any effort.
func TestLateRatherThanWrong(t *testing.T) {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 6, Planes: 2, BandwidthGbps: 8, ReconfigUS: 10, HopUS: 1, Circuits: plans.Duplex,
		Forwarding: true,
		Steps:      []plans.Step{{Bytes: 1e3, To: circuit.Shift(6, 1)}},
	}
	m, err := compile(p)
	require.NoError(t, err)
	o := testOptions(false)
	o.Effort = 0
	for _, solve := range []solver{solveHarvest, solveStatic} {
		plan, err := solve(context.Background(), m, o)
		if err != nil || !plans.SameUS(plan.CCTUS, 2) {
			t.Errorf("%v, %v; want 2 us", plan, err)
		}
	}
	o.SinglePlane = true
	if _, err := solveHarvest(context.Background(), m, o); err != nil {
		t.Errorf("flows on planes of their own: %v", err)
	}
}

// TestOutOfWork: without any effort there still is a plan, and it is no worse than static's.
func TestOutOfWork(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 1))
	for i := range 40 {
		p := randomForwarding(rng)
		p.Planes, p.Initial = 3, nil
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e4, Flows: allToAll(p.Ranks)})
		m, err := compile(p)
		require.NoError(t, err)
		o := testOptions(false)
		o.Effort = 0
		harvest, err := solveHarvest(context.Background(), m, o)
		require.NoError(t, err)
		static, err := solveStatic(context.Background(), m, o)
		require.NoError(t, err)
		if harvest.CCTUS > static.CCTUS+tolerance(static.CCTUS) {
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
	m, err := compile(p)
	require.NoError(t, err)
	part := circuit.Permutation{2, circuit.Dark, circuit.Dark, circuit.Dark}
	h := &harvest{table: &table{m: m, states: [][]circuit.Permutation{
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
	m, err := compile(p)
	require.NoError(t, err)
	tab := &table{m: m, states: [][]circuit.Permutation{{circuit.Shift(2, 1)}}, pieces: []piece{
		{from: 0, to: 2, kind: 0, last: true}, {from: 0, to: 1, kind: 1}, {from: 1, to: 2, kind: 2, last: true},
	}}
	path := (&harvest{table: tab, positions: 2}).shortest([][]float64{{10}, {3}, {4}})
	if len(path) != 2 || path[0].piece.kind != 1 || path[1].piece.kind != 2 {
		t.Errorf("path %v", path)
	}
}
