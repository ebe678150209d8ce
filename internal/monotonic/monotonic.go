// Package monotonic reads the clock that all processes of a host share. Reports of ranks, traces and
// the controller's times on one host compare because they all take it from here.
package monotonic

import (
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC in nanoseconds; from the second call on it takes no system call.
func Now() int64 {
	o := tied()
	return o.at + int64(time.Since(o.was))
}

// origin is one moment on two clocks: the runtime's, which is the same clock but cannot be read as
// a number, and the kernel's.
type origin struct {
	was time.Time
	at  int64
}

var tied = sync.OnceValue(func() origin {
	start := time.Now()
	return tie(kernel, func() time.Duration { return time.Since(start) }, start)
})

func kernel() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for bad arguments only
	return ts.Nano()
}

const (
	near     = 500 // ns; how close the two clocks are to be tied
	attempts = 100 // before what was reached will do
)

// tie finds what kernel read when since was zero, at start. Between a reading of the one clock and the next
// of the other the machine may stand still for any time, and a process whose clock is off by that dates what
// it sees wrongly for as long as it lives. So each reading of since, between two of kernel, bounds
// the result from both sides, and bounds are collected until they are near each other.
func tie(kernel func() int64, since func() time.Duration, start time.Time) origin {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	before := kernel()
	for range attempts {
		passed := int64(since())
		after := kernel()
		low, high = max(low, before-passed), min(high, after-passed)
		if high-low <= near {
			break
		}
		before = after
	}
	return origin{start, low + (high-low)/2}
}
