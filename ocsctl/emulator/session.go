package emulator

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/shmring"
)

// session is one connection to the switch, attached to a port or an observer.
type session struct {
	server  *Server
	conn    *conn
	port    int
	id      uint64
	mem     *memory   // the port's; shared with the rank
	view    *portView // of mem
	bell    *shmring.Doorbell
	bellMem *memory
	out     chan *message // to the client; closed by nobody, ended by quit
	quit    chan struct{}
	watch   bool                  // told of state changes; the switching thread's
	broken  atomic.Pointer[error] // why the switching thread gave the port up
}

// Times of a session.
const (
	helloTimeout = 2 * time.Second
	// busyGrace is how long a new rank waits for the predecessor on its port, or for a faulted
	// job, to be gone: a process's death is noticed a little after its successor starts.
	busyGrace = 500 * time.Millisecond
	outQueue  = 256
)

// push queues a message without ever blocking the switching thread; a client that does not
// read loses its connection.
func (s *session) push(m *message) {
	select {
	case s.out <- m:
	default:
		s.conn.shut()
	}
}

func (s *session) granted(id uint64) { s.push(&message{Type: msgGranted, ID: id}) }

// changed tells a watching client that a plane's state has changed.
func (s *session) changed(plane int) {
	if s.watch {
		s.push(&message{Type: msgState, Plane: plane})
	}
}

// serve is the session's goroutine.
func (s *session) serve() {
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
	s.server.leave(s, clean)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = s.conn.send(&message{Type: msgError, Text: err.Error(), Version: ProtocolVersion})
	}
}

// greet reads the hello, attaches the port and sends the welcome.
func (s *session) greet() error {
	_ = s.conn.SetDeadline(time.Now().Add(helloTimeout))
	m, err := s.conn.recv()
	switch {
	case err != nil:
		return err
	case m.Type != msgHello:
		return fmt.Errorf("%w: %s before hello", ErrProtocol, m.Type)
	case m.Version != ProtocolVersion:
		return fmt.Errorf("client speaks protocol version %d, the switch speaks %d: %w", m.Version, ProtocolVersion, ErrVersion)
	case m.Port != observer && (m.Port < 0 || m.Port >= s.server.cfg.Ports):
		return fmt.Errorf("port %d: the switch has ports 0..%d", m.Port, s.server.cfg.Ports-1)
	}
	s.port = m.Port
	fds := []int{s.server.status.fd}
	if s.port != observer {
		if err := s.claim(); err != nil {
			return err
		}
		fds = append(fds, s.server.bellMem.fd, s.mem.fd)
	}
	welcome := &message{Type: msgWelcome, Version: ProtocolVersion, Fabric: s.server.info()}
	if err := s.conn.send(welcome, fds...); err != nil {
		return err
	}
	s.mem.closeFile()
	return s.conn.SetDeadline(time.Time{})
}

// claim makes the port's memory and attaches it.
func (s *session) claim() error {
	fd, err := s.conn.file()
	if err != nil {
		return err
	}
	if s.bellMem, err = adoptMemory(fd, shmring.DoorbellSize, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	s.bellMem.closeFile()
	if s.bell, err = shmring.NewDoorbell(s.bellMem.bytes); err != nil {
		return err
	}
	geo := s.server.geometry()
	if s.mem, err = newMemory(fmt.Sprintf("lightpath-port-%d", s.port), geo.size()); err != nil {
		return err
	}
	geo.format(s.mem.bytes)
	if s.view, err = geo.view(s.mem.bytes); err != nil {
		return err
	}
	deadline := time.Now().Add(busyGrace)
	for {
		last := time.Now().After(deadline)
		err := s.server.enter(s, last)
		if err == nil || last || !errors.Is(err, ErrPortBusy) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// write sends what the switching thread has queued.
func (s *session) write() {
	for {
		select {
		case m := <-s.out:
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

// read handles requests until the client leaves; clean says that it said so.
func (s *session) read() (clean bool, err error) {
	for {
		m, err := s.conn.recv()
		if err != nil {
			return false, err
		}
		if err := m.checkRequest(s.server.cfg.Ports, len(s.server.cfg.Planes)); err != nil {
			return false, err
		}
		if s.port == observer && m.Type != msgWaiting && m.Type != msgFlush && m.Type != msgGoodbye {
			return false, fmt.Errorf("%w: %s from a connection without a port", ErrProtocol, m.Type)
		}
		if m.Type == msgGoodbye {
			return true, nil
		}
		if err := s.request(m); err != nil {
			return false, err
		}
	}
}

// request hands one request to the switching thread.
func (s *session) request(m *message) error {
	switch m.Type {
	case msgPost:
		return s.server.do(func(f *fabric, now int64) { f.post(s, m.Plane, m.Epoch, m.Target, now) })
	case msgAcquire:
		return s.server.do(func(f *fabric, _ int64) { f.acquire(s, m.ID, m.Mask, m.Holder) })
	case msgRelease:
		var err error
		if e := s.server.call(func(f *fabric, _ int64) { err = f.release(s, m.Mask, m.Holder) }); e != nil {
			return e
		}
		return err
	case msgWatch:
		return s.server.do(func(*fabric, int64) { s.watch = true })
	case msgWaiting:
		return s.server.do(func(f *fabric, _ int64) {
			s.push(&message{Type: msgDone, ID: m.ID, Text: f.waiting(m.Plane)})
		})
	default: // flush
		err := s.server.FlushLog()
		done := &message{Type: msgDone, ID: m.ID}
		if err != nil {
			done = &message{Type: msgError, ID: m.ID, Text: err.Error()}
		}
		s.push(done)
		return nil
	}
}

// free releases the memory; the switching thread does not use the session any more.
func (s *session) free() {
	s.mem.close()
	s.bellMem.close()
}
