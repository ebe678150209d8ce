package tcp

import (
	"errors"
	"fmt"
	"time"

	"lightpath/collectives/transport"

	"golang.org/x/sys/unix"
)

// The kernels of both hosts answer each other's probes: keep-alive probes of an idle connection, retransmissions of one
// with data. So a process that computes or is stopped is no fault, and neither is a full receive window.

const (
	// ticks is the number of times per heartbeat that a rank looks at its connections.
	ticks = 16
	// TCP states of struct tcp_info.
	stateEstablished = 1
	stateClosed      = 7
)

// probe makes the kernel probe the other host of an idle connection.
func (g *guard) probe(fd int) error {
	const count = 16 // watch ends the connection before
	return keepAlive(fd, max(1, int(g.o.Heartbeat/(5*time.Second))), unix.TCP_KEEPCNT, count)
}

// probe makes the kernel probe the other host of an idle connection that is never replaced. The kernel ends it after
// the same silence as a connection with data.
func (c *conn) probe() {
	const retries = 15 * time.Minute // Linux's tcp_retries2
	if c.probed {
		return
	}
	c.probed = true
	// Without probes there is only less to report.
	_ = keepAlive(c.fd, 1, unix.TCP_USER_TIMEOUT, int(retries/time.Millisecond))
}

// keepAlive has the kernel probe an idle connection each gap seconds. limit is the option that ends the connection.
func keepAlive(fd, gap, limit, value int) error {
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, limit, value},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, gap},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, gap},
	} {
		// Tests use sockets that are not TCP and do not have these options.
		err := unix.SetsockoptInt(fd, o.level, o.name, o.value)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("keep-alive: %w", err)
		}
	}
	return nil
}

// watch looks at all connections until the guard stops. It leaves those whose probes are not answered, and takes
// streams back to their planes.
func (g *guard) watch() {
	tick := time.NewTicker(g.o.Heartbeat / ticks)
	defer tick.Stop()
	for {
		select {
		case <-g.ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range g.e.conns {
				g.look(c, now)
			}
		}
	}
}

// look checks one connection.
func (g *guard) look(c *conn, now time.Time) {
	g.e.mu.Lock()
	defer g.e.mu.Unlock()
	if c.down || g.e.poll.Closed() {
		return
	}
	info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	switch {
	case err != nil:
		return
	case info.State == stateClosed:
		g.leave(c, c.loss(unix.ECONNRESET))
		return
	case info.State == stateEstablished && unanswered(info, g.o.Heartbeat*5/8):
		c.silent++
	default:
		c.silent = 0
	}
	if c.silent > 1 {
		g.leave(c, fmt.Errorf("%w: rank %d, plane %d: %w for %v", transport.ErrPeerLost, c.peer, c.plane, errSilent,
			time.Duration(info.Last_ack_recv)*time.Millisecond))
		return
	}
	if c.via != c.plane && c.peer < g.e.rank && !c.busy && now.After(c.homeAt) {
		c.busy = true
		g.wg.Go(func() { g.home(c) })
	}
}

// unanswered reports whether the other host has answered nothing for a time in which it was probed.
func unanswered(info *unix.TCPInfo, limit time.Duration) bool {
	return (info.Probes > 0 || info.Retransmits > 0) && time.Duration(info.Last_ack_recv)*time.Millisecond >= limit
}

// home returns a stream to its own plane, if the plane carries connections again and the other rank answers. A process
// that is stopped does not, and its stream must not leave a connection that works.
func (g *guard) home(c *conn) {
	err := g.call(c, c.plane, forAnswer, g.o.Heartbeat/4)
	if err == nil {
		err = g.attempt(c, c.plane, g.o.Heartbeat/4)
	}
	g.e.mu.Lock()
	if err != nil {
		c.hold = min(2*c.hold, holds*g.o.Heartbeat)
		c.homeAt = time.Now().Add(c.hold)
	}
	g.e.mu.Unlock()
	g.recover(c) // returns at once if the stream has a connection
}
