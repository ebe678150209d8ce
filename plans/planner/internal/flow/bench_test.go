package flow_test

import (
	"testing"

	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/flow"
	"lightpath/plans/planner/topology"
)

// BenchmarkConcurrent measures theta with routes: on tori, where symmetry leaves little to
// solve, and on Kautz graphs, where there is none. It reports the gap that is left.
func BenchmarkConcurrent(b *testing.B) {
	torus := func(dims ...int) topology.Graph {
		g, err := topology.Torus(dims, nil)
		return graph(b, g, err).Paired()
	}
	kautz := func(n, ports int) topology.Graph { g, err := topology.Kautz(n, ports); return graph(b, g, err) }
	for _, c := range []struct {
		name  string
		g     topology.Graph
		flows [][2]int
	}{
		{"torus/8x8/exchange", torus(8, 8), allToAll(64)},
		{"torus/4x4x4/exchange", torus(4, 4, 4), allToAll(64)},
		{"torus/16x16/shift", torus(16, 16), flowsOf(circuit.Shift(256, 3))},
		{"torus/16x16/exchange", torus(16, 16), allToAll(256)},
		{"kautz/64,2/shift", kautz(64, 2), flowsOf(circuit.Shift(64, 3))},
		{"kautz/64,4/shift", kautz(64, 4), flowsOf(circuit.Shift(64, 3))},
		{"kautz/64,6/shift", kautz(64, 6), flowsOf(circuit.Shift(64, 3))},
		{"kautz/64,4/exchange", kautz(64, 4), allToAll(64)},
		{"kautz/64,6/exchange", kautz(64, 6), allToAll(64)},
		{"kautz/256,4/shift", kautz(256, 4), flowsOf(circuit.Shift(256, 3))},
	} {
		b.Run(c.name, func(b *testing.B) {
			gap := 0.0
			for range b.N {
				r, err := flow.Concurrent(c.g.Maps, c.flows, flow.Options{})
				if err != nil {
					b.Fatal(err)
				}
				gap = r.Upper/r.Theta - 1
			}
			b.ReportMetric(gap, "gap")
		})
	}
}
