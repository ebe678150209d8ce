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
	// Bounds of a nap while a counter is waited for.
	minNap, maxNap = 30 * time.Microsecond, 500 * time.Microsecond
	// hurryNap is how soon to look again where the kernel has no memory, which nobody signals.
	hurryNap = time.Millisecond
	// askAfter is how long a sender waits for credits before it asks, askMost the longest
	// between two questions.
	askAfter, askMost = 2 * time.Millisecond, 64 * time.Millisecond
	// checkEvery is how often a rank that waits looks for lost frames. Lost is one that others
	// have overtaken, or that stands still in a queue, in so many looks in a row: a second, and
	// more where the machine itself stood still. At 1 Mb/s the largest takes half as long.
	checkEvery, patience = 100 * time.Millisecond, 10
)

// pace decides how long a Wait may last: what has been asked for since Arm, and got no.
type pace struct {
	starved bool // for want of credits
	hurried bool // for want of something that nobody signals

	watching bool    // a counter is waited for
	moving   bool    // and has moved since the last wait for it
	due      float64 // nanoseconds until the first of them may be there
	still    int     // waits in a row in which none has moved

	askAt   time.Time // when credits are asked for next; zero: nobody knows yet
	askNext time.Duration
	checkAt time.Time // when lost frames are looked for next
}

func (c *pace) reset() { c.askNext = askAfter }

// credited says that a credit has come: the next may take its time again.
func (c *pace) credited() { c.askAt, c.askNext = time.Time{}, askAfter }

func (c *pace) arm() {
	c.starved, c.hurried, c.watching, c.moving, c.due = false, false, false, false, math.Inf(1)
}

// nap returns how long to sleep, at most d, and whether Wait is to return after it even though
// nothing has happened.
func (c *pace) nap(d time.Duration) (nap time.Duration, final bool) {
	nap = min(d, checkEvery)
	if c.starved {
		nap = min(nap, c.askNext)
	}
	if c.hurried {
		nap, final = min(nap, hurryNap), true
	}
	if c.watching {
		if c.moving {
			c.still = 0
		} else {
			c.still++
		}
		// Half of what is left at least, so that the last look is hardly late.
		due := time.Duration(min(c.due/2, float64(maxNap)))
		nap, final = min(nap, max(due, minNap<<min(c.still, 4))), true
	}
	return nap, final
}

// hurry has the next Wait return soon.
func (e *Endpoint) hurry() { e.pace.hurried = true }

// watch has the next Wait return when a look at a plane's counters may pay: mark changes when
// they move, left is how many bytes the wire has to carry until then.
func (e *Endpoint) watch(p *plane, mark uint64, left float64) {
	c := &e.pace
	c.watching = true
	if mark != p.progress {
		p.progress, c.moving = mark, true
	}
	c.due = min(c.due, left*p.perByte)
}

// upkeep does what has to be done while nothing happens: asks for credits that may have been
// lost, and looks for frames that have been.
func (e *Endpoint) upkeep(now time.Time) {
	c := &e.pace
	if c.starved {
		switch {
		case c.askAt.IsZero():
			c.askAt = now.Add(c.askNext)
		case now.After(c.askAt):
			e.askForCredits()
			c.askNext = min(2*c.askNext, askMost)
			c.askAt = now.Add(c.askNext)
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

// check looks for frames that have not arrived and will not. The caller holds e.mu.
func (p *plane) check() {
	if p.lost != nil {
		return
	}
	if n := overflows(p.fd) - p.overflow; n != 0 {
		p.lost = fmt.Errorf("%w: rank %d, plane %d, epoch %d: %d overflowed the receive buffer",
			transport.ErrDark, p.e.rank, p.id, p.epoch, n)
		return
	}
	if p.lost = p.stuck(); p.lost != nil {
		return
	}
	// Nobody may have asked this plane for long: what is missing may be in the socket.
	for p.readable = true; p.readable; {
		if p.lost = p.receive(); p.lost != nil {
			return
		}
	}
	for r := range p.peers {
		from := &p.peers[r]
		switch {
		case from.have == 0 || from.head() != nil:
			from.hole = 0
		case from.hole < patience:
			from.hole++
		default:
			p.lost = fmt.Errorf("%w: rank %d, plane %d, epoch %d: frame %d of rank %d is missing, %d after it are here",
				transport.ErrDark, p.e.rank, p.id, p.epoch, from.next, r, from.have)
			return
		}
	}
}

// stuck looks for frames that the port's queues have swallowed: offered, never taken.
func (p *plane) stuck() error {
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
	if p.queueStill++; p.queueStill <= patience {
		return nil
	}
	return fmt.Errorf("%w: rank %d, plane %d, epoch %d: %d do not leave the port's queues",
		transport.ErrDark, p.e.rank, p.id, p.epoch, left)
}

// overflows returns how many datagrams a socket has had no room for.
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

// outq asks how much of what a socket was given is still in the host's queues.
func outq(fd int, bytes *int32) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(bytes)))
	return errno
}
