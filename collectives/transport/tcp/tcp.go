package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/poller"
	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

const (
	// segment is the payload of one TCP segment on the loopback interface (MTU 65536 less 53 bytes of headers), rounded
	// down to whole words. One byte more costs as much as a full second segment.
	segment = 65480
	// maxPayload is the largest payload of a frame. The frame stays in the second-level cache between the kernel's copy
	// and the reduction, and is large enough to make its one or two system calls cheap.
	maxPayload = 4*segment - wire.HeaderSize
	// lookahead is the number of bytes to read beyond a frame's payload: the next header, or small frames.
	lookahead = 4 << 10
	// bufferSize is the receive buffer of a connection: a frame and the bytes read beyond it.
	bufferSize = wire.HeaderSize + maxPayload + 2*shortCall
	// minPiece is the smallest part of an incomplete frame that Peek returns.
	minPiece = 64 << 10
	// shortCall is the size up to which a system call takes only some microseconds.
	shortCall = 16 << 10
	// fewConns is the number of connections up to which a rank reads each socket without polling first, unless it is
	// about to sleep. This saves the system call of the poll.
	fewConns = 2
	// burst is the largest number of frames that one TrySend sends.
	burst = 4
	// events are the edges of a connection that the kernel reports.
	events = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP
)

// endpoint is one rank's connections; it implements [transport.Endpoint].
//
// A poll sets conn.readable, which stays set until a receive returns EAGAIN. conn.full is the same for sending.
type endpoint struct {
	rank   int
	planes []transport.Plane
	conns  []*conn      // all connections, by event id
	local  []netip.Addr // by plane: this rank's address; empty: not known
	poll   *poller.Set
	guard  *guard // nil: a connection that breaks is not replaced
	idle   uint32 // how often no peer's data was there when the caller looked: it grows while this rank waits
	armed  bool   // between Arm and the end of Wait: an event must be polled, or the rank would sleep

	mu sync.Mutex // held by Close and by every call of the driving goroutine except Arm, and not while it sleeps
}

// newEndpoint takes ownership of the connected sockets fds[plane][rank]. It ignores the entry of this rank.
func newEndpoint(rank int, fds [][]int) (*endpoint, error) {
	e := &endpoint{rank: rank}
	for id, row := range fds {
		p := &plane{e: e, id: id, conns: make([]*conn, len(row))}
		for peer, fd := range row {
			if peer == rank {
				continue
			}
			c := newConn(fd, id, peer, &e.idle)
			p.conns[peer] = c
			e.conns = append(e.conns, c)
		}
		e.planes = append(e.planes, p)
	}
	var err error
	if e.poll, err = poller.New(len(e.conns)); err != nil {
		e.closeConns()
		return nil, fmt.Errorf("tcp: rank %d: %w", rank, err)
	}
	for id, c := range e.conns {
		c.id = id
		if err = prepare(c.fd); err == nil {
			err = e.poll.Add(c.fd, events, int32(id))
		}
		if err != nil {
			_ = e.Close()
			return nil, fmt.Errorf("tcp: rank %d, plane %d of rank %d: %w", c.peer, c.plane, rank, err)
		}
	}
	return e, nil
}

// prepare sets a connected socket to non-blocking mode without delay. The kernel chooses the size of its buffers,
// because small ones, which would stay in the cache, make the sender wait.
func prepare(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("non-blocking: %w", err)
	}
	// Tests use sockets that are not TCP and do not have this option.
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	return nil
}

// Planes implements [transport.Endpoint].
func (e *endpoint) Planes() []transport.Plane { return e.planes }

// Arm implements [transport.Endpoint].
func (e *endpoint) Arm() uint32 {
	e.armed = true
	return e.poll.Arm()
}

// Wait implements [transport.Endpoint].
func (e *endpoint) Wait(armed uint32, d time.Duration) {
	e.mu.Lock()
	for _, c := range e.conns {
		c.expectMore()
	}
	e.mu.Unlock()
	e.poll.Wait(armed, d)
	e.armed = false
}

// Wake implements [transport.Endpoint].
func (e *endpoint) Wake() { e.poll.Wake() }

// pollReady marks the connections that have become ready. It polls at most once for all connections; see
// [poller.Set.PollOnce] for seen. The caller holds mu.
func (e *endpoint) pollReady(seen *uint64) {
	ready := e.poll.PollOnce(seen)
	for i := range ready {
		ev := &ready[i]
		c := e.conns[ev.Fd]
		if ev.Events&^unix.EPOLLOUT != 0 {
			c.readable = true
			c.ended = c.ended || ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		}
		if ev.Events&^unix.EPOLLIN != 0 {
			c.full = c.down || c.replaying
		}
	}
}

// Close implements [transport.Endpoint]. Peers still receive the frames that this rank has sent, then
// [transport.ErrPeerLost].
func (e *endpoint) Close() error {
	e.poll.Close(func() {
		if e.guard != nil {
			e.guard.stop()
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closeConns()
	})
	return nil
}

func (e *endpoint) closeConns() {
	for _, c := range e.conns {
		c.close()
	}
}
