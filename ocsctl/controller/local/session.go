package local

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/internal/admission"
	"lightpath/plans/circuit"
)

// Times of a session.
const (
	// helloTimeout bounds the greeting, at both ends. A busy host may stand still for some seconds.
	helloTimeout = 15 * time.Second
	// busyGrace is how long a new rank waits for the end of its predecessor on the port, or of a failed job. The
	// controller may notice the death of a process only after its successor has started.
	busyGrace = 500 * time.Millisecond
	outQueue  = 256
)

// session is one connection to the controller, of a port's rank or an observer.
type session struct {
	server     *Server
	conn       *conn
	place      *admission.Conn // below conn: pending until the hello
	pid, port  int
	attachment controller.Attachment // nil: an observer
	mem        *shmring.Memory       // the port's; shared with the rank
	view       *portView             // of mem
	rings      *shmring.Memory       // the data path's; nil: none
	data       any
	bell       *shmring.Doorbell
	bellMem    *shmring.Memory
	out        chan *message // to the client; never closed, quit ends it
	quit       chan struct{}
	watch      atomic.Bool           // told of state changes
	telling    atomic.Bool           // out has a message of that
	broken     atomic.Pointer[error] // why the core gave the rank up

	deliver controller.PostFunc // the core's, while it takes posts
	take    func(plane int, epoch uint32, holder uint64, target circuit.Permutation)
}

func newSession(s *Server, c *admission.Conn, pid int) *session {
	ss := &session{
		server: s, conn: &conn{UnixConn: c.Conn.(*net.UnixConn)}, place: c, pid: pid,
		out: make(chan *message, outQueue), quit: make(chan struct{}),
	}
	ss.take = func(plane int, epoch uint32, holder uint64, target circuit.Permutation) {
		ss.deliver(ss.attachment, plane, epoch, holder, target)
	}
	return ss
}

var _ controller.Sink = (*session)(nil)

// Changed implements controller.Sink; the page has been written.
func (s *session) Changed(int, []uint32, circuit.Permutation, error) {
	s.bell.Ring()
	if s.watch.Load() {
		s.tell()
	}
}

// tell tells the client of state changes, once for all that it has not been told of. So a client that reads slowly does
// not lose its connection by them.
func (s *session) tell() {
	if !s.telling.Swap(true) {
		s.push(&message{Type: msgState})
	}
}

// Refused implements controller.Sink.
func (s *session) Refused(plane int, holder uint64, why error) {
	s.push(&message{Type: msgRefused, Plane: plane, Holder: holder, Text: why.Error()})
}

// Granted implements controller.Sink.
func (s *session) Granted(id, mask uint64, err error) {
	if err != nil {
		s.push(&message{Type: msgError, ID: id, Text: err.Error()})
		return
	}
	s.push(&message{Type: msgGranted, ID: id, Mask: mask})
}

// Wanted implements controller.Sink.
func (s *session) Wanted(holder, mask uint64) {
	s.push(&message{Type: msgWanted, Holder: holder, Mask: mask})
}

// Closed implements controller.Sink.
func (s *session) Closed(err error) { s.end(err) }

// end ends the session without blocking. Its reading goroutine notices that.
func (s *session) end(err error) {
	s.broken.CompareAndSwap(nil, &err)
	_ = s.conn.CloseRead()
}

// push queues a message without blocking the core. A client that does not read loses its connection.
func (s *session) push(m *message) {
	select {
	case s.out <- m:
	default:
		s.conn.shut()
	}
}

// serve is the session's goroutine.
func (s *session) serve() {
	defer func() { _ = s.place.Close() }() // the connection is no longer pending
	defer s.conn.close()
	clean, err := false, s.greet()
	if err == nil {
		go s.write()
		clean, err = s.read()
		close(s.quit)
	}
	if b := s.broken.Load(); b != nil {
		err = *b
	}
	s.leave(clean)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = s.conn.send(&message{Type: msgError, Text: err.Error(), Version: ProtocolVersion, Software: s.server.o.Version})
	}
}

// leave ends the attachment. Afterwards the core does not use the memory any more.
func (s *session) leave(clean bool) {
	if s.attachment != nil {
		s.server.awaitShut()
		s.attachment.Detach(clean) // its posts are taken before
		s.server.list(s, false)
		_ = s.server.core.Do(func(int64) {}) // an error means that the core has stopped
	}
	s.mem.Close()
	s.rings.Close()
	s.bellMem.Close()
}

