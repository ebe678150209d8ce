package tcp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/await"
	"lightpath/internal/require"
)

// pair returns the endpoint of rank 0 of 2 and the peer's end of its only connection.
func pair(t testing.TB) (transport.Endpoint, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	e, err := newEndpoint(0, [][]int{{-1, fds[0]}})
	require.NoError(t, err)
	t.Cleanup(func() {
		transporttest.Close(t, e)
		_ = unix.Close(fds[1])
	})
	return e, fds[1]
}

func frame(h wire.Header, data string) []byte {
	b := make([]byte, wire.HeaderSize)
	wire.Encode(&h, b)
	return append(b, data...)
}

// TestBytewiseStream receives frames of a stream that arrives byte by byte.
func TestBytewiseStream(t *testing.T) {
	e, far := pair(t)
	p := e.Planes()[0]
	stream := append(frame(wire.Header{Src: 1, Length: 5}, "hello"),
		frame(wire.Header{Src: 1, Offset: 5, Length: 1}, "!")...)
	got := ""
	for i := range stream {
		if _, err := unix.Write(far, stream[i:i+1]); err != nil {
			t.Fatal(err)
		}
		for {
			h, data, err := p.Peek(1)
			require.NoError(t, err)
			if h == nil {
				break
			}
			got += string(data)
			p.Release(1)
		}
	}
	if got != "hello!" {
		t.Errorf("got %q", got)
	}
}

func TestCorruptStream(t *testing.T) {
	for name, b := range map[string][]byte{
		"garbage":    make([]byte, wire.HeaderSize),
		"empty":      frame(wire.Header{Src: 1}, ""),
		"too long":   frame(wire.Header{Src: 1, Length: maxPayload + 1}, ""),
		"from other": frame(wire.Header{Src: 2, Length: 1}, "x"),
		"to other":   frame(wire.Header{Src: 1, Dst: 1, Length: 1}, "x"),
		"plane":      frame(wire.Header{Src: 1, Plane: 1, Length: 1}, "x"),
	} {
		e, far := pair(t)
		if _, err := unix.Write(far, b); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if h, _, err := e.Planes()[0].Peek(1); h != nil || !errors.Is(err, transport.ErrCorrupt) {
				t.Errorf("%s: %v, %v", name, h, err)
			}
		}
	}
}

// TestTruncatedFrame checks that Peek returns ErrPeerLost, and no part of the frame, if the stream ends in a frame.
func TestTruncatedFrame(t *testing.T) {
	e, far := pair(t)
	if _, err := unix.Write(far, frame(wire.Header{Src: 1, Length: 5}, "hel")); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, unix.Shutdown(far, unix.SHUT_WR))
	for {
		h, _, err := e.Planes()[0].Peek(1)
		if h != nil {
			t.Fatal("Peek returned a part of a frame")
		}
		if errors.Is(err, transport.ErrPeerLost) {
			return
		}
		require.NoError(t, err)
	}
}

