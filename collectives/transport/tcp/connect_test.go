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
	"lightpath/internal/require"

	"golang.org/x/sys/unix"
)

// TestConnectRejectsStrangers connects with all kinds of wrong hellos before rank 1 connects. Rank 0 must reject all
// of them and still accept rank 1.
func TestConnectRejectsStrangers(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 2)
	o := Options{Planes: 1, Addrs: addrs, Comm: 5, Secret: secret}
	good := hello{comm: 5, ranks: 2, planes: 1, from: 1, to: 0}
	seal := func(h hello, s [SecretSize]byte) []byte {
		b, err := h.encode(s[:])
		require.NoError(t, err)
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
	silent, err := net.Dial("tcp", addrs[0]) // sends nothing and stays connected
	require.NoError(t, err)
	defer silent.Close()
	for name, b := range callers {
		c, err := net.Dial("tcp", addrs[0])
		require.NoError(t, err)
		if _, err := c.Write(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
		n, err := c.Read(make([]byte, replySize))
		var timeout net.Error
		if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%s: not rejected: %d bytes, %v", name, n, err)
		}
		c.Close()
	}
	o.Rank = 1
	e1, err := Connect(limit(t), ls[1], o)
	require.NoError(t, err)
	defer transporttest.Close(t, e1)
	r := <-first
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer transporttest.Close(t, r.e)
	suite("").Exchange(t, []transport.Endpoint{r.e, e1}, 3)
}

// TestAddressPerPlane checks that plane j uses address j of both ends, modulo the number of addresses of that end.
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

// TestCongestionControl checks that connections use the requested congestion control, and that the error for an
// unknown one names it and the connection.
func TestCongestionControl(t *testing.T) {
	for _, name := range []string{"reno", "no-such"} {
		ls, addrs := listen(t, "127.0.0.1:0", 2)
		var e [2]transport.Endpoint
		var errs [2]error
		var wg sync.WaitGroup
		for rank := range ls {
			wg.Go(func() {
				o := Options{Rank: rank, Planes: 2, Addrs: addrs, Congestion: name, Secret: secret}
				e[rank], errs[rank] = Connect(limit(t), ls[rank], o)
			})
		}
		wg.Wait()
		for rank, err := range errs {
			if name == "no-such" {
				conn := fmt.Sprintf("rank %d, plane 0 of rank %d", 1-rank, rank)
				if err == nil || !strings.Contains(err.Error(), conn) || !strings.Contains(err.Error(), name) {
					t.Errorf("rank %d: %v", rank, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
			fd := e[rank].Planes()[1].(*plane).conns[1-rank].fd
			if got, err := congestion(fd); got != name || err != nil {
				t.Errorf("rank %d: %q, %v", rank, got, err)
			}
			transporttest.Close(t, e[rank])
		}
	}
}

// TestNoBBR: without a request, connections keep the host's congestion control unless that is bbr.
func TestNoBBR(t *testing.T) {
	for _, c := range []struct{ host, request, want string }{
		{"reno", "", "reno"}, {"cubic", "", "cubic"}, {"bbr", "", "reno"}, {"bbr", "bbr", "bbr"},
	} {
		t.Run(c.host+","+c.request, func(t *testing.T) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			require.NoError(t, err)
			defer func() { _ = unix.Close(fd) }()
			if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, c.host); err != nil {
				t.Skipf("this host allows no %s: %v", c.host, err)
			}
			require.NoError(t, (&Options{Congestion: c.request}).setCongestion(fd))
			if got, err := congestion(fd); got != c.want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// TestDialRejectsWrongReply checks that a dialing rank rejects a reply made with another secret.
func TestDialRejectsWrongReply(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 2)
	go func() {
		c, err := ls[0].ls[0].Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, helloSize)
		_, _ = io.ReadFull(c, b)
		_, _ = c.Write(reply(b, 0, []byte("another secret")))
		_, _ = c.Read(b) // until the rank closes the connection
	}()
	_, err := Connect(limit(t), ls[1], Options{Rank: 1, Planes: 1, Addrs: addrs, Secret: secret})
	if !errors.Is(err, errRejected) {
		t.Errorf("err = %v", err)
	}
}

// TestDialClosed checks that a rank which closes the connection instead of a reply is a lost peer.
func TestDialClosed(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 2)
	go func() {
		if c, err := ls[0].ls[0].Accept(); err == nil {
			_ = c.Close()
		}
	}()
	_, err := Connect(limit(t), ls[1], Options{Rank: 1, Planes: 1, Addrs: addrs, Secret: secret})
	if !errors.Is(err, transport.ErrPeerLost) || !strings.Contains(err.Error(), "dial rank 0") {
		t.Errorf("err = %v", err)
	}
}

// TestConnectTimeout checks that the error names the missing ranks, and that the listener works again afterwards.
func TestConnectTimeout(t *testing.T) {
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
	require.NoError(t, err)
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

// TestNoDescriptorLeft checks that Connect fails at once, with the cause, if a rank has no descriptor for a connection
// that it has accepted. The other rank, which has the reply, does not connect again.
func TestNoDescriptorLeft(t *testing.T) {
	ls, addrs := listen(t, "127.0.0.1:0", 2)
	o := Options{Planes: 1, Addrs: addrs, Comm: 5, Secret: secret}
	b, err := hello{comm: 5, ranks: 2, planes: 1, from: 1}.encode(secret[:])
	require.NoError(t, err)
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = 0
	for free := 0; free < 2; few.Cur++ { // one for each end
		if _, err := unix.FcntlInt(uintptr(few.Cur), unix.F_GETFD, 0); err != nil {
			free++
		}
	}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	c, err := net.Dial("tcp", addrs[0])
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(b)
	require.NoError(t, err)
	if _, err = Connect(limit(t), ls[0], o); !errors.Is(err, unix.EMFILE) {
		t.Error(err)
	}
}

// troubled is a listener whose next accept fails with an error.
type troubled struct {
	*net.TCPListener
	err error
}

func (l *troubled) Accept() (net.Conn, error) {
	if err := l.err; err != nil {
		l.err = nil
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return l.TCPListener.Accept()
}

// TestAcceptGoesOnAfterAnError checks that a rank accepts connections after an accept that fails, unless its listener
// is closed.
func TestAcceptGoesOnAfterAnError(t *testing.T) {
	for _, errno := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EHOSTUNREACH} {
		ls, addrs := listen(t, "127.0.0.1:0", 1)
		ctx, stop := context.WithCancel(limit(t))
		var reached bool
		c, err := net.Dial("tcp", addrs[0])
		require.NoError(t, err)
		err = serve(ctx, &troubled{ls[0].ls[0], errno}, 1, func(net.Conn) error {
			reached = true
			stop()
			return nil
		})
		if err != nil || !reached {
			t.Errorf("after %v: %v, accepted: %t", errno, err, reached)
		}
		stop()
		transporttest.Close(t, c, ls[0])
		if err := serve(limit(t), ls[0].ls[0], 1, nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed listener: %v", err)
		}
	}
}

// FuzzHello checks that only a hello with a valid HMAC decodes.
func FuzzHello(f *testing.F) {
	b, err := hello{comm: 1, ranks: 2, planes: 3, from: 1}.encode(secret[:])
	require.NoError(f, err)
	f.Add(b)
	f.Add(b[:20])
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := decodeHello(in, secret[:])
		if err == nil && (len(in) != helloSize || string(in[helloBody:]) != string(mac(secret[:], in[:helloBody]))) {
			t.Fatalf("%+v from a hello with a wrong HMAC", h)
		}
	})
}
