// Package tcp is the packet transport over TCP: for every pair of ranks one connection per
// plane, driven by non-blocking system calls from the goroutine that drives the rank.
//
// Layer: inside collectives/transport. Go's network package sets connections up; after
// that the sockets are this package's own and it starts no goroutines.
//
// A connection carries frames back to back: header, payload, header, and so on. Payload is
// sent straight from the caller's memory. Received bytes go to a buffer per connection,
// in which Peek shows whole frames.
package tcp

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

const (
	// maxPayload is the most data bytes of a frame. With its header a frame is what fits one
	// segment of the loopback interface (MTU 65536 less 53 bytes of headers): a frame that
	// spills over into a second segment costs several times as much.
	maxPayload = 65480 - wire.HeaderSize
	// bufferSize is what a connection receives into: several frames per system call.
	bufferSize = 256 << 10
	// burst bounds the frames that one TrySend makes.
	burst = 8
	// wakeID marks the wake-up descriptor among the events.
	wakeID = -1
)

// Endpoint is one rank's connections; it implements [transport.Endpoint].
//
// Readiness comes from one edge-triggered epoll set: a sweep collects what has become
// readable since the last one into conn.readable, which stays set until a receive comes
// back empty; conn.full is the like for sending. So polling many quiet connections costs one system call a round, and data
// that nobody asks for wakes the rank once, not for ever.
type Endpoint struct {
	rank, ranks int
	planes      []transport.Plane
	conns       []*conn // all, by event id
	epfd        int
	wakefd      int

	mu     sync.Mutex // held by every call of the driving goroutine but Wait, and by Close
	events []unix.EpollEvent
	pollfd []unix.PollFd
	sweeps uint64
	news   bool // a sweep since Arm has found something

	wakes   atomic.Uint32
	closed  atomic.Bool
	waiting atomic.Int32
	once    sync.Once
}

// newEndpoint takes ownership of fds[plane][rank], connected sockets; the entry of this
// rank is not used.
func newEndpoint(rank int, fds [][]int) (e *Endpoint, err error) {
	e = &Endpoint{rank: rank, ranks: len(fds[0]), epfd: -1, wakefd: -1}
	for id, row := range fds {
		p := &plane{e: e, id: id, conns: make([]*conn, len(row))}
		for peer, fd := range row {
			if peer == rank {
				continue
			}
			c := newConn(fd, id, peer)
			p.conns[peer] = c
			e.conns = append(e.conns, c)
		}
		e.planes = append(e.planes, p)
	}
	defer func() {
		if err != nil {
			e.closeFDs()
		}
	}()
	if e.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("tcp: epoll: %w", err)
	}
	if e.wakefd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("tcp: eventfd: %w", err)
	}
	if err := e.watch(e.wakefd, unix.EPOLLIN, wakeID); err != nil {
		return nil, err
	}
	for id, c := range e.conns {
		if err := prepare(c.fd); err != nil {
			return nil, err
		}
		if err := e.watch(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP, int32(id)); err != nil {
			return nil, err
		}
	}
	e.events = make([]unix.EpollEvent, len(e.conns)+1)
	e.pollfd = []unix.PollFd{{Fd: int32(e.epfd), Events: unix.POLLIN}}
	return e, nil
}

// prepare sets a connected socket up for non-blocking, undelayed use. Its buffers are the
// kernel's to size: small ones, which would stay in the cache, stall the sender instead.
func prepare(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("tcp: non-blocking: %w", err)
	}
	// Sockets that are no TCP (tests) have no such option.
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("tcp: TCP_NODELAY: %w", err)
	}
	return nil
}

func (e *Endpoint) watch(fd int, events uint32, id int32) error {
	ev := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: id}
	if err := unix.EpollCtl(e.epfd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("tcp: epoll: %w", err)
	}
	return nil
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.planes }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 {
	e.news = false
	return e.wakes.Load()
}

// Wait implements [transport.Endpoint].
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	if d <= 0 {
		return
	}
	e.waiting.Add(1)
	defer e.waiting.Add(-1)
	if e.news || e.wakes.Load() != armed || e.closed.Load() {
		return
	}
	// Errors mean "look again", as an event does.
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&e.pollfd[0])), 1,
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// sweep marks the connections that have become readable. The caller holds mu.
func (e *Endpoint) sweep() {
	e.sweeps++
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.epfd),
		uintptr(unsafe.Pointer(&e.events[0])), uintptr(len(e.events)), 0, 0, 0)
	if errno != 0 {
		return // EINTR: the next sweep finds them
	}
	for i := range e.events[:n] {
		ev := &e.events[i]
		e.news = true
		if ev.Fd == wakeID {
			continue
		}
		c := e.conns[ev.Fd]
		if ev.Events&^unix.EPOLLOUT != 0 {
			c.readable = true
		}
		if ev.Events&^unix.EPOLLIN != 0 {
			c.full = false
		}
	}
}

// ask sweeps unless there has been a sweep since the last ask for which seen was kept: one
// sweep answers for all connections.
func (e *Endpoint) ask(seen *uint64) {
	if *seen == e.sweeps {
		e.sweep()
	}
	*seen = e.sweeps
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() {
	e.wakes.Add(1)
	e.waiting.Add(1) // keeps Close from closing the descriptor under us
	defer e.waiting.Add(-1)
	if !e.closed.Load() {
		e.signal()
	}
}

// signal makes a poll of the set return. Nobody reads the counter: each write is an edge.
func (e *Endpoint) signal() {
	one := uint64(1)
	_, _, _ = unix.Syscall(unix.SYS_WRITE, uintptr(e.wakefd), uintptr(unsafe.Pointer(&one)), 8)
}

// Close implements [transport.Endpoint]. Peers still receive what this rank has sent, then
// [transport.ErrPeerLost].
func (e *Endpoint) Close() error {
	e.once.Do(func() {
		e.closed.Store(true)
		for e.waiting.Load() != 0 {
			e.signal()
			runtime.Gosched()
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closeFDs()
	})
	return nil
}

func (e *Endpoint) closeFDs() {
	for _, c := range e.conns {
		// A close with unread bytes would reset the connection and what is still under way
		// to the peer; the end of the stream goes out first.
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
		_ = unix.Close(c.fd)
	}
	for _, fd := range []int{e.epfd, e.wakefd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
