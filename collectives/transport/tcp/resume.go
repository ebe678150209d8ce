package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"lightpath/collectives/transport"

	"golang.org/x/sys/unix"
)

// attempt connects to the other rank on the plane via, and resumes the stream or pokes the rank. It leaves the present
// connection of the stream when the new one is there.
func (g *guard) attempt(c *conn, via int, limit time.Duration) error {
	if c.peer > g.e.rank {
		return g.call(c, via, forPoke, limit)
	}
	return g.call(c, via, forResume, limit)
}

// call connects to the other rank on the plane via for a purpose of the stream.
func (g *guard) call(c *conn, via, purpose int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(g.ctx, limit)
	defer cancel()
	d := net.Dialer{LocalAddr: g.l.source(via), Timeout: g.o.Heartbeat / 4}
	to, err := d.DialContext(ctx, "tcp", planeAddr(g.o.Addrs[c.peer], via))
	if err != nil {
		return err
	}
	defer to.Close()
	defer interruptWith(ctx, to)()
	if purpose == forResume {
		g.e.mu.Lock()
		g.leave(c, errReturn)
		g.e.mu.Unlock()
	}
	answer, at, err := g.o.greet(to, g.o.hello(c.plane, via, c.peer, purpose))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errMute
	}
	if err != nil || purpose != forResume {
		return err
	}
	g.e.mu.Lock()
	mine, turn := c.finish()
	g.e.mu.Unlock()
	if _, err := to.Write(reply(answer, mine, g.o.Secret[:])); err != nil {
		return err
	}
	return g.resume(c, to, via, at, turn)
}

// accept resumes a stream over a connection that another rank has dialed.
func (g *guard) accept(from net.Conn) error {
	got, hello, err := g.o.readHello(from)
	if err != nil {
		return err
	}
	c := g.e.planes[got.plane].(*plane).conns[got.from]
	higher := c.peer > g.e.rank
	if got.purpose == forMesh || got.purpose > forAnswer || (got.purpose == forPoke) == higher {
		return errRejected
	}
	if got.purpose == forResume {
		defer c.shaking.Unlock()
		for !c.shaking.TryLock() { // the handshake before this one reads what has arrived, then ends
			g.e.mu.Lock()
			if c.earlier != nil {
				_ = c.earlier.SetReadDeadline(past)
			}
			g.e.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	}
	g.e.mu.Lock()
	lost := c.rxLost != nil || g.e.poll.Closed()
	// A poke may be older than the present connection. The other rank repeats it if it needs another one.
	stale := got.purpose == forPoke && time.Since(c.since) < g.o.Heartbeat/ticks
	if !lost && !stale && got.purpose != forAnswer {
		g.leave(c, errLeft)
	}
	var mine uint64
	var turn int
	if !lost && got.purpose == forResume {
		mine, turn = c.finish()
		c.earlier = from
	}
	g.e.mu.Unlock()
	if lost {
		return errRejected
	}
	answer := reply(hello, mine, g.o.Secret[:])
	if _, err := from.Write(answer); err != nil || got.purpose != forResume {
		return err
	}
	// The rank that dials may send data at once, which this rank's kernel acknowledges. So the handshake must not end
	// before it has read what has arrived.
	_, at, err := readReply(lastReader{from}, answer, g.o.Secret[:])
	if err != nil {
		return err
	}
	return g.resume(c, from, int(got.via), at, turn)
}

// lastReader reads what has arrived even after the deadline of the connection.
type lastReader struct{ net.Conn }

// Read implements [io.Reader].
func (l lastReader) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, rawErr := l.Conn.(*net.TCPConn).SyscallConn()
	if rawErr != nil {
		return n, err
	}
	var got int
	_ = raw.Control(func(fd uintptr) { got, _, _ = unix.Recvfrom(int(fd), b[n:], unix.MSG_DONTWAIT) })
	if got <= 0 {
		return n, err
	}
	return n + got, nil
}

// resume continues a stream over a connection, on the plane via. at is the position that the other rank has received,
// and turn the number of the handshake.
func (g *guard) resume(c *conn, over net.Conn, via int, at uint64, turn int) error {
	fd, err := socketOf(over)
	if err != nil {
		return err
	}
	if err := errors.Join(prepare(fd), g.o.setCongestion(fd), g.probe(fd)); err != nil {
		_ = unix.Close(fd)
		return err
	}
	g.e.mu.Lock()
	if !c.down || c.turn != turn || c.rxLost != nil || g.ctx.Err() != nil {
		g.e.mu.Unlock()
		_ = unix.Close(fd)
		return errRejected
	}
	if at < c.sent.base || at > c.sent.end {
		g.give(c, fmt.Errorf("%w: rank %d, plane %d: the rank has received %d bytes, and this rank holds %d to %d",
			transport.ErrPeerLost, c.peer, c.plane, at, c.sent.base, c.sent.end))
		g.e.mu.Unlock()
		_ = unix.Close(fd)
		return nil
	}
	if err := g.e.poll.Add(fd, events, int32(c.id)); err != nil {
		g.e.mu.Unlock()
		_ = unix.Close(fd)
		return err
	}
	cause := c.cause
	c.sent.trim(at)
	c.fd, c.via, c.down, c.silent, c.since = fd, via, false, 0, time.Now()
	c.bundle, c.least = bundle{}, 1 // the socket is new
	c.readable, c.ended, c.replaying, c.full = true, false, true, true
	g.e.mu.Unlock()
	g.e.poll.Wake()
	if g.o.Moved != nil {
		g.o.Moved(c.peer, c.plane, via, cause)
	}
	g.wg.Go(func() { g.replay(c, fd, at) })
	return nil
}

// replay sends the bytes of the journal over a new connection.
func (g *guard) replay(c *conn, fd int, at uint64) {
	const pause = time.Millisecond
	for g.ctx.Err() == nil {
		g.e.mu.Lock()
		if c.fd != fd || !c.replaying {
			g.e.mu.Unlock()
			return
		}
		b := c.sent.from(at)
		if b == nil {
			c.replaying, c.full = false, false
			g.e.mu.Unlock()
			g.e.poll.Wake()
			return
		}
		n, err := unix.SendmsgN(fd, b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if err == nil {
			at += uint64(n)
		} else if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			errno, _ := errors.AsType[unix.Errno](err)
			g.leave(c, c.loss(errno))
		}
		g.e.mu.Unlock()
		if err != nil {
			time.Sleep(pause)
		}
	}
}
