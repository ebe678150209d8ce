package drivertest

import (
	"net"
	"testing"

	"lightpath/internal/require"
)

// Listen serves each connection on a goroutine of its own, and then closes it. It returns the address, where it listens
// until the test ends.
func Listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
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
	return l.Addr().String()
}
