package monotonic

import (
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC in nanoseconds. Only the first call makes system calls.
func Now() int64 {
	o := processOrigin()
	return o.kernel + int64(time.Since(o.runtime))
}

// origin is one moment read from two clocks. The Go runtime uses the kernel's clock but offers only differences.
type origin struct {
	runtime time.Time
	kernel  int64 // ns
}

var processOrigin = sync.OnceValue(func() origin {
	start := time.Now()
	return calibrate(readKernel, func() time.Duration { return time.Since(start) }, start)
})

func readKernel() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for bad arguments only
	return ts.Nano()
}

const (
	maxError = 500 // ns; calibrate stops when the bounds are this close
	attempts = 100 // calibrate then accepts the bounds it has
)

// calibrate returns the origin at start: it finds the value of kernel when since was zero.
//
// The process may be descheduled for any time between two readings, and such an error would stay for the life of
// the process. So calibrate reads kernel before and after each since. Every such triple gives a lower and an upper
// bound; calibrate collects bounds until they are within maxError of each other.
func calibrate(kernel func() int64, since func() time.Duration, start time.Time) origin {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	before := kernel()
	for range attempts {
		passed := int64(since())
		after := kernel()
		low, high = max(low, before-passed), min(high, after-passed)
		if high-low <= maxError {
			break
		}
		before = after
	}
	return origin{start, low + (high-low)/2}
}
