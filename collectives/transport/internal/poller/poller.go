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

// Set implements Arm, Wait and Wake of a [transport.Endpoint] with an edge-triggered epoll set.
//
// One goroutine at a time drives a set; Wake, Close and Closed are safe for concurrent use. Only Wait, Sleep and
// Close block. Only New allocates, except for errors.
//
// The kernel reports each edge once. So the owner remembers a ready descriptor until a system call on it returns
// EAGAIN. In return many idle descriptors cost one system call per Poll, and unread data wakes the driving goroutine
// only once.
type Set struct {
	epfd, wakefd int
	events       []unix.EpollEvent
	pollfd       [1]unix.PollFd
	polls        uint64 // number of Polls
	ready        bool   // something has become ready since Arm

	wakes  atomic.Uint32
	closed atomic.Bool
	users  atomic.Int32 // between Enter and Leave
	once   sync.Once
}

// New opens a set. Poll returns at most capacity events; the next Poll returns the others.
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

// Add adds a descriptor to the set and selects its events (EPOLLIN and so on). The caller still owns the descriptor.
// Events carry the id; -1 is reserved.
func (s *Set) Add(fd int, events uint32, id int32) error {
	if id == wakeID {
		return fmt.Errorf("poller: descriptor %d: id %d is reserved", fd, id)
	}
	return s.control(unix.EPOLL_CTL_ADD, fd, events, id)
}

// Modify selects other events of a descriptor. The kernel then reports events that are already pending again.
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

// Poll returns the events since the last Poll; the Fd of an event is the id. The result is valid until the next Poll.
// After any event, or a Wake, which is not in the result, the next Wait returns at once.
func (s *Set) Poll() []unix.EpollEvent {
	s.polls++
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.epfd),
		uintptr(unsafe.Pointer(&s.events[0])), uintptr(len(s.events)), 0, 0, 0)
	if errno != 0 || n == 0 {
		return nil // after EINTR the next Poll returns the events
	}
	s.ready = true
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

// PollOnce calls Poll unless the set has polled since the last PollOnce with this seen. One Poll serves all
// descriptors, so a caller that keeps a seen per descriptor does not repeat the system call for each of them.
func (s *Set) PollOnce(seen *uint64) (events []unix.EpollEvent) {
	if *seen == s.polls {
		events = s.Poll()
	}
	*seen = s.polls
	return events
}

// Arm implements [transport.Endpoint].
func (s *Set) Arm() uint32 {
	s.ready = false
	return s.wakes.Load()
}

// SetReady makes the next Wait return at once, as an event does.
func (s *Set) SetReady() { s.ready = true }

// Wait implements [transport.Endpoint]. It calls Enter, Sleep unless Pending, and Leave.
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

// Enter makes Close wait until Leave. An owner with its own Wait loop calls Enter, then Pending before each Sleep.
func (s *Set) Enter() { s.users.Add(1) }

// Leave undoes Enter.
func (s *Set) Leave() { s.users.Add(-1) }

// Pending reports whether the caller must not sleep, because of an event or a Wake since Arm, or after Close.
// It does not read ready after Close, because release may call SetReady.
func (s *Set) Pending(armed uint32) bool {
	return s.closed.Load() || s.wakes.Load() != armed || s.ready
}

// short is the longest sleep without notice to Go's scheduler, which sends a signal to a thread that runs for so long.
const short = 10 * time.Millisecond

// sleepers is the number of sleeping threads.
var sleepers atomic.Int32

// Sleep returns true when an event is pending, or false after d. The caller calls it between Enter and Leave.
//
// A sleep that Go's scheduler knows of costs more than the system call: the scheduler's monitor takes the processor (P)
// from the thread, sleeps itself, and is woken with the thread. So a short sleeper keeps its processor if others remain
// for the program's goroutines. A signal of the scheduler ends the sleep early, like an event.
func (s *Set) Sleep(d time.Duration) bool {
	ts := unix.NsecToTimespec(int64(d))
	var n uintptr
	var errno unix.Errno
	if int(sleepers.Add(1)) < runtime.GOMAXPROCS(0) && d <= short {
		n, _, errno = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.pollfd[0])), 1,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.pollfd[0])), 1,
			uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	}
	sleepers.Add(-1)
	return n != 0 || errno != 0 // on an error the caller polls again, as after an event
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

// signal makes a Sleep return. No code reads the eventfd, because every write is an edge.
func (s *Set) signal() {
	one := uint64(1)
	_, _, _ = unix.Syscall(unix.SYS_WRITE, uintptr(s.wakefd), uintptr(unsafe.Pointer(&one)), 8)
}

// Closed reports whether Close was called.
func (s *Set) Closed() bool { return s.closed.Load() }

// Close makes every Wait return, now and later, then calls release and closes the set. Only the first call does this;
// later calls wait until it is done.
//
// Close calls release after the last goroutine has left Wait. release must prevent further calls of Poll: it takes
// the lock under which the driving goroutine checks Closed before it polls.
func (s *Set) Close(release func()) {
	s.once.Do(func() {
		s.closed.Store(true)
		for s.users.Load() != 0 {
			s.signal()
			runtime.Gosched()
		}
		release()
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
