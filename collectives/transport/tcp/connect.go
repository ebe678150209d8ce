package tcp

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"lightpath/collectives/transport"

	"golang.org/x/sys/unix"
)

const (
	// helloTimeout bounds how long a stranger keeps a place in the hall.
	helloTimeout = 5 * time.Second
	// hallSize is how many handshakes may be going on beyond those that are expected.
	hallSize = 256
	// dialsAtOnce keeps a large mesh from overrunning the peers' accept queues.
	dialsAtOnce = 32
)

// past is a deadline that interrupts what is in progress.
var past = time.Unix(1, 0)

// interruptWith makes reads and writes of c fail when ctx ends; the result undoes that.
func interruptWith(ctx context.Context, c net.Conn) (undo func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
}

// Listener is where the other ranks dial this one: at one address for all planes, or at several,
// which the planes take in turn. The bootstrap distributes its Addr.
type Listener struct {
	ls []*net.TCPListener
}

// Listen listens on each "host:port" (IPv4 or IPv6; port 0 picks a free one). Plane j goes by the
// address j modulo their number: by interfaces of its own where each address is one's.
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

// Addr returns "host:port", several joined by commas.
func (l *Listener) Addr() string {
	var all []string
	for _, one := range l.ls {
		all = append(all, one.Addr().String())
	}
	return strings.Join(all, ",")
}

// source is the address that a plane's connections leave from.
func (l *Listener) source(plane int) net.Addr {
	a := *l.ls[plane%len(l.ls)].Addr().(*net.TCPAddr)
	a.Port = 0
	return &a
}

// Close stops listening; connections stay. A Connect in progress fails.
func (l *Listener) Close() error {
	var all []error
	for _, one := range l.ls {
		all = append(all, one.Close())
	}
	return errors.Join(all...)
}

// at is the address of a plane among those that an Addr lists.
func at(addrs string, plane int) string {
	all := strings.Split(addrs, ",")
	return all[plane%len(all)]
}

// Options of [Connect]. All ranks of a communicator give the same, but for Rank.
type Options struct {
	Rank, Planes int
	Addrs        []string // every rank's Listener.Addr
	Comm         uint64
	Secret       [SecretSize]byte
	Congestion   string // congestion control of this rank's connections; "" is the host's
}

// Connect sets the full mesh of a communicator up: every rank dials the lower ranks, once
// per plane, and accepts the higher ones. It returns when this rank has all its
// connections, or when ctx ends. Who does not know the secret is turned away.
// The listener stays the caller's; nobody else may use it meanwhile.
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
		return nil, fmt.Errorf("tcp: rank %d: no connection with %s: %w", o.Rank, missing, context.Cause(ctx))
	}
	if err := m.setCongestion(); err != nil {
		m.closeAll()
		return nil, err
	}
	e, err := newEndpoint(o.Rank, m.fds)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// mesh is a set-up in progress.
type mesh struct {
	l        *Listener
	o        Options
	fail     context.CancelCauseFunc
	wg       sync.WaitGroup
	complete chan struct{}

	mu   sync.Mutex
	fds  [][]int // [plane][rank], -1 where there is none yet
	left int
}

func newMesh(l *Listener, o Options, fail context.CancelCauseFunc) *mesh {
	m := &mesh{l: l, o: o, fail: fail, complete: make(chan struct{}), left: o.Planes * (len(o.Addrs) - 1)}
	m.fds = make([][]int, o.Planes)
	for p := range m.fds {
		m.fds[p] = make([]int, len(o.Addrs))
		for r := range m.fds[p] {
			m.fds[p][r] = -1
		}
	}
	if m.left == 0 {
		close(m.complete)
	}
	return m
}

func (m *mesh) hello(plane, to int) hello {
	return hello{comm: m.o.Comm, ranks: uint32(len(m.o.Addrs)), planes: uint32(m.o.Planes),
		from: uint32(m.o.Rank), to: uint32(to), plane: uint32(plane)}
}

