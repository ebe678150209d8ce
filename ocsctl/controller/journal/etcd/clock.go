package etcd

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock is the time since boot. It goes on while the process is stopped and, other than
// the monotonic clock of package time, while the host sleeps: leases run out then, too.
func bootClock() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // fails for bad arguments only
	return time.Duration(ts.Nano())
}
