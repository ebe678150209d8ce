// Package tcp is the packet transport over TCP: for every pair of ranks one connection per
// plane, driven by non-blocking system calls from the goroutine that drives the rank.
//
// Layer: inside collectives/transport. Go's network package sets connections up; after
// that the sockets are this package's own and it starts no goroutines.
//
// A connection carries frames back to back: header, payload, header, and so on. Payload is
// sent straight from the caller's memory, and received straight into it once its header has been
// checked; what is to be reduced is shown in a buffer per connection that fits the cache.
package tcp

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/poller"
	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

const (
	// segment is the most that TCP puts into one segment of the loopback interface (MTU 65536
	// less 53 bytes of headers), down to whole words: what spills over into one more costs as
	// much as a full one.
	segment = 65480
	// maxPayload is the most data bytes of a frame: few enough for a frame to stay in the second
	// level cache between the kernel's copy and the reduction, enough that system calls, one or
	// two a frame, do not show.
	maxPayload = 4*segment - wire.HeaderSize
	// lookahead is what is read beyond a frame's payload: the next header, whole small frames.
	lookahead = 4 << 10
	// bufferSize is what a connection receives into: a frame and what is read ahead.
	bufferSize = wire.HeaderSize + maxPayload + 2*shortCall
	// minPiece is how much of a frame is shown before the rest has come.
	minPiece = 64 << 10
	// shortCall is how few bytes make a system call a short one, some microseconds.
	shortCall = 16 << 10
	// direct is of how few connections each is asked by itself what it has, while nobody is about
	// to sleep: one system call instead of a sweep and that call.
	direct = 2
	// burst bounds the frames that one TrySend makes.
	burst = 4
)

// Endpoint is one rank's connections; it implements [transport.Endpoint].
//
// What a sweep finds readable is kept in conn.readable, which stays set until a receive comes
// back empty; conn.full is the like for sending.
type Endpoint struct {
	rank   int
	planes []transport.Plane
	conns  []*conn // all, by event id
	poll   *poller.Set
	armed  bool // between Arm and the end of Wait: what a sweep has not found is slept through

	mu sync.Mutex // held by every call of the driving goroutine but Arm and Wait, and by Close
}

// newEndpoint takes ownership of fds[plane][rank], connected sockets; the entry of this
// rank is not used.
func newEndpoint(rank int, fds [][]int) (*Endpoint, error) {
	e := &Endpoint{rank: rank}
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
	var err error
	if e.poll, err = poller.New(len(e.conns)); err != nil {
		e.closeConns()
		return nil, fmt.Errorf("tcp: rank %d: %w", rank, err)
	}
	for id, c := range e.conns {
		if err = prepare(c.fd); err == nil {
			err = e.poll.Add(c.fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP, int32(id))
		}
		if err != nil {
			_ = e.Close()
			return nil, fmt.Errorf("tcp: rank %d, plane %d of rank %d: %w", c.peer, c.plane, rank, err)
		}
	}
	return e, nil
}

// prepare sets a connected socket up for non-blocking, undelayed use. Its buffers are the
// kernel's to size: small ones, which would stay in the cache, stall the sender instead.
func prepare(fd int) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("non-blocking: %w", err)
	}
	// Sockets that are no TCP (tests) have no such option.
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	return nil
}

// Planes implements [transport.Endpoint].
func (e *Endpoint) Planes() []transport.Plane { return e.planes }

// Arm implements [transport.Endpoint].
func (e *Endpoint) Arm() uint32 {
	e.armed = true
	return e.poll.Arm()
}

// Wait implements [transport.Endpoint].
func (e *Endpoint) Wait(armed uint32, d time.Duration) {
	e.poll.Wait(armed, d)
	e.armed = false
}

// Wake implements [transport.Endpoint].
func (e *Endpoint) Wake() { e.poll.Wake() }

// ask marks the connections that have become ready, if seen, kept by one of them, says that
// nobody has asked since. The caller holds mu.
func (e *Endpoint) ask(seen *uint64) {
	events := e.poll.PollOnce(seen)
	for i := range events {
		ev := &events[i]
		c := e.conns[ev.Fd]
		if ev.Events&^unix.EPOLLOUT != 0 {
			c.readable = true
			c.ended = c.ended || ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
		}
		if ev.Events&^unix.EPOLLIN != 0 {
			c.full = false
		}
	}
}

// Close implements [transport.Endpoint]. Peers still receive what this rank has sent, then
// [transport.ErrPeerLost].
func (e *Endpoint) Close() error {
	e.poll.Close(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.closeConns()
	})
	return nil
}

func (e *Endpoint) closeConns() {
	for _, c := range e.conns {
		// A close with unread bytes would reset the connection and what is still under way
		// to the peer; the end of the stream goes out first.
		_ = unix.Shutdown(c.fd, unix.SHUT_WR)
		_ = unix.Close(c.fd)
	}
}
