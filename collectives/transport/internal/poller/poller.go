// Package poller is how the endpoints over sockets learn what has become ready, and wait for
// it: an edge-triggered epoll set with a descriptor of its own that wakes those who wait.
//
// Layer: inside collectives/transport. It knows descriptors and their ids, not what they are
// for: reading, writing and closing them is their owner's.
package poller

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wakeID marks the wake-up descriptor among the events.
const wakeID = -1

// Set is the polling and waiting part of a [transport.Endpoint]: Arm, Wait and Wake are as
// documented there.
//
// Concurrency: one goroutine at a time drives a set; Wake, Close and Closed may be called from
// any. Nothing but Wait, Sleep and Close blocks. Nothing but New allocates, save for errors.
//
// Edges come once: the owner keeps what it learns from a sweep until a system call on the
// descriptor has come back empty. So many quiet descriptors cost one system call a sweep, and
// data that nobody asks for wakes the driving goroutine once, not for ever.
type Set struct {
	epfd, wakefd int
	events       []unix.EpollEvent
	pollfd       [1]unix.PollFd
	sweeps       uint64
	news         bool // since Arm

	wakes  atomic.Uint32
	closed atomic.Bool
	users  atomic.Int32 // between Enter and Leave
	once   sync.Once
}

// New opens a set. A sweep returns at most capacity events; what else is ready is left to the
// next.
func New(capacity int) (*Set, error) {
	s := &Set{epfd: -1, wakefd: -1, events: make([]unix.EpollEvent, capacity+1)}
	if err := s.open(); err != nil {
		s.closeFDs()
		return nil, err
	}
	return s, nil
}

func (s *Set) open() (err error) {
	if s.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("poller: epoll: %w", err)
	}
	if s.wakefd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("poller: eventfd: %w", err)
	}
	s.pollfd[0] = unix.PollFd{Fd: int32(s.epfd), Events: unix.POLLIN}
	return s.control(unix.EPOLL_CTL_ADD, s.wakefd, unix.EPOLLIN, wakeID)
}

// Add has the set look at a descriptor, which stays the caller's, for events (EPOLLIN and so
// on). The id marks them; -1 is the set's own.
func (s *Set) Add(fd int, events uint32, id int32) error {
	if id == wakeID {
		return fmt.Errorf("poller: descriptor %d: id %d is taken", fd, id)
	}
	return s.control(unix.EPOLL_CTL_ADD, fd, events, id)
}

// Modify changes what a descriptor is looked at for. What is ready by now is an edge again.
func (s *Set) Modify(fd int, events uint32, id int32) error {
	return s.control(unix.EPOLL_CTL_MOD, fd, events, id)
}

func (s *Set) control(op, fd int, events uint32, id int32) error {
	ev := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: id}
	if err := unix.EpollCtl(s.epfd, op, fd, &ev); err != nil {
		return fmt.Errorf("poller: epoll: descriptor %d: %w", fd, err)
	}
	return nil
}

// Sweep returns what has become ready since the last one, valid until the next: Fd is the id.
// Anything ready is news, a wake-up too, which is not among the events.
func (s *Set) Sweep() []unix.EpollEvent {
	s.sweeps++
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.epfd),
		uintptr(unsafe.Pointer(&s.events[0])), uintptr(len(s.events)), 0, 0, 0)
	if errno != 0 || n == 0 {
		return nil // EINTR: the next sweep finds them
	}
	s.news = true
	ready := s.events[:n]
	for i := range ready {
		if ready[i].Fd == wakeID {
			last := len(ready) - 1
			ready[i] = ready[last]
			return ready[:last]
		}
	}
	return ready
}

// Ask sweeps unless there has been a sweep since the last Ask for which seen was kept: one
// sweep answers for all descriptors.
func (s *Set) Ask(seen *uint64) (events []unix.EpollEvent) {
	if *seen == s.sweeps {
		events = s.Sweep()
	}
	*seen = s.sweeps
	return events
}

// Arm implements [transport.Endpoint].
func (s *Set) Arm() uint32 {
	s.news = false
	return s.wakes.Load()
}

// Note makes something news that no sweep has found.
func (s *Set) Note() { s.news = true }

// Wait implements [transport.Endpoint]: Enter, Sleep unless there is Pending, Leave.
func (s *Set) Wait(armed uint32, d time.Duration) {
	if d <= 0 {
		return
	}
	s.Enter()
	defer s.Leave()
	if !s.Pending(armed) {
		s.Sleep(d)
	}
}

// Enter keeps Close from closing anything before Leave. It is for those who do more between
// sleeps than Wait does; they ask Pending before each.
func (s *Set) Enter() { s.users.Add(1) }

// Leave undoes Enter.
func (s *Set) Leave() { s.users.Add(-1) }

// Pending reports whether there is no reason to sleep: news, or a Wake, since Arm, or Close.
func (s *Set) Pending(armed uint32) bool {
	return s.news || s.wakes.Load() != armed || s.closed.Load()
}

// Sleep returns when something is ready or after d, and reports whether it was before that. The
// caller is between Enter and Leave.
func (s *Set) Sleep(d time.Duration) bool {
	ts := unix.NsecToTimespec(int64(d))
	n, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.pollfd[0])), 1,
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	return n != 0 || errno != 0 // an error means "look again", as an event does
}

// Wake implements [transport.Endpoint]. After Close it does nothing.
func (s *Set) Wake() {
	s.wakes.Add(1)
	s.Enter()
	defer s.Leave()
	if !s.closed.Load() {
		s.signal()
	}
}

// signal makes a poll of the set return. Nobody reads the counter: each write is an edge.
func (s *Set) signal() {
	one := uint64(1)
	_, _, _ = unix.Syscall(unix.SYS_WRITE, uintptr(s.wakefd), uintptr(unsafe.Pointer(&one)), 8)
}

// Closed reports whether Close was called.
func (s *Set) Closed() bool { return s.closed.Load() }

// Close ends all waiting, for good, calls last once nobody waits any more, and closes the set.
// What is in last keeps the driving goroutine from the set: it takes the lock under which that
// looks at Closed before it sweeps. Only the first call does this; others wait for it to be
// done.
func (s *Set) Close(last func()) {
	s.once.Do(func() {
		s.closed.Store(true)
		for s.users.Load() != 0 {
			s.signal()
			runtime.Gosched()
		}
		last()
		s.closeFDs()
	})
}

func (s *Set) closeFDs() {
	for _, fd := range []int{s.epfd, s.wakefd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
