package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/await"
	"lightpath/internal/require"
)

// overTCP returns the endpoint of rank 0 of 2 and the peer's end of its only connection. The peer's window is small, so
// bytes stay on the way while the peer does not read.
func overTCP(t *testing.T) (*endpoint, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		return errors.Join(err, set)
	}}
	far, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
	require.NoError(t, err)
	near, err := l.Accept()
	require.NoError(t, err)
	defer near.Close()
	fd, err := socketOf(near)
	require.NoError(t, err)
	e, err := newEndpoint(0, [][]int{{-1, fd}})
	require.NoError(t, err)
	t.Cleanup(func() {
		transporttest.Close(t, e)
		far.Close()
	})
	return e, far
}

// numbered sends frames of increasing numbers, and receives them at the other end.
type numbered struct {
	t         *testing.T
	e         *endpoint
	far       net.Conn
	sent, got uint64
}

// send sends a frame, and returns whether the kernel holds short frames then.
func (n *numbered) send(size int) (held bool) {
	n.t.Helper()
	payload := bytes.Repeat([]byte{byte(n.sent)}, size)
	if took, err := n.e.planes[0].TrySend(&wire.Header{Dst: 1, Op: n.sent}, payload); took != size || err != nil {
		n.t.Fatal(took, err)
	}
	n.sent++
	noDelay, err := unix.GetsockoptInt(n.e.conns[0].fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	require.NoError(n.t, err)
	return noDelay == 0
}

// receive receives all frames that were sent, and returns the number of the first prompt one, or of the next frame.
func (n *numbered) receive() (prompt uint64) {
	n.t.Helper()
	for prompt = n.sent; n.got < n.sent; n.got++ {
		var h wire.Header
		b := make([]byte, wire.HeaderSize)
		_, err := io.ReadFull(n.far, b)
		require.NoError(n.t, err)
		require.NoError(n.t, wire.Decode(b, &h))
		b = make([]byte, h.Length)
		_, err = io.ReadFull(n.far, b)
		require.NoError(n.t, err)
		if h.Op != n.got || !bytes.Equal(b, bytes.Repeat([]byte{byte(n.got)}, len(b))) {
			n.t.Fatalf("frame %d in place of %d, %x", h.Op, n.got, b)
		}
		if h.Flags&wire.Prompt != 0 {
			prompt = min(prompt, n.got)
		}
	}
	return prompt
}

// acknowledged waits until nothing is on the way.
func (n *numbered) acknowledged() {
	n.t.Helper()
	await.Until(n.t, "the acknowledgement", func() bool {
		q, err := n.e.conns[0].unacknowledged()
		return err == nil && q == 0
	})
}

// wait looks for a frame of the peer, and finds none.
func (n *numbered) wait() {
	n.t.Helper()
	h, _, err := n.e.planes[0].Peek(1)
	require.NoError(n.t, err)
	if h != nil {
		n.t.Fatal("a frame of the peer")
	}
}

// TestShortFramesJoin: when many short frames are on the way, the kernel joins the following ones, which are prompt. A
// longer frame, an empty wire or a word of the peer ends that, and no frame stays behind.
func TestShortFramesJoin(t *testing.T) {
	e, far := overTCP(t)
	n := &numbered{t: t, e: e, far: far}
	crowd := func() {
		t.Helper()
		n.send(16 << 10) // closes the window
		first := n.sent
		for i := range 3 * many {
			if held := n.send(8); held != (i >= many) {
				t.Fatalf("frame %d: held %v", i, held)
			}
			n.wait()
		}
		if held := n.send(joint + 1); held {
			t.Fatal("held with a longer frame")
		}
		for i := range many + 1 {
			n.wait()
			if held := n.send(joint); held != (i >= many) {
				t.Fatalf("frame %d of those after the longer one: held %v", i, held)
			}
		}
		if got := n.receive(); got != first+many-1 {
			t.Fatalf("frame %d is prompt, want %d", got, first+many-1)
		}
		n.acknowledged()
	}
	crowd()
	for range again - 1 { // the last frame was the first of these
		n.send(8)
		n.receive()
		n.acknowledged()
	}
	if held := n.send(8); held {
		t.Error("held with nothing on the way")
	}
	crowd()
	_, err := far.Write(frame(wire.Header{Src: 1, Length: 1}, "x"))
	require.NoError(t, err)
	await.Until(t, "the peer's frame", func() bool {
		h, _, err := e.planes[0].Peek(1)
		require.NoError(t, err)
		return h != nil
	})
	if held := n.send(8); held {
		t.Error("held after the peer's frame, with nothing on the way")
	}
	if got := n.receive(); got != n.sent {
		t.Errorf("frame %d is prompt", got)
	}
}

// TestStreamsJoin: the kernel joins short frames of a rank that has waited for no peer since the first of many, even if
// the peer has received all others. After a wait it counts anew.
func TestStreamsJoin(t *testing.T) {
	e, far := overTCP(t)
	n := &numbered{t: t, e: e, far: far}
	for _, waits := range []bool{true, false} {
		for i := range many + 1 {
			if waits && i == many/2 {
				n.wait()
			}
			if held := n.send(8); held != (!waits && i == many) {
				t.Fatalf("waits %v, frame %d: held %v", waits, i, held)
			}
			n.receive()
			n.acknowledged()
		}
		n.send(joint + 1) // forgets the frames so far
	}
}

// TestExchangesDoNotJoin: if a rank waits, and fewer short frames are on the way, each is sent at once.
func TestExchangesDoNotJoin(t *testing.T) {
	e, far := overTCP(t)
	n := &numbered{t: t, e: e, far: far}
	for range 8 {
		for range many / 2 {
			if held := n.send(8); held {
				t.Fatalf("frame %d is held", n.sent)
			}
		}
		n.wait()
		if got := n.receive(); got != n.sent {
			t.Fatalf("frame %d is prompt", got)
		}
		n.acknowledged()
	}
}

// TestPromptFrameIsAcknowledged checks that the rank acknowledges as soon as it has read a prompt frame.
func TestPromptFrameIsAcknowledged(t *testing.T) {
	e, far := overTCP(t)
	fd := e.conns[0].fd
	for i, flags := range []uint16{wire.Prompt, 0, wire.Prompt, wire.Prompt} {
		require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0))
		_, err := far.Write(frame(wire.Header{Src: 1, Length: 1, Flags: flags}, "x"))
		require.NoError(t, err)
		await.Until(t, "the frame", func() bool {
			h, _, err := e.planes[0].Peek(1)
			require.NoError(t, err)
			return h != nil
		})
		e.planes[0].Release(1)
		quick, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK)
		require.NoError(t, err)
		if flags != 0 && quick == 0 {
			t.Errorf("frame %d: the kernel may wait before it acknowledges", i)
		}
	}
}

// TestJoiningAllocatesNothing sends frames that the kernel holds.
func TestJoiningAllocatesNothing(t *testing.T) {
	e, far := overTCP(t)
	n := &numbered{t: t, e: e, far: far}
	n.send(16 << 10)
	for range many + 1 {
		n.send(8)
	}
	h, payload := wire.Header{Dst: 1}, make([]byte, 8)
	if got := testing.AllocsPerRun(4*again, func() {
		if took, err := e.planes[0].TrySend(&h, payload); took != len(payload) || err != nil {
			t.Fatal(took, err)
		}
	}); got != 0 {
		t.Errorf("%v allocations per frame", got)
	}
	if !e.conns[0].bundle.held {
		t.Error("the frames were not held")
	}
}
