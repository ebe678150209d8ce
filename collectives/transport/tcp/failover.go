package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A stream is all that two ranks exchange on one plane. It outlives its connection. If the connection breaks, both
// ranks leave it and continue over a connection on another plane (docs/design/transports.md).
//
//	rank with the higher number                  rank with the lower number
//	leaves the connection, or notices its end
//	hello (resume plane j)  ------------------>  leaves the connection too
//	                        <------------------  reply (position)
//	reply (position)        ------------------>
//	sends again from there                       sends again from there
//
// A rank that leaves a connection neither sends nor drops bytes from its journal until the stream is resumed. When the
// other rank has left the connection too, it receives all that its kernel has, and closes the socket. So its position
// is final when it is sent, and the journal of the other rank begins at that position or before. If a rank closed the
// socket earlier, its kernel could have acknowledged bytes that it then loses.

// Failover holds the options for replacing the connections of an endpoint.
type Failover struct {
	// Heartbeat is the time after which a rank is lost if no plane brings an answer from its host. A plane without an
	// answer is left before that. 0: a connection that breaks is not replaced.
	Heartbeat time.Duration
	// Moved is called when the stream of a plane to a rank continues over the plane via. It may be nil.
	Moved func(rank, plane, via int, cause error)
	// Lost is called when no plane brings an answer from a rank's host. It may be nil.
	Lost func(rank int, err error)
}

const (
	// holds bounds how long a stream stays away from its own plane: from one to this number of heartbeats.
	holds = 32
	// attempts is the number of rounds through all planes in which a rank tries to resume a stream.
	attempts = 4
	// guardHandshakes is the number of concurrent handshakes beyond one for each stream.
	guardHandshakes = 32
	// minAttempt is enough to connect and shake hands in a data centre.
	minAttempt = 100 * time.Millisecond
)

// detour is the part of a connection's state that matters after it has broken.
type detour struct {
	guard  *guard // nil: the connection is not replaced
	probed bool   // without a guard: the kernel probes the other host
	down   bool   // the stream has left its connection, and has no other one
	turn   int    // number of the last handshake
	// shaking is held during a handshake that another rank began, over the connection earlier. It is taken before the
	// endpoint's lock.
	shaking   sync.Mutex
	earlier   net.Conn
	replaying bool      // the connection first carries bytes that the journal holds
	busy      bool      // a goroutine works on the stream
	backlog   []byte    // received from earlier connections, not consumed
	cause     error     // why the stream has no connection
	since     time.Time // of the present connection, or of the end of the last one
	silent    int       // consecutive probes without an answer; see watch
	via       int       // the plane that carries the stream
	// The stream returns to its plane at homeAt, and stays away for hold next time.
	hold   time.Duration
	homeAt time.Time
}

// guard replaces the connections of an endpoint.
type guard struct {
	e    *endpoint
	o    Options
	l    *Listener
	ctx  context.Context
	stop func()
	wg   sync.WaitGroup
}

// newGuard gives an endpoint a guard, which then owns the listener.
func newGuard(e *endpoint, l *Listener, o *Options) error {
	ctx, cancel := context.WithCancel(context.Background())
	g := &guard{e: e, o: *o, l: l, ctx: ctx}
	for _, c := range e.conns {
		if err := g.probe(c.fd); err != nil {
			cancel()
			return fmt.Errorf("tcp: rank %d, plane %d of rank %d: %w", c.peer, c.plane, e.rank, err)
		}
		c.guard, c.hold = g, o.Heartbeat
	}
	g.stop = func() {
		cancel()
		_ = l.Close()
		g.wg.Wait()
	}
	e.guard = g
	for _, one := range l.ls {
		g.wg.Go(func() { _ = serve(ctx, one, len(e.conns)+guardHandshakes, g.accept) })
	}
	g.wg.Go(g.watch)
	return nil
}

// leave ends the use of a connection, and begins to resume its stream. The caller holds the endpoint's lock.
func (g *guard) leave(c *conn, cause error) {
	if c.down {
		return
	}
	now := time.Now()
	if c.via == c.plane {
		if now.Sub(c.homeAt) > holds*g.o.Heartbeat {
			c.hold = g.o.Heartbeat / 2
		}
		c.hold = min(2*c.hold, holds*g.o.Heartbeat)
		c.homeAt = now.Add(c.hold)
	}
	c.down, c.replaying, c.full = true, false, true
	c.readable = len(c.backlog) > 0
	c.cause, c.since, c.silent = cause, now, 0
	if !c.busy && g.ctx.Err() == nil {
		c.busy = true
		g.wg.Go(func() { g.recover(c) })
	}
}

// finish closes a connection after both ranks have left it. It returns the position of this rank in the stream, and
// the number of this handshake: a later handshake makes it void.
func (c *conn) finish() (at uint64, turn int) {
	if c.fd >= 0 {
		c.drain()
		// The connection may no longer reach the other rank: send nothing more.
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(c.fd)
		c.fd = -1
		c.readable = len(c.backlog) > 0
	}
	c.turn++
	return c.rxTotal, c.turn
}

