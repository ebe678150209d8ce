package peer

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// TestAskPieces: an answer has a size for each descriptor. Others are errors, and leave no descriptor behind.
func TestAskPieces(t *testing.T) {
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	fd := int(f.Fd())
	sizes := func(all ...uint64) (b []byte) {
		for _, s := range all {
			b = binary.NativeEndian.AppendUint64(b, s)
		}
		return b
	}
	for i, c := range []struct {
		body []byte
		fds  []int
		ok   bool
	}{
		{sizes(5, 7), []int{fd, fd}, true}, {sizes(5), []int{fd, fd}, false}, {sizes(5, 7), []int{fd}, false},
		{sizes(5), nil, false}, {nil, nil, false}, {sizes(5)[:7], []int{fd}, false},
	} {
		name := fmt.Sprintf("lightpath-test-%d-%d", os.Getpid(), i)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
		require.NoError(t, err)
		go func() {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			var question [8]byte
			_, _ = conn.Read(question[:])
			if len(c.body) > 0 && len(c.fds) > 0 {
				_, _, _ = conn.WriteMsgUnix(c.body, unix.UnixRights(c.fds...), nil)
			} else {
				_, _ = conn.Write(c.body)
			}
			_ = conn.Close()
		}()
		pieces, err := askPieces(name, 3)
		if (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
		for k, p := range pieces {
			assert.NoError(t, unix.Close(p.FD))
			if c.ok && p.Size != int64(5+2*k) {
				t.Errorf("%d: piece %d has %d bytes", i, k, p.Size)
			}
		}
		if len(pieces) != len(c.fds) {
			t.Errorf("%d: %d descriptors, want %d", i, len(pieces), len(c.fds))
		}
		l.Close()
	}
	if _, err := askPieces("lightpath-test-none", 3); err == nil {
		t.Error("pieces of no server")
	}
}
