package monotonic

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestNow: readings lie between those of the kernel before and after, but for what passes between the two
// clocks' origins.
func TestNow(t *testing.T) {
	kernel := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	first := kernel()
	apart := Now() - first // at most the time between the two readings of the origin
	for range 1000 {
		before := kernel()
		now := Now()
		if after := kernel(); now < before || now > after+apart {
			t.Fatalf("%d is not between %d and %d", now, before, after)
		}
	}
}
