package drivertest

import (
	"net"
	"testing"

	"lightpath/internal/require"
)

// Listen serves an address of this host, which it returns, like [Serve].
func Listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	Serve(t, l, serve)
	return l.Addr().String()
}

// Serve serves each connection on a goroutine of its own, and then closes it, until the test ends.
func Serve(t *testing.T, l net.Listener, serve func(net.Conn)) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
}
