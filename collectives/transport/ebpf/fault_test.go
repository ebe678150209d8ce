package ebpf

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
)

// fakeCounters implements [Counters] with values that a test sets.
type fakeCounters struct{ offered, sent, dark, misdirected, transit atomic.Uint64 }

func (c *fakeCounters) Offered() uint64           { return c.offered.Load() }
func (c *fakeCounters) Sent() uint64              { return c.sent.Load() }
func (c *fakeCounters) Dropped() (uint64, uint64) { return c.dark.Load(), c.misdirected.Load() }
func (c *fakeCounters) TransitOp() uint64         { return c.transit.Load() }

// pair returns two ranks on one plane of the loopback interface.
func pair(t *testing.T, window int, c *fakeCounters) (a, b *Endpoint) {
	t.Helper()
	l := loopback{host: "127.0.0.1", mtu: 1500, window: window}
	if c != nil {
		l.counters = func(rank, _ int) Counters {
			if rank == 0 {
				return c
			}
			return nil
		}
	}
	e := l.open(t, 2, 1)
	t.Cleanup(func() { transporttest.Close(t, e[0], e[1]) })
	return e[0].(*Endpoint), e[1].(*Endpoint)
}

// push calls TrySend once and returns the number of bytes accepted.
func push(t *testing.T, e *Endpoint, dst int, offset int, payload []byte) int {
	t.Helper()
	h := wire.Header{Comm: 0xc0, Op: 1, Epoch: 9, Offset: uint64(offset), Src: uint16(e.rank), Dst: uint16(dst)}
	n, err := e.Planes()[0].TrySend(&h, payload)
	require.NoError(t, err)
	return n
}

// next waits for a frame from src and returns its payload.
func next(t *testing.T, e *Endpoint, src int) []byte {
	t.Helper()
	for start := time.Now(); time.Since(start) < 20*time.Second; {
		armed := e.Arm()
		h, data, err := e.Planes()[0].Peek(src)
		require.NoError(t, err)
		if h != nil {
			return data
		}
		e.Wait(armed, time.Second)
	}
	t.Fatal("no frame has arrived")
	return nil
}

// checks runs the endpoint's checks for lost frames as often as a fault may need to be found.
func checks(e *Endpoint) {
	for i := range maxStill + 2 {
		e.checkTimers(time.Unix(0, 0).Add(time.Duration(i+1) * checkEvery))
	}
}

// until calls f until it returns an error.
func until(t *testing.T, e *Endpoint, f func() error) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < 20*time.Second; {
		armed := e.Arm()
		if err := f(); err != nil {
			return err
		}
		e.Wait(armed, 50*time.Millisecond)
	}
	t.Fatal("no error in 20 seconds")
	return nil
}

func peek(e *Endpoint, src int) func() error {
	return func() error { _, _, err := e.Planes()[0].Peek(src); return err }
}

// TestLostCreditIsRequested loses the credits of rank 1. Rank 0 must send nothing until its request is answered.
func TestLostCreditIsRequested(t *testing.T) {
	a, b := pair(t, 2, nil)
	real := b.control
	discard := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9"), netip.MustParseAddrPort("127.0.0.1:9")}
	b.control = counts.New(real.FD(), counts.Options{Rank: 1, Addrs: discard, Comm: 0xc0, Counts: 1, Secret: secret})
	frame := make([]byte, a.planes[0].payload)
	for i := range 2 {
		if n := push(t, a, 1, i, frame); n != len(frame) {
			t.Fatalf("frame %d: %d bytes accepted", i, n)
		}
	}
	for range 2 {
		next(t, b, 0)
		b.planes[0].Release(0)
	}
	armed := a.Arm()
	if n := push(t, a, 1, 2, frame); n != 0 {
		t.Fatalf("%d bytes accepted beyond the window", n)
	}
	a.Wait(armed, 10*time.Millisecond) // sends a request
	b.control = real
	for start := time.Now(); push(t, a, 1, 2, frame) == 0; {
		if time.Since(start) > 20*time.Second {
			t.Fatal("no credit has arrived")
		}
		armed := a.Arm()
		if push(t, a, 1, 2, frame) != 0 {
			break
		}
		a.Wait(armed, 10*time.Millisecond)
		require.NoError(t, peek(b, 0)()) // reads the request and answers
	}
	next(t, b, 0)
}

