package ebpf

import (
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
)

// tally stands in for the kernel's counters.
type tally struct{ offered, sent, dark, misdirected, transit atomic.Uint64 }

func (c *tally) Offered() uint64           { return c.offered.Load() }
func (c *tally) Sent() uint64              { return c.sent.Load() }
func (c *tally) Dropped() (uint64, uint64) { return c.dark.Load(), c.misdirected.Load() }
func (c *tally) TransitOp() uint64         { return c.transit.Load() }

// pair is two ranks on one plane of the loopback interface.
func pair(t *testing.T, window int, c *tally) (a, b *Endpoint) {
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

// push sends payload in one call and returns how much was taken.
func push(t *testing.T, e *Endpoint, dst int, offset int, payload []byte) int {
	t.Helper()
	h := wire.Header{Comm: 0xc0, Op: 1, Epoch: 9, Offset: uint64(offset), Src: uint16(e.rank), Dst: uint16(dst)}
	n, err := e.Planes()[0].TrySend(&h, payload)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// next waits for a frame from src.
func next(t *testing.T, e *Endpoint, src int) []byte {
	t.Helper()
	for start := time.Now(); time.Since(start) < 20*time.Second; {
		armed := e.Arm()
		h, data, err := e.Planes()[0].Peek(src)
		if err != nil {
			t.Fatal(err)
		}
		if h != nil {
			return data
		}
		e.Wait(armed, time.Second)
	}
	t.Fatal("no frame")
	return nil
}

// until waits for an error of a call.
func until(t *testing.T, e *Endpoint, f func() error) error {
	t.Helper()
	for start := time.Now(); time.Since(start) < 20*time.Second; {
		armed := e.Arm()
		if err := f(); err != nil {
			return err
		}
		e.Wait(armed, 50*time.Millisecond)
	}
	t.Fatal("no error")
	return nil
}

func peek(e *Endpoint, src int) func() error {
	return func() error { _, _, err := e.Planes()[0].Peek(src); return err }
}

// Credits that are lost are asked for, and until one comes nothing is sent.
func TestLostCredits(t *testing.T) {
	a, b := pair(t, 2, nil)
	real := b.control
	discard := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9"), netip.MustParseAddrPort("127.0.0.1:9")}
	b.control = counts.New(real.FD(), counts.Options{Rank: 1, Addrs: discard, Comm: 0xc0, Counts: 1, Secret: secret})
	frame := make([]byte, a.planes[0].payload)
	for i := range 2 {
		if n := push(t, a, 1, i, frame); n != len(frame) {
			t.Fatalf("frame %d: %d bytes taken", i, n)
		}
	}
	for range 2 {
		next(t, b, 0)
		b.planes[0].Release(0)
	}
	armed := a.Arm()
	if n := push(t, a, 1, 2, frame); n != 0 {
		t.Fatalf("%d bytes taken beyond the window", n)
	}
	a.Wait(armed, 50*time.Millisecond) // asks
	b.control = real
	for start := time.Now(); push(t, a, 1, 2, frame) == 0; {
		if time.Since(start) > 20*time.Second {
			t.Fatal("no credit has come")
		}
		armed := a.Arm()
		if push(t, a, 1, 2, frame) != 0 {
			break
		}
		a.Wait(armed, 10*time.Millisecond)
		if err := peek(b, 0)(); err != nil { // reads the question and answers
			t.Fatal(err)
		}
	}
	next(t, b, 0)
}

// Counts that say what cannot be move nothing.
func TestImpossibleCredits(t *testing.T) {
	a, b := pair(t, 4, nil)
	for i := range 4 {
		push(t, a, 1, i, make([]byte, 8))
	}
	to := &a.planes[0].peers[1]
	for _, c := range []struct{ consumed, want uint64 }{
		{3, 3}, // as if consumed
		{5, 3}, // more than was sent
		{2, 3}, // older than what is known
		{4, 4},
	} {
		b.planes[0].peers[0].next = c.consumed
		b.tell(0, 0)
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			src, flags, more := a.control.Receive()
			if more && src == 1 {
				a.credit(src, flags)
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatal("no message has come")
			}
		}
		if to.consumed != c.want {
			t.Errorf("told %d: %d consumed, want %d", c.consumed, to.consumed, c.want)
		}
	}
}

// datagram returns a frame of rank 0 for rank 1.
func datagram(seq uint32, edit func(h *wire.Header), payload string) []byte {
	h := wire.Header{Comm: 0xc0, Op: 1, Dst: 1, Length: uint32(len(payload))}
	if edit != nil {
		edit(&h)
	}
	var head [headSize]byte
	encode(&h, seq, &head)
	return append(head[:], payload...)
}

// inject sends a datagram from a socket to that of rank 1, whose plane a knows.
func inject(t *testing.T, fd int, a *Endpoint, b []byte) {
	t.Helper()
	n := &a.planes[0].peers[1].name
	sa := &unix.SockaddrInet4{Port: int(n.Raw[2])<<8 | int(n.Raw[3]), Addr: [4]byte(n.Raw[4:8])}
	if err := unix.Sendto(fd, b, 0, sa); err != nil {
		t.Fatal(err)
	}
}

// Frames that overtake each other are put in order, copies are dropped.
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
		t.Fatalf("%q after a copy of what is over", got)
	}
	b.planes[0].Release(0)
	if h, _, err := b.planes[0].Peek(0); h != nil || err != nil {
		t.Errorf("one frame more: %v, %v", h, err)
	}
}

