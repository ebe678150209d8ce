// Package admission limits connections without requests. A connection is pending until its first request. If too many
// are pending, the oldest one of the source with the most is closed. So a peer that makes its request at once is always
// served.
//
// Layer: below ocsctl's servers. It knows no protocol. Deadlines of handshakes are the servers'.
package admission

import (
	"container/list"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ErrGaveWay is the logged reason for closing a pending connection.
var ErrGaveWay = errors.New("too many connections without a request: the oldest gave way")

// Options bound the pending connections of a listener.
type Options struct {
	Pending   int // most of all sources
	PerSource int // most of one address, or of one /64 of IPv6
	Refused   *Refusals
}

// Listener accepts connections, each of which is a [*Conn].
type Listener struct {
	net.Listener
	o Options

	mu      sync.Mutex
	pending int
	sources map[string]*list.List // of *Conn, the oldest first; none is empty
}

// Listen bounds the pending connections of l. Accept never waits for one of them.
func Listen(l net.Listener, o Options) *Listener {
	return &Listener{Listener: l, o: o, sources: make(map[string]*list.List)}
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, listener: l, source: source(raw.RemoteAddr())}
	c.Wait()
	return c, nil
}

// source returns the key by which connections are counted. A host has all IPv6 addresses of its /64.
func source(a net.Addr) string {
	address, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.Network()
	}
	ip := address.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return ip.String()
	}
	return prefix.String()
}

// Conn is a connection of a [Listener]. Methods may be called from any goroutine, and those of nil do
// nothing.
type Conn struct {
	net.Conn
	listener *Listener
	source   string
	place    *list.Element // among the pending ones of its source; nil: admitted or closed
	closed   bool
}

// Of returns the Conn that c is or is built on, such as the one below TLS; nil if there is none.
func Of(c net.Conn) *Conn {
	for c != nil {
		switch on := c.(type) {
		case *Conn:
			return on
		case interface{ NetConn() net.Conn }:
			c = on.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// Admit records that the connection has made a request: it is no longer pending.
func (c *Conn) Admit() {
	if c == nil {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.listener.remove(c)
}

// Wait makes the connection pending: it is new, or its requests have been answered. If too many are pending, it closes
// another one.
func (c *Conn) Wait() {
	if c == nil {
		return
	}
	if last := c.listener.add(c); last != nil {
		c.listener.o.Refused.Note(last.RemoteAddr(), ErrGaveWay)
		_ = last.Close()
	}
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	c.listener.mu.Lock()
	c.closed = true
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// add makes c the newest pending connection, and returns the connection to close, nil for none.
func (l *Listener) add(c *Conn) (last *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
	if c.closed {
		return nil
	}
	if own := l.sources[c.source]; own != nil && own.Len() >= l.o.PerSource {
		last = own.Front().Value.(*Conn)
	} else if l.pending >= l.o.Pending {
		most := 0
		for _, of := range l.sources {
			if of.Len() > most {
				most, last = of.Len(), of.Front().Value.(*Conn)
			}
		}
	}
	if last != nil {
		l.remove(last)
	}
	if l.sources[c.source] == nil {
		l.sources[c.source] = list.New()
	}
	c.place = l.sources[c.source].PushBack(c)
	l.pending++
	return last
}

// remove removes c from the pending connections.
func (l *Listener) remove(c *Conn) {
	if c.place == nil {
		return
	}
	own := l.sources[c.source]
	own.Remove(c.place)
	if own.Len() == 0 {
		delete(l.sources, c.source)
	}
	c.place = nil
	l.pending--
}

// Refusals logs refused connections in few lines: the first at once, later ones together.
type Refusals struct {
	log   *slog.Logger
	every time.Duration

	mu    sync.Mutex
	count int // since the last line
	from  net.Addr
	why   error
	timer *time.Timer // until the next line; nil: the next refusal is logged at once
}

// logEvery is the least time between two lines about refused connections.
const logEvery = 10 * time.Second

// NewRefusals returns a log of refused connections; log nil: nothing is logged.
func NewRefusals(log *slog.Logger) *Refusals {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Refusals{log: log, every: logEvery}
}

// Note notes that a connection was refused, and why.
func (r *Refusals) Note(from net.Addr, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.from, r.why = from, why
	if r.timer == nil {
		r.write()
	}
}

// write logs the refusals since the last line, and restarts the timer. The caller holds r.mu.
func (r *Refusals) write() {
	if r.timer = nil; r.count == 0 {
		return
	}
	r.log.Warn("connections refused", "count", r.count, "last from", r.from.String(), "last reason", r.why)
	r.count = 0
	r.timer = time.AfterFunc(r.every, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.write()
	})
}
