package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"

	"golang.org/x/sys/unix"
)

// until calls f until it returns an error.
func until(t *testing.T, e transport.Endpoint, f func() error) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; {
		armed := e.Arm()
		if err := f(); err != nil {
			return err
		}
		e.Wait(armed, 10*time.Millisecond)
	}
	t.Fatal("no error in a minute")
	return nil
}

// drop closes the socket behind a descriptor. The descriptor, which the endpoint still closes, becomes one end of a
// broken socket pair.
func drop(t *testing.T, fd int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	require.NoError(t, errors.Join(unix.Dup3(ends[0], fd, unix.O_CLOEXEC), unix.Close(ends[0]), unix.Close(ends[1])))
}

// TestConnectionReset checks that both ends of a reset connection return ErrPeerLost with the peer and the plane. The
// other plane continues. A new communicator can use the plane again.
func TestConnectionReset(t *testing.T) {
	e := connect(t, "127.0.0.1:0", 3, 2)
	cut := e[0].Planes()[1].(*plane).conns[2].fd
	require.NoError(t, unix.SetsockoptLinger(cut, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	drop(t, cut) // resets the connection
	for _, end := range []struct{ rank, peer int }{{0, 2}, {2, 0}} {
		p := e[end.rank].Planes()[1].(transport.Lander)
		h := wire.Header{Src: uint16(end.rank), Dst: uint16(end.peer), Plane: 1}
		want := fmt.Sprintf("rank %d", end.peer)
		for name, f := range map[string]func() error{
			"Peek":    func() error { _, _, err := p.Peek(end.peer); return err },
			"Head":    func() error { _, err := p.Head(end.peer); return err },
			"TrySend": func() error { _, err := p.TrySend(&h, []byte("x")); return err },
		} {
			err := until(t, e[end.rank], f)
			if !errors.Is(err, transport.ErrPeerLost) || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "plane 1") {
				t.Errorf("rank %d, %s: %v", end.rank, name, err)
			}
		}
	}
	// Plane 0 still works.
	var zero []transport.Endpoint
	for _, one := range e {
		zero = append(zero, &onePlane{one})
	}
	suite("").Exchange(t, zero, 5)
	for _, one := range e {
		transporttest.Close(t, one)
	}
	again := connect(t, "127.0.0.1:0", 3, 2)
	suite("").Exchange(t, again, 3)
	for _, one := range again {
		transporttest.Close(t, one)
	}
}

// onePlane is the first plane of an endpoint.
type onePlane struct{ transport.Endpoint }

func (o *onePlane) Planes() []transport.Plane { return o.Endpoint.Planes()[:1] }

// TestCorruptHeader flips every bit of a header and sets wrong lengths and flows. The receiver must return ErrCorrupt
// with the rank and the plane, and no byte of the frame.
func TestCorruptHeader(t *testing.T) {
	good := frame(wire.Header{Src: 1, Length: 8, Offset: 64, Op: 3}, "payload!")
	check := func(name string, bad []byte) {
		t.Helper()
		c := newConn(-1, 0, 1, new(uint32))
		c.end = copy(c.buf, bad)
		c.readable = false
		err := c.parse(0)
		if !errors.Is(err, transport.ErrCorrupt) || !strings.Contains(err.Error(), "rank 1, plane 0") {
			t.Errorf("%s: %v", name, err)
		}
		if c.hasHeader || c.choosePiece() {
			t.Errorf("%s: Peek returns the frame", name)
		}
	}
	for bit := range 8 * wire.HeaderSize {
		bad := append([]byte(nil), good...)
		bad[bit/8] ^= 1 << (bit % 8)
		check(fmt.Sprintf("bit %d", bit), bad)
	}
	for _, length := range []uint32{0, maxPayload + 1, 1 << 31} {
		h := wire.Header{Src: 1, Length: length}
		b := make([]byte, wire.HeaderSize)
		wire.Encode(&h, b)
		check("length", b)
	}
	for _, h := range []wire.Header{{Src: 2, Length: 1}, {Src: 1, Dst: 1, Length: 1}, {Src: 1, Plane: 1, Length: 1}} {
		check("another flow", frame(h, "x"))
	}
	if binary.LittleEndian.Uint32(good) != wire.Magic {
		t.Fatal("the frame before damage has no magic number")
	}
}

// TestInterruptedSystemCalls sends signals during random traffic. No data must be lost or repeated.
func TestInterruptedSystemCalls(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	defer signal.Stop(caught)
	e := connect(t, "127.0.0.1:0", 3, 2)
	var done atomic.Bool
	var storm sync.WaitGroup
	storm.Go(func() {
		for n := 0; !done.Load(); n++ {
			if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(20 * time.Microsecond)
		}
	})
	suite("").Exchange(t, e, 30)
	done.Store(true)
	storm.Wait()
	select {
	case <-caught:
	default:
		t.Error("the process received no signal")
	}
	for _, one := range e {
		transporttest.Close(t, one)
	}
}

// TestNoSIGPIPE checks that a send to a closed peer raises no SIGPIPE, which would end the host process.
func TestNoSIGPIPE(t *testing.T) {
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, syscall.SIGUSR1)
	signal.Notify(caught, syscall.SIGPIPE)
	defer signal.Stop(caught)
	e := connect(t, "127.0.0.1:0", 2, 1)
	transporttest.Close(t, e[1])
	p := e[0].Planes()[0]
	h := wire.Header{Dst: 1}
	err := until(t, e[0], func() error { _, err := p.TrySend(&h, []byte("hello")); return err })
	if !errors.Is(err, transport.ErrPeerLost) {
		t.Error(err)
	}
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1)) // arrives after any SIGPIPE
	if s := <-caught; s != syscall.SIGUSR1 {
		t.Error(s)
	}
	transporttest.Close(t, e[0])
}
