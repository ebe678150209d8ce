package exec

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/monotonic"
)

const (
	// LongYield is longer than a peer on the same CPU works before it yields itself, and shorter than the time slice of
	// a program that only computes.
	LongYield = time.Millisecond
	// SleepWaits is the number of waits without yields after a long yield.
	SleepWaits = 64
)

// Yielder yields the CPU in waits. If other programs want the CPU, a yield gives one of them a full time slice, also if
// the awaited data arrives at once. A rank that sleeps runs again as soon as a peer wakes it. So after a long yield, a
// rank sleeps at once in its next waits. The zero value is ready. A nil Yielder always yields: if ranks outnumber the
// CPUs, a yield serves a peer. Not safe for concurrent use.
type Yielder struct {
	sleeps int // waits left without yields
}

// Begin begins a wait and reports whether it may yield.
func (y *Yielder) Begin() bool {
	if y == nil || y.sleeps == 0 {
		return true
	}
	y.sleeps--
	return false
}

// Yield yields the CPU to other threads and, unless alone is set, to other goroutines (see Options.Alone). It reports
// whether the wait may yield again.
func (y *Yielder) Yield(alone bool) bool {
	var began int64
	if y != nil {
		began = monotonic.Now()
	}
	if !alone {
		runtime.Gosched()
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return y == nil || y.took(time.Duration(monotonic.Now()-began))
}

// took learns from the duration of a yield.
func (y *Yielder) took(d time.Duration) bool {
	if d < LongYield {
		return true
	}
	y.sleeps = SleepWaits
	return false
}
