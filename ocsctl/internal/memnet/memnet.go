// Package memnet is a network in memory, for tests on the fake clock of testing/synctest. A goroutine that waits for
// one of its connections lets that clock advance; a goroutine that waits for a socket does not.
//
// Layer: tests only.
package memnet

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Listener accepts connections from its own Dial alone.
type Listener struct{ *bufconn.Listener }

// Listen returns a new listener. The caller closes it.
func Listen() Listener { return Listener{bufconn.Listen(1 << 16)} }

// address is a loopback address, because clients and servers refuse other hosts without encryption.
var address = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// Addr returns a loopback address, the same for all listeners.
func (Listener) Addr() net.Addr { return address }

// Dial opens a connection, whatever the network and the address.
func (l Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

// conn is the caller's end of a connection.
type conn struct{ net.Conn }

func (conn) RemoteAddr() net.Addr { return address }
