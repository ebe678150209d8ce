package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"

	"golang.org/x/sys/unix"
)

// TestStrangers: callers of all kinds come before the rank that is expected; none is
// admitted, none disturbs it.
func TestStrangers(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 2)
	o := Options{Planes: 1, Addrs: addrs, Comm: 5, Secret: secret}
	good := hello{comm: 5, ranks: 2, planes: 1, from: 1, to: 0}
	seal := func(h hello, s [SecretSize]byte) []byte {
		b, err := h.seal(s[:])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other := func(edit func(*hello)) []byte {
		h := good
		edit(&h)
		return seal(h, secret)
	}
	tampered := seal(good, secret)
	tampered[12]++
	future := seal(good, secret)
	future[8]++
	callers := map[string][]byte{
		"http":         []byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n" + strings.Repeat(" ", helloSize)),
		"zeros":        make([]byte, helloSize),
		"secret":       seal(good, [SecretSize]byte{9}),
		"tampered":     tampered,
		"version":      future,
		"communicator": other(func(h *hello) { h.comm++ }),
		"ranks":        other(func(h *hello) { h.ranks++ }),
		"planes":       other(func(h *hello) { h.planes++ }),
		"plane":        other(func(h *hello) { h.plane = 1 }),
		"huge plane":   other(func(h *hello) { h.plane = 1 << 31 }),
		"from self":    other(func(h *hello) { h.from = 0 }),
		"from beyond":  other(func(h *hello) { h.from = 2 }),
		"to another":   other(func(h *hello) { h.to = 1 }),
	}
	type outcome struct {
		e   transport.Endpoint
		err error
	}
	first := make(chan outcome, 1)
	go func(o Options) {
		e, err := Connect(limit(t), ls[0], o)
		first <- outcome{e, err}
	}(o)
	silent, err := net.Dial("tcp", addrs[0]) // says nothing at all, and stays
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, b := range callers {
		c, err := net.Dial("tcp", addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(make([]byte, replySize))
		var timeout net.Error
		if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: answered with %d bytes, %v", name, n, err)
		}
		c.Close()
	}
	o.Rank = 1
	e1, err := Connect(limit(t), ls[1], o)
	if err != nil {
		t.Fatal(err)
	}
	defer transporttest.Close(t, e1)
	r := <-first
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer transporttest.Close(t, r.e)
	suite("").Exchange(t, []transport.Endpoint{r.e, e1}, 3)
}

// TestAddressPerPlane: planes take the addresses of both their ends in turn, also where ranks have
// different numbers of them.
func TestAddressPerPlane(t *testing.T) {
	const planes = 3
	hosts := [][]string{{"127.0.0.11:0", "127.0.0.12:0"}, {"127.0.0.21:0", "127.0.0.22:0"}, {"127.0.0.31:0"}}
	var ls []*Listener
	var addrs []string
	for _, h := range hosts {
		l, err := Listen(h...)
		if err != nil {
			t.Skipf("this host's loopback interface has one address: %v", err)
		}
		defer transporttest.Close(t, l)
		ls, addrs = append(ls, l), append(addrs, l.Addr())
	}
	e := connectAll(t, ls, addrs, planes)
	for rank := range e {
		for j, p := range e[rank].Planes() {
			for peer, c := range p.(*plane).conns {
				if c == nil {
					continue
				}
				local, err := unix.Getsockname(c.fd)
				remote, err2 := unix.Getpeername(c.fd)
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				for who, sa := range map[int]unix.Sockaddr{rank: local, peer: remote} {
					want, _, _ := net.SplitHostPort(hosts[who][j%len(hosts[who])])
					if got := net.IP(sa.(*unix.SockaddrInet4).Addr[:]).String(); got != want {
						t.Errorf("plane %d between ranks %d and %d: %s at rank %d, want %s", j, rank, peer, got, who, want)
					}
				}
			}
		}
	}
	suite("").Exchange(t, e, 3)
	for _, one := range e {
		transporttest.Close(t, one)
	}
}

