package timing

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSplit checks the water level against its definition.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		lanes := make([]Lane, 1+rng.IntN(6))
		for j := range lanes {
			lanes[j] = Lane{Plane: j, Setup: float64(rng.IntN(100)), PerByte: 0.5 + rng.Float64()}
		}
		bytes := 200 * rng.Float64()
		out := make([]float64, len(lanes))
		level := Split(lanes, bytes, out)
		sum := 0.0
		for j, l := range lanes {
			sum += out[j]
			end := l.Setup + out[j]*l.PerByte
			if out[j] > 0 && math.Abs(end-level) > 1e-9*level {
				t.Fatalf("lane %v ends at %v, level %v", l, end, level)
			}
			if out[j] == 0 && l.Setup < level-1e-9 {
				t.Fatalf("lane %v is unused below level %v", l, level)
			}
		}
		if math.Abs(sum-bytes) > 1e-9*bytes {
			t.Fatalf("shares add up to %v of %v", sum, bytes)
		}
	}
}
