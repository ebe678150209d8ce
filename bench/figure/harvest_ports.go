package figure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/topology"
)

// harvestGrid is the coarser grid of the figures that need flows on several ports.
func harvestGrid(o Options) (delays, ms []float64) {
	if o.Quick {
		return []float64{1, 100}, []float64{64e3, 16e6}
	}
	return []float64{0.01, 0.1, 1, 10, 100, 1000, 10000}, sizes(0, 20, 4)
}

// speedups makes a figure of grids. Each trial has a row of three maps: over static, over BvN, and over the better of
// both.
func speedups(ctx context.Context, o Options, title string, ts []trial, effort time.Duration) (*Figure, error) {
	delays, ms := harvestGrid(o)
	grids, err := gridOf(ctx, o, ts, delays, ms, effort)
	if err != nil {
		return nil, err
	}
	f := &Figure{Columns: 3, Title: title}
	f.addRatios(ts, grids, delays, ms)
	for t := range ts {
		for b, base := range []string{"static", "bvn", "best"} {
			f.Panels = append(f.Panels, speedupMap(fmt.Sprintf("(%c) %s", 'a'+3*t+b, ts[t].name), &grids[t], base, delays, ms))
		}
	}
	f.Notes = append(f.Notes, "800 Gb/s per rank, divided over its ports; alpha = delta = 500 ns. The paper prints "+
		"no numbers for this figure.")
	return f, nil
}

// torusMaps returns the circuits of a torus with two ports in every dimension, one for each direction.
func torusMaps(dims ...int) ([]circuit.Permutation, error) {
	ones := slices.Repeat([]int{1}, len(dims))
	g, err := topology.Torus(dims, ones)
	return g.Maps, err
}

// harvest8 is Figure 8: Swing on all ports of 2-D and 3-D tori.
func harvest8(ctx context.Context, o Options) (*Figure, error) {
	shapes := [][]int{{8, 8}, {4, 4, 4}}
	if o.Quick {
		shapes = [][]int{{4, 4}}
	}
	var ts []trial
	for _, dims := range shapes {
		n, name := 1, ""
		for i, d := range dims {
			n *= d
			if i > 0 {
				name += "x"
			}
			name += fmt.Sprint(d)
		}
		maps, err := torusMaps(dims...)
		if err != nil {
			return nil, err
		}
		ts = append(ts, trial{"Swing " + name, call{schedule.AllReduce, "swing:" + name, "Swing"},
			HarvestFabric(n, len(maps)), maps})
	}
	return speedups(ctx, o, "HARVEST Fig. 8: multi-port Swing AllReduce on tori (static: the torus itself)", ts,
		harvestEffort)
}

// harvest9 is Figure 9: Bruck's algorithms and the trees.
func harvest9(ctx context.Context, o Options) (*Figure, error) {
	n := 64
	if o.Quick {
		n = 8
	}
	ring := []circuit.Permutation{circuit.Shift(n, 1)}
	kautz, err := topology.Kautz(n, 3)
	if err != nil {
		return nil, err
	}
	both := []circuit.Permutation{circuit.Shift(n, 1), circuit.Shift(n, -1)}
	ts := []trial{
		{"Bruck A2A, r = 4", call{schedule.AllToAll, "bruck:4", ""}, HarvestFabric(n, 3), kautz.Maps},
		{"Bruck AllGather", call{schedule.AllGather, "bruck", ""}, HarvestFabric(n, 1),
			[]circuit.Permutation{circuit.Shift(n, -1)}},
		{"Binomial broadcast", call{schedule.Broadcast, "binomial", ""}, HarvestFabric(n, 1), ring},
		{"Binary-tree broadcast", call{schedule.Broadcast, "binary-tree", ""}, HarvestFabric(n, 2), both},
	}
	f, err := speedups(ctx, o, fmt.Sprintf("HARVEST Fig. 9: Bruck's algorithms and broadcast trees, %d ranks", n), ts,
		harvestEffort/4)
	if err != nil {
		return nil, err
	}
	f.Notes = append(f.Notes, "Static is a generalized Kautz graph on 3 ports for Bruck's All-to-All of radix 4, "+
		"and rings for the others. A digit of radix 4 has three sends here; the paper counts four send/receive operations.")
	return f, nil
}

// harvest10 is Figure 10: All-to-All on more and more ports, compared with the generalized Kautz graph with optimal
// routes.
func harvest10(ctx context.Context, o Options) (*Figure, error) {
	n, ports := 64, []int{2, 4}
	if o.Quick {
		n, ports = 12, []int{2, 3}
	}
	var ts []trial
	for _, k := range ports {
		g, err := topology.Kautz(n, k)
		if err != nil {
			return nil, err
		}
		ts = append(ts, trial{fmt.Sprintf("A2A, %d ports", k), call{schedule.AllToAll, "pairwise", ""}, HarvestFabric(n, k),
			g.Maps})
	}
	f, err := speedups(ctx, o, fmt.Sprintf("HARVEST Fig. 10: All-to-All against a generalized Kautz graph with "+
		"maximum concurrent flow, %d ranks", n), ts, harvestEffort/20)
	if err != nil {
		return nil, err
	}
	f.Notes = append(f.Notes, "All-to-All is a pairwise exchange with one permutation per step. The static graph "+
		"serves each step by its own best flow.")
	return f, nil
}