// TestEndWithLastFrame checks that Peek returns the last frame and then ErrPeerLost if the end of the stream arrives
// with the last frame. The kernel reports the end only once, possibly before the frame has been received.
func TestEndWithLastFrame(t *testing.T) {
	e, far := pair(t)
	p := e.Planes()[0]
	for range 2 { // the first Peek gets EAGAIN
		if h, _, err := p.Peek(1); h != nil || err != nil {
			t.Fatal(h, err)
		}
	}
	if _, err := unix.Write(far, frame(wire.Header{Src: 1, Length: 5}, "hello")); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, unix.Shutdown(far, unix.SHUT_WR))
	if h, data, err := p.Peek(1); h == nil || string(data) != "hello" || err != nil {
		t.Fatal(h, data, err)
	}
	p.Release(1)
	for range 2 {
		if _, _, err := p.Peek(1); !errors.Is(err, transport.ErrPeerLost) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := p.(transport.Lander).Head(1); !errors.Is(err, transport.ErrPeerLost) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// TestLandAfterPeek calls Land for a frame that Peek has returned and the caller has not released.
func TestLandAfterPeek(t *testing.T) {
	e, far := pair(t)
	p := e.Planes()[0].(transport.Lander)
	b := append(frame(wire.Header{Src: 1, Length: 9}, "see it go"),
		frame(wire.Header{Src: 1, Offset: 9, Length: 4}, "next")...)
	if _, err := unix.Write(far, b); err != nil {
		t.Fatal(err)
	}
	if h, _, err := p.Peek(1); h == nil || err != nil {
		t.Fatal(h, err)
	}
	var dst [20]byte
	if n, err := p.Land(1, dst[:4]); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if h, data, err := p.Peek(1); h == nil || h.Offset != 4 || string(data) != "it go" || err != nil {
		t.Fatalf("%v %q %v", h, data, err)
	}
	if n, err := p.Land(1, dst[4:]); n != 5 || err != nil || string(dst[:9]) != "see it go" {
		t.Fatalf("%d %v %q", n, err, dst)
	}
	if n, err := p.Land(1, dst[:]); n != 0 || err != nil {
		t.Fatalf("Land before Head returned %d bytes, %v", n, err)
	}
	if h, data, err := p.Peek(1); h == nil || string(data) != "next" || err != nil {
		t.Fatalf("%v %q %v", h, data, err)
	}
}

// TestReceiveSizes checks how many payload bytes arrive in the buffer together with a header: all of a small frame,
// and few of a large frame, whose rest Land receives directly.
func TestReceiveSizes(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	e, err := newEndpoint(0, [][]int{{-1, fds[0]}})
	require.NoError(t, err)
	defer transporttest.Close(t, e)
	defer func() { _ = unix.Close(fds[1]) }()
	c, p := e.conns[0], e.planes[0].(transport.Lander)
	for _, tc := range []struct{ size, buffered int }{
		{100, 100},
		{shortCall - wire.HeaderSize, shortCall - wire.HeaderSize},
		{4 * shortCall, shortCall - wire.HeaderSize},
		{4 * shortCall, lookahead - wire.HeaderSize},
		{100, 100},
	} {
		b := frame(wire.Header{Src: 1, Length: uint32(tc.size)}, string(make([]byte, tc.size)))
		if _, err := unix.Write(fds[1], b); err != nil {
			t.Fatal(err)
		}
		if h, err := p.Head(1); h == nil || err != nil {
			t.Fatal(h, err)
		}
		if got := c.end - c.start; got != tc.buffered {
			t.Errorf("frame of %d bytes: %d arrive with its header, want %d", tc.size, got, tc.buffered)
		}
		for left := make([]byte, tc.size); len(left) > 0; {
			n, err := p.Land(1, left)
			require.NoError(t, err)
			left = left[n:]
		}
	}
}

// TestWakesForMuch checks that a rank which sleeps for a large frame wakes when much of it has arrived, or its end.
// Then it wakes for any byte of the next header.
func TestWakesForMuch(t *testing.T) {
	e, far := overTCP(t)
	p, dst := e.planes[0].(transport.Lander), make([]byte, 2*minPiece)
	size := minPiece + shortCall + 1
	stream := append(frame(wire.Header{Src: 1, Length: uint32(size)}, string(make([]byte, size))),
		frame(wire.Header{Src: 1, Length: 1}, "x")...)
	landed := 0
	receive := func() { // all that is reported
		for idle := 0; idle < 2; idle++ {
			e.pollReady(&e.conns[0].rxPoll) // the first of two may do nothing
			h, err := p.Head(1)
			require.NoError(t, err)
			if h == nil {
				continue
			}
			n, err := p.Land(1, dst[landed:])
			require.NoError(t, err)
			if landed += n; n > 0 {
				idle = -1
			}
		}
	}
	// Each part is sent while the rank sleeps. wakes: it must wake then.
	for _, part := range []struct {
		bytes int
		wakes bool
	}{
		{wire.HeaderSize + 1, true}, {10000, false}, {minPiece - 10000, true}, {shortCall, true}, {1, true},
	} {
		receive()
		e.Wait(e.Arm(), time.Nanosecond)
		for piece := range slices.Chunk(stream[:part.bytes], 4000) { // large segments wake a rank whose window is small
			_, err := far.Write(piece)
			require.NoError(t, err)
		}
		stream = stream[part.bytes:]
		if part.wakes {
			await.Until(t, "an event", func() bool { return e.poll.Sleep(0) })
			continue
		}
		await.Until(t, "the bytes", func() bool {
			n, err := unix.IoctlGetInt(e.conns[0].fd, unix.SIOCINQ)
			return err == nil && n >= part.bytes
		})
		if e.poll.Sleep(0) {
			t.Fatalf("%d bytes wake the rank", part.bytes)
		}
	}
	if landed != size {
		t.Errorf("%d of %d bytes have landed", landed, size)
	}
}

// TestUnreadDataWakesOnce checks that Wait sleeps although unread data has arrived before.
func TestUnreadDataWakesOnce(t *testing.T) {
	e, far := pair(t)
	if _, err := unix.Write(far, frame(wire.Header{Src: 1, Length: 1}, "x")); err != nil {
		t.Fatal(err)
	}
	if h, _, err := e.Planes()[0].Peek(1); h == nil || err != nil {
		t.Fatal(h, err)
	}
	if _, err := unix.Write(far, frame(wire.Header{Src: 1, Offset: 1, Length: 1}, "y")); err != nil {
		t.Fatal(err)
	}
	e.Wait(e.Arm(), time.Hour) // the edge
	te := e.(*endpoint)
	te.mu.Lock()
	te.poll.Poll()
	te.mu.Unlock()
	if te.poll.Sleep(0) {
		t.Error("Wait would not sleep with an unread frame in the socket")
	}
}

// TestArrivalOnAnotherConnectionWakes checks that Wait returns if a Peek of one connection polls the arrival on another
// connection, whose Peek came before.
func TestArrivalOnAnotherConnectionWakes(t *testing.T) {
	var near, far [3]int
	for peer := 1; peer < 3; peer++ {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		near[peer], far[peer] = fds[0], fds[1]
		defer func() { _ = unix.Close(fds[1]) }()
	}
	e, err := newEndpoint(0, [][]int{near[:]})
	require.NoError(t, err)
	defer transporttest.Close(t, e)
	peekNothing := func(src int) {
		t.Helper()
		if h, _, err := e.Planes()[0].Peek(src); h != nil || err != nil {
			t.Fatal(h, err)
		}
	}
	for range 3 {
		peekNothing(1)
		peekNothing(2)
	}
	armed := e.Arm()
	peekNothing(1)
	peekNothing(2)
	if _, err := unix.Write(far[2], frame(wire.Header{Src: 2, Length: 1}, "x")); err != nil {
		t.Fatal(err)
	}
	peekNothing(1)
	e.Wait(armed, time.Hour)
}

// FuzzStream receives arbitrary bytes with Peek or Land. Every frame must be received in order and with its exact
// length, until an error or until the bytes end.
func FuzzStream(f *testing.F) {
	f.Add(frame(wire.Header{Src: 1, Length: 2}, "ab"))
	f.Add(append(frame(wire.Header{Src: 1, Length: 1}, "a"), 1, 2, 3))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newConn(-1, 0, 1, new(uint32))
		c.readable = false // there is no socket
		c.end = copy(c.buf, b)
		for given, taken := c.end, 0; ; {
			if err := c.parse(0); err != nil || !c.hasHeader {
				return
			}
			left, n := int(c.hdr.Length), 0
			if taken += wire.HeaderSize; left%2 == 0 {
				dst := make([]byte, left+8)
				n, _ = c.receiveInto(dst)
				if n > left || string(dst[n:]) != string(make([]byte, left+8-n)) {
					t.Fatalf("Land wrote %d bytes of a frame of %d, or beyond it", n, left)
				}
			} else if c.choosePiece() {
				n = len(c.pieceData())
				c.release()
			}
			if taken += n; n < left {
				if taken < given && left%2 == 0 {
					t.Fatalf("%d of %d bytes taken, %d of the frame's %d", taken, given, n, left)
				}
				return
			}
		}
	})
}
