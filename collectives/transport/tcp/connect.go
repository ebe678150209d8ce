package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/transport"

	"golang.org/x/sys/unix"
)

const (
	// helloTimeout is the time in which an accepted connection must send its hello.
	helloTimeout = 5 * time.Second
	// extraHandshakes is the number of concurrent handshakes beyond the expected ones.
	extraHandshakes = 256
	// acceptPause is the pause after an accept that failed, mostly because there was no free descriptor or memory.
	acceptPause = 10 * time.Millisecond
	// maxDials is the number of concurrent dials. More could overrun the peers' accept queues.
	maxDials = 32
)

// past is a deadline that interrupts reads and writes in progress.
var past = time.Unix(1, 0)

// interruptWith makes reads and writes of c fail when ctx ends; the result undoes that.
func interruptWith(ctx context.Context, c net.Conn) (undo func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
}

// Listener accepts the connections of the other ranks, at one address for all planes or at several. The bootstrap
// distributes its Addr.
type Listener struct {
	ls []*net.TCPListener
}

// Listen listens on each "host:port" (IPv4 or IPv6; port 0 picks a free port). Plane j uses address j modulo their
// number. So planes use separate interfaces if each address belongs to another interface.
func Listen(addrs ...string) (*Listener, error) {
	if len(addrs) == 0 {
		return nil, errors.New("tcp: no address to listen on")
	}
	l := &Listener{}
	for _, addr := range addrs {
		one, err := net.Listen("tcp", addr)
		if err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("tcp: %w", err)
		}
		l.ls = append(l.ls, one.(*net.TCPListener))
	}
	return l, nil
}

// Addr returns the addresses, each "host:port", joined by commas.
func (l *Listener) Addr() string {
	var all []string
	for _, one := range l.ls {
		all = append(all, one.Addr().String())
	}
	return strings.Join(all, ",")
}

// source returns the local address of a plane's connections that this rank dials.
func (l *Listener) source(plane int) net.Addr {
	a := *l.ls[plane%len(l.ls)].Addr().(*net.TCPAddr)
	a.Port = 0
	return &a
}

// Close stops listening and leaves connections open. A Connect in progress fails.
func (l *Listener) Close() error {
	var all []error
	for _, one := range l.ls {
		all = append(all, one.Close())
	}
	return errors.Join(all...)
}

// planeAddr returns the address of a plane in the result of Addr.
func planeAddr(addrs string, plane int) string {
	all := strings.Split(addrs, ",")
	return all[plane%len(all)]
}

// Options of [Connect]. All fields except Rank, Congestion and the functions of Failover are the same at all ranks of
// the communicator.
type Options struct {
	Rank, Planes int
	Addrs        []string // every rank's Listener.Addr
	Comm         uint64
	Secret       [SecretSize]byte
	Congestion   string // congestion control of this rank's connections; "": the host's default, but no bbr
	Failover
}