// greet reads the hello, attaches the port and sends the welcome.
func (s *session) greet() error {
	_ = s.conn.SetDeadline(time.Now().Add(helloTimeout))
	m, err := s.conn.recv()
	server, ports := s.server, s.server.core.NumPorts()
	switch {
	case err != nil:
		return err
	case m.Type != msgHello:
		return fmt.Errorf("%w: %s before hello", ErrProtocol, m.Type)
	case m.Version != ProtocolVersion:
		return fmt.Errorf("client speaks protocol version %d, the controller speaks %d: %w", m.Version, ProtocolVersion,
			ocsctl.ErrVersion)
	case m.Port < 0 || m.Port >= ports:
		return fmt.Errorf("port %d: the controller has ports 0..%d", m.Port, ports-1)
	}
	if err := ocsctl.CheckVersions(m.Software, server.o.Version); err != nil {
		return err
	}
	s.place.Admit()
	s.port = m.Port
	if err := s.claim(); err != nil {
		return err
	}
	fds := []int{server.memory.File(), server.core.Bell().Memory.File(), s.mem.File()}
	if s.rings != nil {
		fds = append(fds, s.rings.File())
	}
	welcome := &message{Type: msgWelcome, Version: ProtocolVersion, Software: server.o.Version, Fabric: server.info()}
	if err := s.conn.send(welcome, fds...); err != nil {
		return err
	}
	s.mem.CloseFile()
	s.rings.CloseFile()
	return s.conn.greeted()
}

// claim makes the port's memory and attaches it.
func (s *session) claim() error {
	fd, err := s.conn.file()
	if err != nil {
		return err
	}
	if s.bellMem, err = shmring.AdoptMemory(fd, shmring.DoorbellSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	s.bellMem.CloseFile()
	if s.bell, err = shmring.NewDoorbell(s.bellMem.Bytes); err != nil {
		return err
	}
	geo := geometry{len(s.server.planes), s.server.core.NumPorts()}
	if s.mem, err = shmring.NewMemory(fmt.Sprintf("lightpath-port-%d", s.port), geo.size()); err != nil {
		return err
	}
	geo.format(s.mem.Bytes)
	if s.view, err = geo.view(s.mem.Bytes); err != nil {
		return err
	}
	if r := s.server.o.Rings; r != nil {
		if s.rings, s.data, err = r.NewPort(s.port, s.bell, s.end); err != nil {
			return err
		}
	}
	return s.attach()
}

// attach attaches to the port when it is free.
func (s *session) attach() error {
	o := controller.AttachOptions{Port: s.port, Who: fmt.Sprintf("local pid %d", s.pid), Data: s.data}
	deadline := time.Now().Add(busyGrace)
	for {
		last := time.Now().After(deadline)
		if last || !s.server.failing() {
			a, err := s.server.core.Attach(s, o)
			if err == nil {
				s.attachment = a
				s.server.list(s, true)
				return nil
			}
			if last || !errors.Is(err, controller.ErrPortBusy) {
				return err
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// failing reports whether a plane has failed and returns to service once the ranks that saw the failure
// have left.
func (s *Server) failing() bool {
	failed := false
	for p := range s.planes {
		kind := s.status.fault(p)
		failed = failed || kind != faultNone && kind < faultPlaneDown
	}
	return failed && len(*s.attached.Load()) > 0
}

// write sends queued messages.
func (s *session) write() {
	for {
		select {
		case m := <-s.out:
			if m.Type == msgState {
				s.telling.Store(false)
			}
			_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second))
			if err := s.conn.send(m); err != nil {
				s.conn.shut()
				return
			}
		case <-s.quit:
			return
		}
	}
}

// read handles requests until the connection ends. clean reports whether the client has said goodbye.
func (s *session) read() (clean bool, err error) {
	for {
		m, err := s.conn.recv()
		if err != nil {
			return false, err
		}
		if m.Type == msgGoodbye {
			return true, nil
		}
		if err := s.request(m); err != nil {
			return false, err
		}
	}
}

// request passes one request to the core, which checks it. An error ends the session.
func (s *session) request(m *message) error {
	switch m.Type {
	case msgPost:
		return s.attachment.Post(m.Plane, m.Epoch, m.Holder, m.Target)
	case msgAcquire:
		if m.Lease == nil {
			return fmt.Errorf("%w: %s without a lease", ErrProtocol, m.Type)
		}
		return s.attachment.Acquire(m.ID, *m.Lease)
	case msgRelease:
		return s.attachment.Release(m.Mask, m.Holder)
	case msgWatch:
		s.watch.Store(true)
		s.tell() // what may have come before
	case msgWaiting:
		s.push(&message{Type: msgDone, ID: m.ID, Text: s.server.core.Waiting(m.Plane)})
	default:
		return fmt.Errorf("%w: unexpected %s", ErrProtocol, m.Type)
	}
	return nil
}
