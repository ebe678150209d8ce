package monotonic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTie: however long the machine stands still between readings, a few that it lets pass suffice.
func TestTie(t *testing.T) {
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
		o := tie(func() int64 { pass(); return zero + now }, func() time.Duration { pass(); return time.Duration(now) }, start)
		if off := o.at - zero; off < -near || off > near || o.was != start {
			t.Fatalf("seed %d: %d ns off", seed, off)
		}
	}
}

// TestNow: readings lie between those of the kernel before and after, but for how closely the clocks are tied.
func TestNow(t *testing.T) {
	const off = int64(time.Millisecond) // far above what a hundred attempts reach
	for range 1000 {
		before := kernel()
		now := Now()
		if after := kernel(); now < before-off || now > after+off {
			t.Fatalf("%d is not between %d and %d", now, before, after)
		}
	}
}
