package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
)

// patience bounds every wait for what is bound to happen, however loaded the machine is.
const patience = 60 * time.Second

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and eBPF")
	}
}

// fabricFile returns a fabric whose name is the test's and this process's own.
func fabricFile(t testing.TB, ranks, planes int, rate string, forwarding bool) *fabric.Fabric {
	t.Helper()
	text := fmt.Sprintf("version: 1\nname: t%d-%s\nranks: %d\nforwarding: %v\nplanes:\n", os.Getpid(),
		t.Name(), ranks, forwarding)
	for j := range planes {
		text += fmt.Sprintf("  - {name: plane%d, bandwidth: %s, ocs: ocs0, interface: p%d}\n", j, rate, j)
	}
	text += "ocs:\n  - {name: ocs0, driver: emulator, reconfig: 2ms}\n"
	f, err := fabric.Decode([]byte(text))
	require.NoError(t, err)
	return f
}

// up builds a fabric for the time of a test.
func up(t testing.TB, f *fabric.Fabric) *State {
	t.Helper()
	needRoot(t)
	t.Cleanup(func() {
		if _, err := Down(f.Name, true); err != nil {
			t.Error(err)
		}
	})
	s, fresh, err := Up(f, Options{})
	require.NoError(t, err)
	if !fresh {
		t.Fatalf("fabric %s was there already", s.Name)
	}
	return s
}

func openBoard(t testing.TB, s *State) *Board {
	t.Helper()
	b, err := Open(s)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, b.Close())
	})
	return b
}

// host is a rank as a test plays it.
type host struct {
	t testing.TB
	*Port
}

// hosts opens the ports of all ranks.
func hosts(t testing.TB, s *State) []host {
	t.Helper()
	all := make([]host, s.Ranks)
	for r := range all {
		p, err := Attach(s, r)
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, p.Close())
		})
		all[r] = host{t, p}
	}
	return all
}

// frame is the payload of frames that tests send unless they care.
const frame = 1400

// send sends n datagrams of a plane to another rank; from any goroutine.
func (h host) send(plane int, to host, n, size int) {
	h.t.Helper()
	data := make([]byte, size)
	data[0] = byte(h.Rank)
	for range n {
		h.sendData(plane, to, data)
	}
}

// sendData sends a datagram, and waits for room where there is none.
func (h host) sendData(plane int, to host, data []byte) {
	h.t.Helper()
	at := to.Planes[plane].Local
	address := &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	fd := h.Planes[plane].FD
	for {
		err := unix.Sendto(fd, data, 0, address)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
			h.t.Errorf("rank %d: plane %d: %v", h.Rank, plane, err)
			return
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000); err != nil &&
			!errors.Is(err, unix.EINTR) {
			h.t.Error(err)
			return
		}
	}
}

// drained waits until the switch has taken everything that has been offered to it at this port.
func (h host) drained(plane int) {
	h.t.Helper()
	c := h.Planes[plane].Counters
	wait(h.t, func() bool { sent := c.Sent(); return sent == c.Offered() }, "rank %d: plane %d: %+v", h.Rank, plane, c)
}

// receive returns the senders of the datagrams that have arrived, in order.
func (h host) receive(plane int) []int {
	h.t.Helper()
	var from []int
	data := make([]byte, 9000)
	for {
		n, _, err := unix.Recvfrom(h.Planes[plane].FD, data, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return from
		}
		if err != nil || n == 0 {
			h.t.Fatalf("rank %d: plane %d: %d bytes, %v", h.Rank, plane, n, err)
		}
		from = append(from, int(data[0]))
	}
}

// expect waits for n datagrams from a rank, and for nothing else. Frames that the
// switch has taken may still be on their way.
func (h host) expect(plane, from, n int) {
	h.t.Helper()
	got := 0
	wait(h.t, func() bool {
		for _, r := range h.receive(plane) {
			if r != from {
				h.t.Fatalf("rank %d: plane %d: datagram from rank %d, want %d", h.Rank, plane, r, from)
			}
			got++
		}
		return got >= n
	}, "rank %d: plane %d: fewer than %d datagrams from rank %d", h.Rank, plane, n, from)
	if got != n {
		h.t.Fatalf("rank %d: plane %d: %d datagrams from rank %d, want %d", h.Rank, plane, got, from, n)
	}
}

// wait waits for a condition.
func wait(t testing.TB, done func() bool, format string, args ...any) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: "+format, append([]any{patience}, args...)...)
		}
	}
}

// nothing checks that nothing carries the name of a fabric.
func nothing(t testing.TB, name string) {
	t.Helper()
	if exists(name) {
		t.Errorf("something of fabric %s is left", name)
	}
	all, err := List()
	assert.NoError(t, err)
	for _, n := range all {
		if n.Name == name {
			t.Errorf("fabric %s is listed", name)
		}
	}
	entries, err := os.ReadDir(runDir)
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(strings.TrimPrefix(e.Name(), "."), name+".") {
			t.Errorf("%s/%s is left", runDir, e.Name())
		}
	}
}