// drain receives what the kernel has of a connection.
func (c *conn) drain() {
	at := len(c.backlog)
	for {
		if len(c.backlog) == cap(c.backlog) {
			c.backlog = append(c.backlog, make([]byte, maxPayload)...)[:len(c.backlog)]
		}
		n, _, err := unix.Recvfrom(c.fd, c.backlog[len(c.backlog):cap(c.backlog)], unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		c.backlog = c.backlog[:len(c.backlog)+n]
	}
	c.rxTotal += uint64(len(c.backlog) - at)
	if len(c.backlog) == 0 {
		c.backlog = nil
	}
}

// receiveBacklog is like receive for bytes of earlier connections.
func (c *conn) receiveBacklog(dst, room []byte) int {
	n := copy(dst, c.backlog)
	more := copy(room, c.backlog[n:])
	c.end += more
	c.last = n + more
	if c.backlog = c.backlog[n+more:]; len(c.backlog) == 0 {
		c.backlog = nil
		c.readable = !c.down || c.rxLost != nil // receive returns the error
	}
	return n + more
}

// give ends a stream with an error. The caller holds the endpoint's lock.
func (g *guard) give(c *conn, err error) {
	c.close()
	c.down, c.full, c.readable = true, true, true
	c.txLost, c.rxLost = err, err
	c.sent = journal{}
	g.e.poll.Wake()
}

// recover resumes the stream of a connection that is down, or gives it up. The rank with the higher number dials; the
// other one pokes it.
func (g *guard) recover(c *conn) {
	limit := g.o.Heartbeat / 4
	wait := max(limit/time.Duration(attempts*len(g.e.planes)), minAttempt)
	pokes, patience := c.peer > g.e.rank, limit
	var left time.Time
	var spent time.Duration
	for round := 0; ; round++ {
		begun := time.Now()
		since, down, cause := g.state(c)
		if !down {
			return
		}
		if errors.Is(cause, errLeft) || round > 0 { // the other rank is already resuming the stream
			select {
			case <-g.ctx.Done():
			case <-time.After(min(10*time.Millisecond<<min(round, 8), limit/attempts)):
			}
		}
		if since != left {
			if left, spent = since, 0; errors.Is(cause, errSilent) {
				spent = limit / 2 // the rank was silent before, too
			}
		}
		last := g.tryPlanes(c, wait)
		switch {
		case errors.Is(last, errMute): // no fault: wait ever longer, so that connections do not fill the process's queue
			wait, spent = min(2*wait, g.o.Heartbeat), 0
			continue
		case last == nil && pokes:
			patience = g.o.Heartbeat // the other rank dials
		case errors.Is(last, unix.ECONNREFUSED): // and no other plane reaches the rank
			patience = 0
		}
		if spent += min(time.Since(begun), limit); spent > patience { // if a round took longer, this process was stopped
			g.lose(c, cmp.Or(last, errIdle))
		}
	}
}

// tryPlanes makes an attempt on one plane after the other, until one succeeds or the stream has a connection. The error
// is that of the plane that tells most about the rank.
func (g *guard) tryPlanes(c *conn, limit time.Duration) (last error) {
	for _, via := range g.ways(c) {
		if _, down, _ := g.state(c); !down {
			return nil
		}
		err := g.attempt(c, via, limit)
		if err == nil {
			return nil
		}
		if errors.Is(err, errMute) || !errors.Is(last, errMute) && !errors.Is(last, unix.ECONNREFUSED) {
			last = err
		}
	}
	return last
}

// state returns since when and why a stream has no connection. If the stream has a connection, or no longer needs one,
// state ends the caller's work on the stream.
func (g *guard) state(c *conn) (since time.Time, down bool, cause error) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	down = c.down && c.rxLost == nil && g.ctx.Err() == nil
	c.busy = down
	return c.since, down, c.cause
}

// lose gives a stream up.
func (g *guard) lose(c *conn, last error) {
	g.e.mu.Lock()
	if !c.down || c.rxLost != nil {
		g.e.mu.Unlock()
		return
	}
	closed := errors.Is(last, unix.ECONNREFUSED)
	err := fmt.Errorf("%w (no other plane reaches the rank at %s: %w)", c.cause, g.o.Addrs[c.peer], last)
	if closed {
		err = c.loss(0)
	}
	if c.fd >= 0 {
		c.drain()
	}
	g.give(c, err)
	g.e.mu.Unlock()
	if !closed && g.o.Lost != nil {
		g.o.Lost(c.peer, err)
	}
}

// Causes of leaving a connection that still works, or that is silent.
var (
	errSilent = errors.New("no answer from its host")
	errLeft   = errors.New("the other rank has left the connection")
	errIdle   = errors.New("the rank answers, but does not resume the stream")
	errMute   = errors.New("its host answers, and its process does not")
	errReturn = errors.New("the plane carries connections again")
)

// ways returns the planes on which a rank tries to resume a stream, the most promising first.
func (g *guard) ways(c *conn) []int {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	n := len(g.e.planes)
	var good, bad []int
	if errors.Is(c.cause, errSilent) {
		bad = append(bad, c.via)
	} else {
		good = append(good, c.via)
	}
	for i := 1; i <= n; i++ {
		k := (c.via + i) % n
		if k == c.via {
			continue
		}
		if g.answers(k, c.peer) {
			good = append(good, k)
		} else {
			bad = append(bad, k)
		}
	}
	return append(good, bad...)
}

// answers reports whether a stream to a rank uses a plane and its probes are answered.
func (g *guard) answers(plane, peer int) bool {
	for _, c := range g.e.conns {
		if c.peer == peer && c.via == plane && !c.down && c.silent == 0 {
			return true
		}
	}
	return false
}
