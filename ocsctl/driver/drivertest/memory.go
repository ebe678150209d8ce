package drivertest

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// memory is a listener whose connections stay in memory. A goroutine that waits for one lets the fake clock of
// testing/synctest advance; a goroutine that waits for a socket does not.
type memory struct{ *bufconn.Listener }

func newMemory() memory { return memory{bufconn.Listen(1 << 16)} }

// address is that of all connections. It is a loopback address, because drivers send no secrets in clear elsewhere.
var address = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 830}

func (memory) Addr() net.Addr { return address }

func (m memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := m.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

// conn is the caller's end of a connection.
type conn struct{ net.Conn }

func (conn) RemoteAddr() net.Addr { return address }