// TestImpossibleCreditsAreIgnored sends credits that are too old, and credits for frames that were never sent.
func TestImpossibleCreditsAreIgnored(t *testing.T) {
	a, b := pair(t, 4, nil)
	for i := range 4 {
		push(t, a, 1, i, make([]byte, 8))
	}
	to := &a.planes[0].peers[1]
	for _, c := range []struct{ consumed, want uint64 }{
		{3, 3},
		{5, 3}, // more frames than were sent
		{2, 3}, // older than the last credit
		{4, 4},
	} {
		b.planes[0].peers[0].next = c.consumed
		b.sendCredits(0, 0)
		for start := time.Now(); ; runtime.Gosched() {
			src, flags, more := a.control.Receive()
			if more && src == 1 {
				a.credit(src, flags)
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatal("no message has arrived")
			}
		}
		if to.consumed != c.want {
			t.Errorf("credit of %d: consumed = %d, want %d", c.consumed, to.consumed, c.want)
		}
	}
}

// datagram returns a frame from rank 0 to rank 1.
func datagram(seq uint32, edit func(h *wire.Header), payload string) []byte {
	h := wire.Header{Comm: 0xc0, Op: 1, Dst: 1, Length: uint32(len(payload))}
	if edit != nil {
		edit(&h)
	}
	var head [headSize]byte
	encode(&h, seq, &head)
	return append(head[:], payload...)
}

// inject sends a datagram from a socket to the socket of rank 1. a is the endpoint of rank 0.
func inject(t *testing.T, fd int, a *Endpoint, b []byte) {
	t.Helper()
	n := &a.planes[0].peers[1].addr
	sa := &unix.SockaddrInet4{Port: int(n.Raw[2])<<8 | int(n.Raw[3]), Addr: [4]byte(n.Raw[4:8])}
	require.NoError(t, unix.Sendto(fd, b, 0, sa))
}

// TestOrder checks that Peek returns reordered frames in order and drops duplicates.
func TestOrder(t *testing.T) {
	a, b := pair(t, 8, nil)
	for _, seq := range []uint32{2, 0, 2, 1, 0, 4, 3} {
		inject(t, a.planes[0].fd, a, datagram(seq, nil, string(rune('a'+seq))))
	}
	for want := 'a'; want <= 'e'; want++ {
		if got := string(next(t, b, 0)); got != string(want) {
			t.Fatalf("%q, want %q", got, want)
		}
		b.planes[0].Release(0)
	}
	inject(t, a.planes[0].fd, a, datagram(1, nil, "late copy"))
	inject(t, a.planes[0].fd, a, datagram(5, nil, "f"))
	if got := string(next(t, b, 0)); got != "f" {
		t.Fatalf("%q after a duplicate of a released frame, want f", got)
	}
	b.planes[0].Release(0)
	if h, _, err := b.planes[0].Peek(0); h != nil || err != nil {
		t.Errorf("unexpected frame: %v, %v", h, err)
	}
}

// TestMissingFrameIsAnError checks the error for a frame that is missing for too many checks.
func TestMissingFrameIsAnError(t *testing.T) {
	a, b := pair(t, 8, nil)
	inject(t, a.planes[0].fd, a, datagram(1, nil, "b"))
	checks(b)
	err := peek(b, 0)()
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "rank 1, plane 0") ||
		!strings.Contains(err.Error(), "frame 0 of rank 0 is missing") {
		t.Error(err)
	}
}

// TestOverflowIsAnError fills the receive buffer of rank 1.
func TestOverflowIsAnError(t *testing.T) {
	a, b := pair(t, 8, nil)
	require.NoError(t, unix.SetsockoptInt(b.planes[0].fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1))
	for range 100 {
		inject(t, a.planes[0].fd, a, datagram(0, nil, strings.Repeat("x", 1000)))
	}
	checks(b)
	_, err := b.planes[0].Drained()
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "overflowed") {
		t.Error(err)
	}
}