// TestCongestion: the connections have the congestion control asked for; one that there is not is
// named, with the connection.
func TestCongestion(t *testing.T) {
	for _, name := range []string{"reno", "no-such"} {
		ls, addrs := listen(t, "127.0.0.1:0", 2)
		var e [2]transport.Endpoint
		var errs [2]error
		var wg sync.WaitGroup
		for rank := range ls {
			wg.Go(func() {
				e[rank], errs[rank] = Connect(limit(t), ls[rank], Options{Rank: rank, Planes: 2, Addrs: addrs, Congestion: name, Secret: secret})
			})
		}
		wg.Wait()
		for rank, err := range errs {
			if name == "no-such" {
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("rank %d, plane 0 of rank %d", 1-rank, rank)) || !strings.Contains(err.Error(), name) {
					t.Errorf("rank %d: %v", rank, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
			got, err := unix.GetsockoptString(e[rank].Planes()[1].(*plane).conns[1-rank].fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
			if strings.TrimRight(got, "\x00") != name || err != nil {
				t.Errorf("rank %d: %q, %v", rank, got, err)
			}
			transporttest.Close(t, e[rank])
		}
	}
}

// TestImpostor: the dialing rank does not take anybody for the rank it dials.
func TestImpostor(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 2)
	go func() {
		c, err := ls[0].ls[0].Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, helloSize)
		_, _ = io.ReadFull(c, b)
		_, _ = c.Write(reply(b, []byte("another secret")))
		_, _ = c.Read(b) // until the rank hangs up
	}()
	_, err := Connect(limit(t), ls[1], Options{Rank: 1, Planes: 1, Addrs: addrs, Secret: secret})
	if !errors.Is(err, errStranger) {
		t.Errorf("err = %v", err)
	}
}

// TestConnectEnds: a rank that does not come is named, and the listener can be used again.
func TestConnectEnds(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 3)
	o := Options{Rank: 0, Planes: 2, Addrs: addrs, Secret: secret}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, ls[0], o)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 2 on plane 1") {
		t.Errorf("err = %v", err)
	}

	o.Addrs = addrs[:2]
	var wg sync.WaitGroup
	wg.Go(func() {
		o := o
		o.Rank = 1
		e, err := Connect(limit(t), ls[1], o)
		if err != nil {
			t.Error(err)
			return
		}
		transporttest.Close(t, e)
	})
	e, err := Connect(limit(t), ls[0], o)
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Close(t, e)
	wg.Wait()

	transporttest.Close(t, ls[2])
	o.Addrs, o.Rank = addrs, 2
	if _, err := Connect(limit(t), ls[2], Options{Rank: 0, Planes: 1, Addrs: addrs[:2], Secret: secret}); err == nil {
		t.Error("connected over a closed listener")
	}
	if _, err := Connect(limit(t), ls[0], Options{Rank: 2, Planes: 1, Addrs: addrs[:2]}); err == nil {
		t.Error("rank 2 of 2 connected")
	}
}

