package ebpf

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
)

const (
	// Bounds of a sleep while a rank waits for a counter.
	minSleep, maxSleep = 30 * time.Microsecond, 500 * time.Microsecond
	// retrySleep is the time until a retry of a send for which the kernel had no memory.
	retrySleep = time.Millisecond
	// A sender without credit requests credits after requestMin, then with exponential backoff up to requestMax.
	requestMin, requestMax = 2 * time.Millisecond, 64 * time.Millisecond
	// A waiting rank checks for lost frames every checkEvery. A frame is lost after maxStill consecutive checks in
	// which it was missing behind later frames, or stood still in a queue. This takes a second, and longer if the
	// machine itself pauses. At 1 Mb/s the largest frame takes half a second.
	checkEvery, maxStill = 100 * time.Millisecond, 10
)

// waitState decides how long Wait may sleep, from the calls since Arm that could not proceed.
type waitState struct {
	needCredit bool // a send waits for a credit
	retry      bool // a send shall be retried soon

	counterWait bool    // a caller waits for a counter,
	moving      bool    // which has moved since its last wait
	due         float64 // nanoseconds until the first such counter may reach its value
	unchanged   int     // consecutive waits in which no counter has moved

	requestAt   time.Time // of the next request for credits; zero if not yet set
	requestWait time.Duration
	checkAt     time.Time // of the next check for lost frames
}

// creditArrived resets the backoff of requests for credits.
func (c *waitState) creditArrived() { c.requestAt, c.requestWait = time.Time{}, requestMin }

func (c *waitState) arm() {
	c.needCredit, c.retry, c.counterWait, c.moving, c.due = false, false, false, false, math.Inf(1)
}

// sleepTime returns the time to sleep, at most d. If final is set, Wait returns after it even without an event.
func (c *waitState) sleepTime(d time.Duration) (sleep time.Duration, final bool) {
	sleep = min(d, checkEvery)
	if c.needCredit {
		sleep = min(sleep, c.requestWait)
	}
	if c.retry {
		sleep, final = min(sleep, retrySleep), true
	}
	if c.counterWait {
		if c.moving {
			c.unchanged = 0
		} else {
			c.unchanged++
		}
		// Half of the remaining time, so that the last read of the counter is hardly late.
		due := time.Duration(min(c.due/2, float64(maxSleep)))
		sleep, final = min(sleep, max(due, minSleep<<min(c.unchanged, 4))), true
	}
	return sleep, final
}

// waitForCounter makes the next Wait return when a counter of p is likely to have reached its value. mark is any value
// that changes when the counter moves; left is the number of bytes that the wire still has to carry.
func (e *Endpoint) waitForCounter(p *plane, mark uint64, left float64) {
	c := &e.wait
	c.counterWait = true
	if mark != p.lastMark {
		p.lastMark, c.moving = mark, true
	}
	c.due = min(c.due, left*p.perByte)
}

// checkTimers requests credits that may have been lost, and checks for lost frames, each when its time has come.
func (e *Endpoint) checkTimers(now time.Time) {
	c := &e.wait
	if c.needCredit {
		switch {
		case c.requestAt.IsZero():
			c.requestAt = now.Add(c.requestWait)
		case now.After(c.requestAt):
			e.requestCredits()
			c.requestWait = min(2*c.requestWait, requestMax)
			c.requestAt = now.Add(c.requestWait)
		}
	}
	if now.Before(c.checkAt) {
		return
	}
	c.checkAt = now.Add(checkEvery)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.planes {
		p.check()
	}
}

// check sets p.lost if frames of this plane are lost. The caller holds e.mu.
func (p *plane) check() {
	if p.lost != nil {
		return
	}
	if n := overflows(p.fd) - p.overflow; n != 0 {
		p.lost = fmt.Errorf("%w: rank %d, plane %d, epoch %d: %d overflowed the receive buffer",
			transport.ErrDark, p.e.rank, p.id, p.epoch, n)
		return
	}
	if p.lost = p.queueStuck(); p.lost != nil {
		return
	}
	// Missing frames may be in the socket, if no call has received from this plane for long.
	for p.readable = true; p.readable; {
		if p.lost = p.receive(); p.lost != nil {
			return
		}
	}
	for r := range p.peers {
		from := &p.peers[r]
		switch {
		case from.have == 0 || from.head() != nil:
			from.gap = 0
		case from.gap < maxStill:
			from.gap++
		default:
			p.lost = fmt.Errorf("%w: rank %d, plane %d, epoch %d: frame %d of rank %d is missing, %d later frames have arrived",
				transport.ErrDark, p.e.rank, p.id, p.epoch, from.next, r, from.have)
			return
		}
	}
}

// queueStuck returns an error if frames have stayed in the port's queues for too many checks.
func (p *plane) queueStuck() error {
	if p.counters == nil {
		return nil
	}
	sent := p.counters.Sent()
	left := p.counters.Offered() - sent
	switch {
	case left == 0:
		p.queueStill = 0
		return nil
	case sent != p.queueSent:
		p.queueSent, p.queueStill = sent, 0
		return nil
	}
	if p.queueStill++; p.queueStill <= maxStill {
		return nil
	}
	return fmt.Errorf("%w: rank %d, plane %d, epoch %d: %d frames do not leave the port's queues",
		transport.ErrDark, p.e.rank, p.id, p.epoch, left)
}

// overflows returns the number of datagrams that a socket has dropped because its receive buffer was full.
func overflows(fd int) uint64 {
	const meminfo, drops = 55, 8 // SO_MEMINFO, SK_MEMINFO_DROPS
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, meminfo,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return uint64(info[drops])
}

// outq reads the number of bytes of a socket that are still in the host's queues.
func outq(fd int, bytes *int32) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(bytes)))
	return errno
}