// A hole that stays is a loss, and says which frame of whom.
func TestMissingFrame(t *testing.T) {
	a, b := pair(t, 8, nil)
	inject(t, a.planes[0].fd, a, datagram(1, nil, "b"))
	err := until(t, b, peek(b, 0))
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "rank 1, plane 0") || !strings.Contains(err.Error(), "frame 0 of rank 0 is missing") {
		t.Error(err)
	}
}

// A full socket is a loss.
func TestOverflow(t *testing.T) {
	a, b := pair(t, 8, nil)
	if err := unix.SetsockoptInt(b.planes[0].fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		inject(t, a.planes[0].fd, a, datagram(0, nil, strings.Repeat("x", 1000)))
	}
	err := until(t, b, func() error { _, err := b.planes[0].Drained(); return err })
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "overflowed") {
		t.Error(err)
	}
}

// What a rank sends must be right; what comes from elsewhere is nobody's business.
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
			if err := until(t, e, peek(e, 0)); !errors.Is(err, transport.ErrCorrupt) || !strings.Contains(err.Error(), "rank 1, plane 0") {
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

// Drained is what the counters say, and what they count as dropped is an error.
func TestCounters(t *testing.T) {
	c := new(tally)
	c.dark.Store(5) // of earlier days
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
		if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "rank 0, plane 0, epoch 9: 0 dark, 2 misdirected") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Waiting for counters ends soon, though nobody rings.
func TestWaitForCounters(t *testing.T) {
	c := new(tally)
	a, _ := pair(t, 8, c)
	p := a.Planes()[0]
	c.offered.Store(3)
	for i := uint64(0); ; i++ {
		armed := a.Arm()
		ok, err := p.Drained()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			break
		}
		c.sent.Store(min(i, 3))
		a.Wait(armed, time.Hour)
	}
}

// A queue that was empty for long is not stuck when something comes.
func TestQueueAfterPause(t *testing.T) {
	c := new(tally)
	a, _ := pair(t, 8, c)
	p := a.planes[0]
	for range 2 * patience {
		p.check()
	}
	c.offered.Store(3)
	for range patience {
		if p.check(); p.lost != nil {
			t.Fatal(p.lost)
		}
	}
}

// A queue that stands still has lost what was in it.
func TestStuckQueue(t *testing.T) {
	c := new(tally)
	a, _ := pair(t, 8, c)
	c.offered.Store(3)
	c.sent.Store(1)
	err := until(t, a, func() error { _, err := a.planes[0].Drained(); return err })
	if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "2 do not leave the port's queues") {
		t.Error(err)
	}
}

func TestTagsDiffer(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Close(t, e)
	if _, err := Connect(ls[0], Options{Addrs: addrs}); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("connected twice: %v", err)
	}
}

// FuzzDatagram: whatever comes from a rank is a frame in its place, or an error.
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
