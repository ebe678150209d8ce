package etcd

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns the time since boot. Unlike the monotonic clock of package time, it includes the time that the host
// sleeps: leases expire then, too.
func bootClock() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // fails for bad arguments only
	return time.Duration(ts.Nano())
}
