package monotonic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestCalibrateWithPauses pauses the process for up to a second between most readings. A few readings without a pause
// are enough.
func TestCalibrateWithPauses(t *testing.T) {
	for seed := range uint64(1000) {
		const zero = 12345678900 // the kernel's clock at the start
		r := rand.New(rand.NewPCG(seed, 1))
		now := int64(0)
		pass := func() {
			now += 50 + r.Int64N(100)
			if r.IntN(3) != 0 {
				now += r.Int64N(int64(time.Second))
			}
		}
		start := time.Now()
		kernel := func() int64 { pass(); return zero + now }
		since := func() time.Duration { pass(); return time.Duration(now) }
		o := calibrate(kernel, since, start)
		if off := o.kernel - zero; off < -maxError || off > maxError || o.runtime != start {
			t.Fatalf("seed %d: %d ns off", seed, off)
		}
	}
}

// TestNow compares Now with readings of the kernel's clock before and after it.
func TestNow(t *testing.T) {
	const off = int64(time.Millisecond) // far above the error after a hundred attempts
	for range 1000 {
		before := readKernel()
		now := Now()
		if after := readKernel(); now < before-off || now > after+off {
			t.Fatalf("%d is not between %d and %d", now, before, after)
		}
	}
}