// Connect sets up the full mesh of a communicator: every rank dials the lower ranks, once per plane, and accepts the
// higher ranks. It returns when this rank has all its connections, or when ctx ends. It rejects connections whose
// hello does not prove knowledge of the secret. With a heartbeat, a stream whose plane does not reach the other rank
// begins on another plane.
//
// The caller must not use the listener during Connect. It still owns the listener afterwards if Connect fails, or if
// o.Heartbeat is 0. Otherwise the listener belongs to the endpoint, which other ranks reach there.
func Connect(ctx context.Context, l *Listener, o Options) (transport.Endpoint, error) {
	if len(o.Addrs) == 0 || o.Rank < 0 || o.Rank >= len(o.Addrs) || o.Planes < 1 {
		return nil, fmt.Errorf("tcp: rank %d of %d on %d planes", o.Rank, len(o.Addrs), o.Planes)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := newMesh(l, o, cancel)
	m.wg.Go(func() { m.dialAll(ctx) })
	for _, one := range l.ls {
		m.wg.Go(func() { m.acceptAll(ctx, one) })
	}
	select {
	case <-m.complete:
	case <-ctx.Done():
	}
	missing := m.missing()
	cancel(nil)
	m.wg.Wait()
	if missing != "" {
		m.closeAll()
		return nil, fmt.Errorf("tcp: rank %d: no connection to %s: %w", o.Rank, missing, context.Cause(ctx))
	}
	if err := m.setCongestion(); err != nil {
		m.closeAll()
		return nil, err
	}
	e, err := newEndpoint(o.Rank, m.fds)
	if err != nil {
		return nil, err
	}
	e.local = l.addresses(o.Planes)
	for _, d := range m.detours {
		e.planes[d.plane].(*plane).conns[d.rank].via = d.via
	}
	if o.Heartbeat > 0 {
		if err := newGuard(e, l, &o); err != nil {
			_ = e.Close()
			return nil, err
		}
	}
	for _, d := range m.detours {
		if o.Moved != nil {
			o.Moved(d.rank, d.plane, d.via, d.cause)
		}
	}
	return e, nil
}

// mesh is the state of a Connect.
type mesh struct {
	l        *Listener
	o        Options
	fail     context.CancelCauseFunc
	wg       sync.WaitGroup
	complete chan struct{}

	mu      sync.Mutex
	fds     [][]int // [plane][rank], -1 until connected
	detours []meshDetour
	left    int // missing connections
}

// meshDetour is a stream that begins on another plane than its own.
type meshDetour struct {
	rank, plane, via int
	cause            error
}

func newMesh(l *Listener, o Options, fail context.CancelCauseFunc) *mesh {
	m := &mesh{l: l, o: o, fail: fail, complete: make(chan struct{}), left: o.Planes * (len(o.Addrs) - 1)}
	m.fds = make([][]int, o.Planes)
	for p := range m.fds {
		m.fds[p] = slices.Repeat([]int{-1}, len(o.Addrs))
	}
	if m.left == 0 {
		close(m.complete)
	}
	return m
}

// dialAll dials every lower rank on every plane.
func (m *mesh) dialAll(ctx context.Context) {
	slots := make(chan struct{}, maxDials)
	for plane := range m.o.Planes {
		for to := range m.o.Rank {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			m.wg.Go(func() {
				defer func() { <-slots }()
				if err := m.dial(ctx, plane, to); err != nil {
					m.fail(fmt.Errorf("dial rank %d at %s, plane %d: %w", to, planeAddr(m.o.Addrs[to], plane), plane, err))
				}
			})
		}
	}
}

// dial connects a stream to a lower rank: on its plane, else on the first plane that reaches the rank.
func (m *mesh) dial(ctx context.Context, plane, to int) error {
	var cause error
	for n, silent := 0, false; ; n++ {
		via := (plane + n) % m.o.Planes
		d := net.Dialer{LocalAddr: m.l.source(via), Timeout: m.o.Heartbeat / 4} // 0: none
		c, err := d.DialContext(ctx, "tcp", planeAddr(m.o.Addrs[to], via))
		if err == nil {
			return m.enter(ctx, c, meshDetour{to, plane, via, cause})
		}
		cause, silent = cmp.Or(cause, err), silent || os.IsTimeout(err)
		switch last := n%m.o.Planes == m.o.Planes-1; {
		case ctx.Err() != nil, m.o.Heartbeat == 0, last && !silent:
			return cause
		case last:
			silent = false // the host may be busy: try again
		}
	}
}

// enter shakes hands over a connection that this rank has dialed, and adds it to the mesh.
func (m *mesh) enter(ctx context.Context, c net.Conn, d meshDetour) error {
	defer c.Close()
	defer interruptWith(ctx, c)()
	if _, _, err := m.o.greet(c, m.o.hello(d.plane, d.via, d.rank, forMesh)); err != nil {
		return err
	}
	return m.add(c, d)
}

// acceptAll accepts higher ranks until ctx ends.
func (m *mesh) acceptAll(ctx context.Context, l *net.TCPListener) {
	if expected := m.o.Planes * (len(m.o.Addrs) - 1 - m.o.Rank); expected > 0 {
		if err := serve(ctx, l, expected+extraHandshakes, m.accept); err != nil {
			m.fail(fmt.Errorf("accept: %w", err))
		}
	}
}

// acceptor is the part of a [net.TCPListener] that serve uses. A test replaces it.
type acceptor interface {
	Accept() (net.Conn, error)
	SetDeadline(t time.Time) error
}

// serve accepts connections until ctx ends, and calls accept for at most limit of them at a time. Then it closes the
// oldest one: a rank completes its handshake at once, so strangers hold only a bounded number of descriptors and delay
// no rank. An error ends it only if the listener is closed: accept(2) also returns errors of the network and of one
// connection.
func serve(ctx context.Context, l acceptor, limit int, accept func(net.Conn) error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	interrupted := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		_ = l.SetDeadline(past)
		close(interrupted)
	})
	defer func() {
		if !undo() {
			<-interrupted
			_ = l.SetDeadline(time.Time{})
		}
	}()
	handshakes := make(chan net.Conn, limit) // in the order of their arrival; some have ended
	for ctx.Err() == nil {
		c, err := l.Accept()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			time.Sleep(acceptPause)
			continue
		}
		for queued := false; !queued; {
			select {
			case handshakes <- c:
				queued = true
			default:
				_ = (<-handshakes).Close()
			}
		}
		wg.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(helloTimeout))
			defer interruptWith(ctx, c)()
			_ = accept(c)
		})
	}
	return nil
}