// pair returns the endpoint of rank 0 of 2 and the other end of its only connection.
func pair(t testing.TB) (transport.Endpoint, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEndpoint(0, [][]int{{-1, fds[0]}})
	if err != nil {
		t.Fatal(err)
	}
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

// TestPieces: frames are found however the stream is cut.
func TestPieces(t *testing.T) {
	e, far := pair(t)
	p := e.Planes()[0]
	stream := append(frame(wire.Header{Src: 1, Length: 5}, "hello"), frame(wire.Header{Src: 1, Offset: 5, Length: 1}, "!")...)
	got := ""
	for i := range stream {
		if _, err := unix.Write(far, stream[i:i+1]); err != nil {
			t.Fatal(err)
		}
		for {
			h, data, err := p.Peek(1)
			if err != nil {
				t.Fatal(err)
			}
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

// TestTruncatedFrame: a peer that dies within a frame is lost, and the part is not data.
func TestTruncatedFrame(t *testing.T) {
	e, far := pair(t)
	if _, err := unix.Write(far, frame(wire.Header{Src: 1, Length: 5}, "hel")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(far, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	for {
		h, _, err := e.Planes()[0].Peek(1)
		if h != nil {
			t.Fatal("part of a frame shown as one")
		}
		if errors.Is(err, transport.ErrPeerLost) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestEndWithLastFrame: the kernel speaks of the end of a stream once, which may be before the last
// frame is taken; a short count of that frame must not end the looking.
func TestEndWithLastFrame(t *testing.T) {
	e, far := pair(t)
	p := e.Planes()[0]
	for range 2 { // the second look knows that there is nothing to receive
		if h, _, err := p.Peek(1); h != nil || err != nil {
			t.Fatal(h, err)
		}
	}
	if _, err := unix.Write(far, frame(wire.Header{Src: 1, Length: 5}, "hello")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(far, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
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

// TestLandAfterPeek: an operation may land a frame that another has looked at and left.
func TestLandAfterPeek(t *testing.T) {
	e, far := pair(t)
	p := e.Planes()[0].(transport.Lander)
	b := append(frame(wire.Header{Src: 1, Length: 9}, "see it go"), frame(wire.Header{Src: 1, Offset: 9, Length: 4}, "next")...)
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
		t.Fatalf("landed %d bytes of a frame whose header nobody has seen: %v", n, err)
	}
	if h, data, err := p.Peek(1); h == nil || string(data) != "next" || err != nil {
		t.Fatalf("%v %q %v", h, data, err)
	}
}

// TestUnwantedDataWakesOnce: data that nobody asks for must not keep Wait from sleeping.
func TestUnwantedDataWakesOnce(t *testing.T) {
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
	te := e.(*Endpoint)
	te.mu.Lock()
	te.poll.Sweep()
	te.mu.Unlock()
	if te.poll.Sleep(0) {
		t.Error("a Wait would not sleep while an unwanted frame lies there")
	}
}

// TestNewsOfAnotherConnection: an arrival that was noticed while another connection was
// asked for, after its own was, must not be slept through.
func TestNewsOfAnotherConnection(t *testing.T) {
	var near, far [3]int
	for peer := 1; peer < 3; peer++ {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		near[peer], far[peer] = fds[0], fds[1]
		defer func() { _ = unix.Close(fds[1]) }()
	}
	e, err := newEndpoint(0, [][]int{near[:]})
	if err != nil {
		t.Fatal(err)
	}
	defer transporttest.Close(t, e)
	look := func(src int) {
		t.Helper()
		if h, _, err := e.Planes()[0].Peek(src); h != nil || err != nil {
			t.Fatal(h, err)
		}
	}
	for range 3 {
		look(1)
		look(2)
	}
	armed := e.Arm()
	look(1)
	look(2)
	if _, err := unix.Write(far[2], frame(wire.Header{Src: 2, Length: 1}, "x")); err != nil {
		t.Fatal(err)
	}
	look(1)
	e.Wait(armed, time.Hour)
}

// FuzzStream: whatever a peer sends is frames, shown or landed in order and to the last byte that
// their headers claim and no further, an error, or waited for.
func FuzzStream(f *testing.F) {
	f.Add(frame(wire.Header{Src: 1, Length: 2}, "ab"))
	f.Add(append(frame(wire.Header{Src: 1, Length: 1}, "a"), 1, 2, 3))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newConn(-1, 0, 1)
		c.readable = false // there is no socket
		c.end = copy(c.buf, b)
		for given, taken := c.end, 0; ; {
			if err := c.parse(0); err != nil || !c.headed {
				return
			}
			left, n := int(c.hdr.Length), 0
			if taken += wire.HeaderSize; left%2 == 0 {
				dst := make([]byte, left+8)
				n, _ = c.land(dst)
				if n > left || string(dst[n:]) != string(make([]byte, left+8-n)) {
					t.Fatalf("landed %d bytes of a frame of %d", n, left)
				}
			} else if c.piece() {
				n = len(c.data())
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

// FuzzHello: only a sealed hello opens.
func FuzzHello(f *testing.F) {
	b, err := hello{comm: 1, ranks: 2, planes: 3, from: 1}.seal(secret[:])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:20])
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := openHello(in, secret[:])
		if err == nil && (len(in) != helloSize || string(in[helloBody:]) != string(mac(secret[:], in[:helloBody]))) {
			t.Fatalf("%+v from an unsealed hello", h)
		}
	})
}
