package planner

import (
	"math"
	"math/rand/v2"
	"testing"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

func testFabric(reconfig float64) *plans.Problem {
	return &plans.Problem{Version: 1, Ranks: 2, Planes: 1, BandwidthGbps: 8e-3, ReconfigUS: reconfig,
		Circuits: plans.Simplex}
}

// TestSplit checks the water level against its definition.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		lanes := make([]lane, 1+rng.IntN(6))
		for j := range lanes {
			lanes[j] = lane{plane: j, setup: float64(rng.IntN(100)), perByte: 0.5 + rng.Float64()}
		}
		bytes := 200 * rng.Float64()
		out := make([]float64, len(lanes))
		level := split(lanes, bytes, out)
		sum := 0.0
		for j, l := range lanes {
			sum += out[j]
			end := l.setup + out[j]*l.perByte
			if out[j] > 0 && math.Abs(end-level) > 1e-9*level {
				t.Fatalf("lane %v ends at %v, level %v", l, end, level)
			}
			if out[j] == 0 && l.setup < level-1e-9 {
				t.Fatalf("lane %v is unused below level %v", l, level)
			}
		}
		if math.Abs(sum-bytes) > 1e-9*bytes {
			t.Fatalf("shares add up to %v of %v", sum, bytes)
		}
	}
}

func TestUnion(t *testing.T) {
	a := circuit.Permutation{1, -1, -1, -1}
	for _, tc := range []struct {
		b    circuit.Permutation
		want circuit.Permutation
	}{
		{circuit.Permutation{-1, 0, 3, -1}, circuit.Permutation{1, 0, 3, -1}},
		{circuit.Permutation{1, 2, -1, -1}, circuit.Permutation{1, 2, -1, -1}},
		{circuit.Permutation{2, -1, -1, -1}, nil}, // port 0 sends twice
		{circuit.Permutation{-1, -1, 1, -1}, nil}, // port 1 receives twice
	} {
		got, ok := union([]circuit.Permutation{a}, []circuit.Permutation{tc.b})
		if ok != (tc.want != nil) || ok && !got[0].Equal(tc.want) {
			t.Errorf("union(%v, %v) = %v, %v", a, tc.b, got, ok)
		}
	}
}
