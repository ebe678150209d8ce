package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lightpath/internal/require"
)

// TestNotify: the datagram reaches the service manager's socket, a file or an abstract one.
func TestNotify(t *testing.T) {
	for name, address := range map[string][2]string{
		"file":     {filepath.Join(t.TempDir(), "s"), ""},
		"abstract": {fmt.Sprintf("\x00lightpath-test-%d", os.Getpid()), fmt.Sprintf("@lightpath-test-%d", os.Getpid())},
	} {
		if address[1] == "" {
			address[1] = address[0]
		}
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address[0], Net: "unixgram"})
		require.NoError(t, err)
		defer HangUp(l)
		t.Setenv("NOTIFY_SOCKET", address[1])
		if err := Notify(Ready); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		require.NoError(t, l.SetReadDeadline(time.Now().Add(60*time.Second)))
		buffer := make([]byte, 64)
		if n, err := l.Read(buffer); err != nil || string(buffer[:n]) != "READY=1" {
			t.Errorf("%s: %q, %v", name, buffer[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if err := Notify(Stopping); err == nil {
		t.Error("nobody listens, and no error")
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Stopping); err != nil {
		t.Error(err)
	}
}
