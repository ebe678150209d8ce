package pieces

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim/device"
)

// TestServeWithoutDescriptors: a server that had no descriptor for a connection answers once there are some again.
func TestServeWithoutDescriptors(t *testing.T) {
	s, name, err := Serve(func(uint64) []device.Piece {
		fd, _ := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return []device.Piece{{FD: fd, Size: 1}}
	})
	require.NoError(t, err)
	defer s.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	connected := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name})
	time.Sleep(20 * time.Millisecond) // the server tries to accept
	require.NoError(t, errors.Join(connected, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit), unix.Close(fd)))
	all, err := Ask(name, 1)
	Close(all)
	assert.NoError(t, err)
}

// TestAsk: an answer has a size for each descriptor. Others are errors, and leave no descriptor behind.
func TestAsk(t *testing.T) {
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
		all, err := Ask(name, 3)
		if (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
		for k, p := range all {
			assert.NoError(t, unix.Close(p.FD))
			if c.ok && p.Size != int64(5+2*k) {
				t.Errorf("%d: piece %d has %d bytes", i, k, p.Size)
			}
		}
		if len(all) != len(c.fds) {
			t.Errorf("%d: %d descriptors, want %d", i, len(all), len(c.fds))
		}
		l.Close()
	}
	if _, err := Ask("lightpath-test-none", 3); err == nil {
		t.Error("pieces of no server")
	}
}

// TestServe: a server answers with the pieces that its owner exports, and closes their descriptors. It does not answer
// if there are none, or after its end.
func TestServe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	s, name, err := Serve(func(serial uint64) (all []device.Piece) {
		for i := range serial {
			fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			assert.NoError(t, err)
			all = append(all, device.Piece{FD: fd, Size: int64(serial + i)})
		}
		return all
	})
	require.NoError(t, err)
	if len(name) != NameBytes {
		t.Errorf("a name of %d bytes", len(name))
	}
	all, err := Ask(name, 2)
	require.NoError(t, err)
	if len(all) != 2 || all[0].Size != 2 || all[1].Size != 3 {
		t.Errorf("%+v", all)
	}
	if all, err := Ask(name, 0); len(all) != 0 || !errors.Is(err, errNone) {
		t.Errorf("of no pieces: %v, %v", all, err)
	}
	s.Close()
	if _, err := Ask(name, 2); err == nil {
		t.Error("an answer of a closed server")
	}
	Close(all)
	require.NoError(t, errors.Join(w.Close(), r.SetReadDeadline(time.Now().Add(time.Minute))))
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the server has kept a descriptor: %v", err)
	}
}