// TestBadFrames checks that a bad frame from a rank's socket is an error, and that frames from other sockets are
// ignored.
func TestBadFrames(t *testing.T) {
	for name, b := range map[string][]byte{
		"short":       []byte("hello"),
		"no payload":  datagram(0, nil, ""),
		"length":      datagram(0, func(h *wire.Header) { h.Length = 3 }, "abcd"),
		"destination": datagram(0, func(h *wire.Header) { h.Dst = 0 }, "a"),
		"plane":       datagram(0, func(h *wire.Header) { h.Plane = 1 }, "a"),
		"window":      datagram(8, nil, "a"),
		"damage":      append(make([]byte, prefixSize), datagram(0, nil, "abcdefgh")...),
		"too long":    datagram(0, nil, strings.Repeat("x", 1500)),
	} {
		t.Run(name, func(t *testing.T) {
			a, e := pair(t, 8, nil)
			inject(t, a.planes[0].fd, a, b)
			err := until(t, e, peek(e, 0))
			if !errors.Is(err, transport.ErrCorrupt) || !strings.Contains(err.Error(), "rank 1, plane 0") {
				t.Error(err)
			}
			c, e := pair(t, 8, nil)
			stranger := socket(t, "127.0.0.1")
			inject(t, stranger, c, b)
			inject(t, stranger, c, datagram(0, nil, "forged"))
			inject(t, c.planes[0].fd, c, datagram(0, nil, "real"))
			if got := string(next(t, e, 0)); got != "real" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestCounters checks that Drained and Transit follow the counters, and that every call returns ErrDark once the
// counters report a loss.
func TestCounters(t *testing.T) {
	c := new(fakeCounters)
	c.dark.Store(5) // before this endpoint
	a, _ := pair(t, 8, c)
	p := a.Planes()[0].(transport.Steerer)
	drained := func(want bool) {
		t.Helper()
		if ok, err := p.Drained(); ok != want || err != nil {
			t.Fatalf("Drained: %v, %v", ok, err)
		}
	}
	drained(true)
	c.offered.Store(7)
	drained(false)
	c.sent.Store(6)
	drained(false)
	c.sent.Store(7)
	drained(true)

	want := uint64(tag(3, 4))<<transitBits | 1234
	c.transit.Store(want)
	for _, tc := range []struct {
		comm, op uint64
		want     int64
	}{{3, 4, 1234}, {3, 5, 0}, {4, 4, 0}} {
		if n, err := p.Transit(tc.comm, tc.op, 5000); n != tc.want || err != nil {
			t.Errorf("Transit(%d, %d): %d, %v", tc.comm, tc.op, n, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		armed := a.Arm()
		_, _ = p.Transit(3, 4, 5000)
		_, _ = p.Drained()
		a.Wait(armed, time.Microsecond)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	push(t, a, 1, 0, []byte("x"))
	c.misdirected.Store(2)
	for name, f := range map[string]func() error{
		"Drained": func() error { _, err := p.Drained(); return err },
		"Transit": func() error { _, err := p.Transit(3, 4, 0); return err },
		"Peek":    peek(a, 1),
		"TrySend": func() error { _, err := p.TrySend(&wire.Header{Dst: 1, Epoch: 9}, []byte("x")); return err },
	} {
		err := f()
		if !errors.Is(err, transport.ErrDark) ||
			!strings.Contains(err.Error(), "rank 0, plane 0, epoch 9: 0 dark, 2 misdirected") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaitForCountersReturns checks that Wait returns while a caller waits for a counter, which causes no event.
func TestWaitForCountersReturns(t *testing.T) {
	c := new(fakeCounters)
	a, _ := pair(t, 8, c)
	p := a.Planes()[0]
	c.offered.Store(3)
	for i := uint64(0); ; i++ {
		armed := a.Arm()
		ok, err := p.Drained()
		require.NoError(t, err)
		if ok {
			break
		}
		c.sent.Store(min(i, 3))
		a.Wait(armed, time.Hour)
	}
}

// TestQueueAfterPauseIsNotStuck checks that the checks of an empty queue do not count against its next frames.
func TestQueueAfterPauseIsNotStuck(t *testing.T) {
	c := new(fakeCounters)
	a, _ := pair(t, 8, c)
	p := a.planes[0]
	for range 2 * maxStill {
		p.check()
	}
	c.offered.Store(3)
	for range maxStill {
		if p.check(); p.lost != nil {
			t.Fatal(p.lost)
		}
	}
}

// TestStuckQueueIsAnError checks that frames which stay in a port's queue for too many checks are an error.
func TestStuckQueueIsAnError(t *testing.T) {
	c := new(fakeCounters)
	a, _ := pair(t, 8, c)
	c.offered.Store(3)
	c.sent.Store(1)
	checks(a)
	_, err := a.planes[0].Drained()
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "2 frames do not leave the port's queues") {
		t.Error(err)
	}
}

// TestWaitChecksForLostFrames checks that a Wait without a limit of its own finds a lost frame.
func TestWaitChecksForLostFrames(t *testing.T) {
	a, b := pair(t, 8, nil)
	b.planes[0].peers[0].gap = maxStill
	inject(t, a.planes[0].fd, a, datagram(1, nil, "b"))
	if err := until(t, b, peek(b, 0)); !errors.Is(err, transport.ErrDark) {
		t.Error(err)
	}
}

// TestTags checks that tags fit in 24 bits and that consecutive operations have different tags.
func TestTags(t *testing.T) {
	for op := range uint64(1 << 16) {
		if tag(7, op) == tag(7, op+1) || tag(7, op)>>tagBits != 0 {
			t.Fatal(op)
		}
	}
}

func TestBadOptions(t *testing.T) {
	fd := socket(t, "127.0.0.1")
	for name, o := range map[string]ListenOptions{
		"planes":  {Control: "127.0.0.1:0"},
		"mtu":     {Control: "127.0.0.1:0", Planes: []PlaneOptions{{FD: fd, MTU: 100}}},
		"fd":      {Control: "127.0.0.1:0", Planes: []PlaneOptions{{FD: -1, MTU: 1500}}},
		"no udp":  {Control: "127.0.0.1:0", Planes: []PlaneOptions{{FD: 0, MTU: 1500}}},
		"host":    {Control: ":0", Planes: []PlaneOptions{{FD: fd, MTU: 1500}}},
		"control": {Control: "here", Planes: []PlaneOptions{{FD: fd, MTU: 1500}}},
	} {
		if l, err := Listen(o); err == nil {
			t.Errorf("%s: accepted", name)
			transporttest.Close(t, l)
		} else if !strings.HasPrefix(err.Error(), "ebpf: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ls, addrs := loopback{host: "127.0.0.1", mtu: 1500}.listen(t, 2, 1)
	other := append([]Addrs(nil), addrs...)
	edit := func(f func(a *Addrs)) []Addrs {
		next := append([]Addrs(nil), other...)
		next[1].Planes = append([]PlaneAddr(nil), next[1].Planes...)
		f(&next[1])
		return next
	}
	for name, o := range map[string]Options{
		"rank":    {Rank: 2, Addrs: addrs},
		"window":  {Addrs: addrs, Window: 1},
		"planes":  {Addrs: edit(func(a *Addrs) { a.Planes = nil })},
		"mtu":     {Addrs: edit(func(a *Addrs) { a.Planes[0].MTU = 9000 })},
		"buffer":  {Addrs: edit(func(a *Addrs) { a.Planes[0].Buffer = 5000 })},
		"address": {Addrs: edit(func(a *Addrs) { a.Planes[0].Addr = netip.AddrPort{} })},
		"control": {Addrs: edit(func(a *Addrs) { a.Control = netip.AddrPort{} })},
	} {
		if _, err := Connect(ls[0], o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	e, err := Connect(ls[0], Options{Addrs: addrs})
	require.NoError(t, err)
	transporttest.Close(t, e)
	if _, err := Connect(ls[0], Options{Addrs: addrs}); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("second Connect: %v", err)
	}
}

// FuzzDatagram decodes arbitrary bytes. decode returns a frame whose length agrees with its header, or an error.
func FuzzDatagram(f *testing.F) {
	f.Add(datagram(0, nil, "payload"))
	f.Add(datagram(3, nil, "x"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h wire.Header
		_, payload, err := decode(b, &h)
		if err == nil && (len(payload) == 0 || len(payload) != int(h.Length) || len(b) != headSize+len(payload)) {
			t.Errorf("%+v, %d bytes", h, len(payload))
		}
	})
}
