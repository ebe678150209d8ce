package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans/delta/check"
	"lightpath/plans/delta/dag"
	"lightpath/plans/delta/internal/deltatest"
)

// TestProgress: every event begins or ends a transfer, so a run has at most two events for each transfer. Some
// transfers are shorter than the distance between two doubles at the time when they run.
func TestProgress(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 10))
		g := deltatest.Random(rng, 60)
		stretch(rng, g)
		r := newRunner(t, g)
		rank := make([]float64, len(g.Tasks))
		transfers := 0
		for i := range rank {
			rank[i] = float64(rng.IntN(4))
			if g.Tasks[i].Transfer() {
				transfers++
			}
		}
		c := deltatest.Circuits(rng, g)
		for name, record := range map[string]func() *dag.Schedule{
			"fair":   func() *dag.Schedule { return r.Record(c, nil) },
			"ideal":  func() *dag.Schedule { return r.Record(nil, nil) },
			"ranked": func() *dag.Schedule { return r.Record(c, rank) },
		} {
			run := record()
			if r.events > 2*transfers {
				t.Fatalf("seed %d, %s: %d events for %d transfers", seed, name, r.events, transfers)
			}
			if err := check.Check(g, run); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, err)
			}
		}
	}
}

// stretch gives work 1 ns to 30 years, and transfers a byte to a gigabyte.
func stretch(rng *rand.Rand, g *dag.Graph) {
	for i := range g.Tasks {
		t := &g.Tasks[i]
		if t.Transfer() {
			t.Bytes = math.Pow(10, 9*rng.Float64())
		} else {
			t.Duration = math.Pow(10, 18*rng.Float64()-3)
		}
	}
}