// dialAll dials every lower rank on every plane.
func (m *mesh) dialAll(ctx context.Context) {
	slots := make(chan struct{}, dialsAtOnce)
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
					m.fail(fmt.Errorf("dial rank %d at %s, plane %d: %w", to, at(m.o.Addrs[to], plane), plane, err))
				}
			})
		}
	}
}

func (m *mesh) dial(ctx context.Context, plane, to int) error {
	d := net.Dialer{LocalAddr: m.l.source(plane)}
	c, err := d.DialContext(ctx, "tcp", at(m.o.Addrs[to], plane))
	if err != nil {
		return err
	}
	defer c.Close()
	defer interruptWith(ctx, c)()
	sealed, err := m.hello(plane, to).seal(m.o.Secret[:])
	if err != nil {
		return err
	}
	if _, err := c.Write(sealed); err != nil {
		return err
	}
	var answer [replySize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return fmt.Errorf("it refused this rank: %w", err)
	}
	if !hmac.Equal(answer[:], reply(sealed, m.o.Secret[:])) {
		return errStranger
	}
	return m.place(c, plane, to)
}

// acceptAll admits higher ranks until the set-up ends. What goes wrong with one caller is
// that caller's problem.
func (m *mesh) acceptAll(ctx context.Context, l *net.TCPListener) {
	expected := m.o.Planes * (len(m.o.Addrs) - 1 - m.o.Rank)
	if expected == 0 {
		return
	}
	interrupted := make(chan struct{})
	context.AfterFunc(ctx, func() {
		_ = l.SetDeadline(past)
		close(interrupted)
	})
	defer func() { // ctx has ended: nothing else ends this function
		<-interrupted
		_ = l.SetDeadline(time.Time{})
	}()
	hall := make(chan struct{}, expected+hallSize)
	for ctx.Err() == nil {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() == nil && !transient(err) {
				m.fail(fmt.Errorf("accept: %w", err))
			}
			continue
		}
		select {
		case hall <- struct{}{}:
		case <-ctx.Done():
			c.Close()
			return
		}
		m.wg.Go(func() {
			defer func() { <-hall }()
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(helloTimeout))
			defer interruptWith(ctx, c)()
			_ = m.admit(c)
		})
	}
}

// transient tells errors of one incoming connection from those of the listener.
func transient(err error) bool {
	return errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EINTR)
}

// admit reads a hello and takes the connection if it is one of those expected.
func (m *mesh) admit(c net.Conn) error {
	var sealed [helloSize]byte
	if _, err := io.ReadFull(c, sealed[:]); err != nil {
		return err
	}
	got, err := openHello(sealed[:], m.o.Secret[:])
	if err != nil {
		return err
	}
	want := m.hello(int(got.plane), m.o.Rank)
	want.from = got.from
	if got != want || got.plane >= want.planes || got.from >= want.ranks || got.from <= want.to {
		return errStranger
	}
	// The reply comes first: with the place taken, the set-up may end under us.
	if !m.vacant(int(got.plane), int(got.from)) {
		return errStranger
	}
	if _, err := c.Write(reply(sealed[:], m.o.Secret[:])); err != nil {
		return err
	}
	return m.place(c, int(got.plane), int(got.from))
}

func (m *mesh) vacant(plane, rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fds[plane][rank] < 0
}

// place takes over a connection's socket.
func (m *mesh) place(c net.Conn, plane, rank int) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fds[plane][rank] >= 0 {
		return errStranger
	}
	fd := -1
	var dupErr error
	if err := raw.Control(func(from uintptr) {
		fd, dupErr = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return err
	}
	if dupErr != nil {
		return dupErr
	}
	m.fds[plane][rank] = fd
	if m.left--; m.left == 0 {
		close(m.complete)
	}
	return nil
}

// missing names the connections that there are not; "" where all are there.
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

func (m *mesh) setCongestion() error {
	for plane, row := range m.fds {
		for rank, fd := range row {
			if fd < 0 || m.o.Congestion == "" {
				continue
			}
			if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, m.o.Congestion); err != nil {
				return fmt.Errorf("tcp: rank %d, plane %d of rank %d: congestion control %q: %w", rank, plane, m.o.Rank, m.o.Congestion, err)
			}
		}
	}
	return nil
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