// accept reads a hello and adds the connection if this rank expects it.
func (m *mesh) accept(c net.Conn) error {
	got, hello, err := m.o.readHello(c)
	if err != nil {
		return err
	}
	d := meshDetour{int(got.from), int(got.plane), int(got.via), errLeft}
	if got.purpose != forMesh || got.from < got.to || d.via != d.plane && m.o.Heartbeat == 0 ||
		m.connected(d.plane, d.rank) {
		return errRejected
	}
	// The reply is sent before add, because the last add ends Connect and closes c.
	if _, err := c.Write(reply(hello, 0, m.o.Secret[:])); err != nil {
		return err
	}
	return m.add(c, d)
}

func (m *mesh) connected(plane, rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fds[plane][rank] >= 0
}

// add duplicates a connection's socket into the mesh. If that fails, so does Connect: the other rank may count on the
// connection already.
func (m *mesh) add(c net.Conn, d meshDetour) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fds[d.plane][d.rank] >= 0 {
		return errRejected
	}
	fd, err := socketOf(c)
	if err != nil {
		m.fail(err)
		return err
	}
	m.fds[d.plane][d.rank] = fd
	if d.via != d.plane {
		m.detours = append(m.detours, d)
	}
	if m.left--; m.left == 0 {
		close(m.complete)
	}
	return nil
}

// socketOf returns a duplicate of a connection's socket.
func socketOf(c net.Conn) (fd int, err error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	var dupErr error
	err = raw.Control(func(from uintptr) { fd, dupErr = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return -1, err
	}
	return fd, nil
}

// missing lists the missing connections; it returns "" if the mesh is complete.
func (m *mesh) missing() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return ""
	}
	const most = 4
	var names []string
	for plane, row := range m.fds {
		for rank, fd := range row {
			if fd < 0 && rank != m.o.Rank && len(names) < most {
				names = append(names, fmt.Sprintf("rank %d on plane %d", rank, plane))
			}
		}
	}
	if m.left > len(names) {
		names = append(names, fmt.Sprintf("%d more", m.left-len(names)))
	}
	return strings.Join(names, ", ")
}

func (m *mesh) closeAll() {
	for _, row := range m.fds {
		for _, fd := range row {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}
}
