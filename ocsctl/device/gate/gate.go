// Package gate admits clients to the server of a device model, as a switch does: while it is up, and not too many. When
// the switch reboots, their connections end.
//
// Layer: above ocsctl/device, below the servers of protocols. It knows no protocol.
package gate

import (
	"net"
	"sync"

	"lightpath/ocsctl/device"
)

// Gate is a listener for the clients of a device.
type Gate struct {
	net.Listener
	d    *device.Device
	most int
	stop func() // ends watching the device

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

// New returns a listener that accepts clients from l, at most so many at a time. Others are turned away at once.
func New(l net.Listener, d *device.Device, most int) *Gate {
	g := &Gate{Listener: l, d: d, most: most, open: make(map[net.Conn]bool)}
	g.stop = d.Watch(func(e device.Event) {
		if e.Kind == device.Rebooted {
			g.drop()
		}
	})
	return g
}

// Accept implements net.Listener.
func (g *Gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.admit(c) {
			return &conn{Conn: c, gate: g}, nil
		}
		c.Close()
	}
}

func (g *Gate) admit(c net.Conn) bool {
	up := g.d.Up()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !up || g.closed || len(g.open) == g.most {
		return false
	}
	g.open[c] = true
	return true
}

// drop ends all connections.
func (g *Gate) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		c.Close()
	}
}

// Close closes the listener and ends all connections.
func (g *Gate) Close() error {
	g.stop()
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	err := g.Listener.Close()
	g.drop()
	return err
}

// conn makes room for another client when it is closed.
type conn struct {
	net.Conn
	gate *Gate
}

func (c *conn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.open, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
