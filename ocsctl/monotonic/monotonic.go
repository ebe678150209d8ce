// Package monotonic reads the clock that all processes of a host share. Reports of ranks, traces and
// the controller's times on one host compare because they all take it from here.
package monotonic

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC in nanoseconds; from the second call on it takes no system call.
func Now() int64 {
	o := origin()
	return o.at + int64(time.Since(o.was))
}

// origin ties the runtime's clock, which is the same and cannot be read as a number, to it.
var origin = sync.OnceValue(func() (o struct {
	was time.Time
	at  int64
}) {
	var ts unix.Timespec
	o.was = time.Now()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for bad arguments only
	o.at = ts.Nano()
	return o
})
