package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
)

// TestReduce: on any topology and with any ranks, transfers of the reduced graph run as they did.
func TestReduce(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 9))
		g := deltatest.Random(rng, 60)
		small := dag.Reduce(g)
		if err := small.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(small.Deps) > len(g.Deps)+2*len(g.Tasks) || len(small.Tasks) > len(g.Tasks)+2 {
			t.Fatalf("seed %d: %d tasks and %d edges became %d and %d", seed, len(g.Tasks), len(g.Deps), len(small.Tasks),
				len(small.Deps))
		}
		rank, smallRank := make([]float64, len(g.Tasks)), make([]float64, len(small.Tasks))
		for i := range rank {
			rank[i] = float64(rng.IntN(3))
		}
		for k, i := range small.Origin {
			if i >= 0 {
				smallRank[k] = rank[i]
			}
		}
		c := deltatest.Circuits(rng, g)
		a, b := newRunner(t, g), newRunner(t, small.Graph)
		for _, ranks := range [][2][]float64{{nil, nil}, {rank, smallRank}} {
			whole, part := a.Record(c, ranks[0]), b.Record(c, ranks[1])
			if math.Abs(whole.Makespan-part.Makespan) > 1e-6 {
				t.Fatalf("seed %d: makespan %v, reduced %v", seed, whole.Makespan, part.Makespan)
			}
			for k, i := range small.Origin {
				if i < 0 || !g.Tasks[i].Transfer() {
					continue
				}
				if math.Abs(whole.Spans[i].Start-part.Spans[k].Start)+math.Abs(whole.Spans[i].End-part.Spans[k].End) > 1e-6 {
					t.Fatalf("seed %d: transfer %d runs %v, reduced %v", seed, i, whole.Spans[i], part.Spans[k])
				}
			}
		}
	}
}
