// Package direct tests that a client reaches its server directly, whatever proxy the environment names for the web.
//
// Layer: tests only.
package direct

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"lightpath/internal/require"
)

// Test fails if connect succeeds or asks a proxy. connect uses an address that does not exist, until its context ends.
// Test runs t again in another process, because a process reads its proxies only once.
func Test(t *testing.T, connect func(context.Context) error) {
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer proxy.Close()
	if os.Getenv("HTTPS_PROXY") == "" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), "HTTPS_PROXY=http://"+proxy.Addr().String())
		if text, err := again.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		require.NoError(t, proxy.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond)))
		if conn, err := proxy.Accept(); err == nil {
			conn.Close()
			t.Error("the proxy was asked")
		}
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if connect(ctx) == nil {
		t.Error("a server without an address answers")
	}
}
