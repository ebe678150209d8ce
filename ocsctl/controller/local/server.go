package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/shmring"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/internal/admission"
	"lightpath/plans/circuit"
)

// ErrRunning means that another controller serves this socket.
var ErrRunning = errors.New("already running")

// Options of [Serve].
type Options struct {
	// Socket is the path that ranks connect to, with or without "unix:" before it.
	Socket string
	// DataPlane is one of the ocsctl.Data constants; "": none.
	DataPlane string
	// Version is the version of the software. Ranks with another one are refused. "": not compared.
	Version string
	// Rings is the data path's memory with every rank; nil: it has none.
	Rings Rings
}

// Rings is a data path that shares memory with every rank.
type Rings interface {
	// Info describes the memory; its Bytes are the size of a port's memory.
	Info() RingsInfo
	// NewPort makes a port's memory, which the caller closes after the port has been detached, and its
	// AttachOptions.Data. bell is the rank's bell. The data path may call broken once, from the core's goroutine, to
	// end the rank's session.
	NewPort(port int, bell *shmring.Doorbell, broken func(error)) (*shmring.Memory, any, error)
}

// Server serves a controller to the ranks of its host. Safe for concurrent use.
type Server struct {
	core     *controller.Core
	o        Options
	planes   []ocsctl.PlaneInfo
	listener *admission.Listener
	group    bool // the socket lets the group in
	lock     *os.File
	memory   *shmring.Memory // the status page
	status   statusPage
	watcher  controller.Attachment // keeps the page up to date
	remove   func()                // the inbox
	taker    *taker                // the core's

	mu       sync.Mutex
	sessions map[*session]struct{}
	stopped  bool
	attached atomic.Pointer[[]*session] // whose posts are taken
	wg       sync.WaitGroup             // accept loop and sessions
	closed   sync.Once
}

// Serve serves a controller until Close. The caller calls Close before it closes the core. Serve replaces the socket of
// a controller that has ended; if that controller still runs, it returns ErrRunning.
func Serve(core *controller.Core, o Options) (*Server, error) {
	o.Socket = strings.TrimPrefix(o.Socket, "unix:")
	if o.DataPlane == "" {
		o.DataPlane = ocsctl.DataNone
	}
	switch {
	case o.Socket == "":
		return nil, errors.New("ocs: socket: missing")
	case len(o.Socket) > maxSocketPath:
		return nil, fmt.Errorf("ocs: socket: %d characters, a Unix socket path has at most %d", len(o.Socket), maxSocketPath)
	}
	s := &Server{core: core, o: o, sessions: map[*session]struct{}{}, taker: newTaker(len(core.Planes()), core.NumPorts())}
	s.attached.Store(&[]*session{})
	for _, p := range core.Planes() {
		s.planes = append(s.planes, p.Info())
	}
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// open makes the server's resources.
func (s *Server) open() (err error) {
	if s.lock, err = lockSocket(s.o.Socket); err != nil {
		return err
	}
	if s.memory, err = shmring.NewMemory("lightpath-ocs-status",
		statusSize(len(s.planes), s.core.NumPorts())); err != nil {
		return err
	}
	if err = s.memory.SealWrites(); err != nil {
		return err
	}
	s.status = statusPage{mem: s.memory.Bytes, ports: s.core.NumPorts()}
	if s.watcher, err = s.core.Attach(pageSink{s}, controller.AttachOptions{Port: -1, Who: "local"}); err != nil {
		return err
	}
	if s.remove, err = s.core.AddInbox(s); err != nil {
		return err
	}
	l, group, err := listen(s.o.Socket)
	if err != nil {
		return err
	}
	pending := 2*s.core.NumPorts() + 64 // a rank may connect before the end of its predecessor is known
	s.group = group
	s.listener = admission.Listen(l, admission.Options{
		Pending: pending, PerSource: pending, Refused: admission.NewRefusals(nil),
	})
	return nil
}

// pageSink keeps the status page up to date.
type pageSink struct{ *Server }

// Changed implements controller.Sink.
func (p pageSink) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	var out map[int]string
	if b, some := errors.AsType[*controller.BadPorts](fault); some {
		out = b.Why
	}
	p.status.write(plane, epochs, m, toFault(fault), out)
}

// Refused implements controller.Sink: a page posts nothing.
func (p pageSink) Refused(int, uint64, error) {}

// Granted implements controller.Sink: a page asks for nothing.
func (p pageSink) Granted(uint64, uint64, error) {}

// Wanted implements controller.Sink: a page holds nothing.
func (p pageSink) Wanted(uint64, uint64) {}

// Closed implements controller.Sink. It does nothing: the sessions of ranks get the call, too.
func (p pageSink) Closed(error) {}

// Collect implements controller.Inbox.
func (s *Server) Collect(post controller.PostFunc) {
	for _, ss := range *s.attached.Load() {
		if ss.view.dirty.Load() == 0 {
			continue
		}
		ss.deliver = post
		if err := s.taker.take(ss.view, ss.take); err != nil {
			ss.view.dirty.Store(0)
			ss.end(fmt.Errorf("port %d: %w", ss.port, err))
		}
	}
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		accepted, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors: try again later
			time.Sleep(50 * time.Millisecond)
			continue
		}
		c := accepted.(*admission.Conn)
		pid, trusted := peer(c.Conn.(*net.UnixConn))
		ss := newSession(s, c, pid)
		s.mu.Lock()
		if s.stopped || !trusted && !s.group {
			s.mu.Unlock()
			_ = c.Close()
			continue
		}
		s.sessions[ss] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		go func() {
			defer s.wg.Done()
			ss.serve()
			s.mu.Lock()
			delete(s.sessions, ss)
			s.mu.Unlock()
		}()
	}
}

// list adds a session to those whose posts Collect reads, or removes it.
func (s *Server) list(ss *session, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next []*session
	for _, x := range *s.attached.Load() {
		if x != ss {
			next = append(next, x)
		}
	}
	if on {
		next = append(next, ss)
	}
	s.attached.Store(&next)
}

// Close disconnects every rank and removes the socket. Idempotent.
func (s *Server) Close() {
	s.closed.Do(func() {
		s.listener.Close()
		s.mu.Lock()
		s.stopped = true
		for ss := range s.sessions {
			ss.conn.shut()
		}
		s.mu.Unlock()
		s.wg.Wait()
		s.release()
	})
}

// awaitShut returns when Close, if it has begun, has disconnected every rank. So no rank is granted the planes of
// another one that Close disconnects.
func (s *Server) awaitShut() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// release frees the resources of open.
func (s *Server) release() {
	if s.listener != nil {
		s.listener.Close()
	}
	if s.remove != nil {
		s.remove()
	}
	if s.watcher != nil {
		s.watcher.Detach(true)
	}
	s.memory.Close()
	if s.lock != nil {
		os.Remove(s.lock.Name())
		s.lock.Close()
	}
}

func (s *Server) info() *fabricInfo {
	i := &fabricInfo{Controller: s.core.Name(), Ports: s.core.NumPorts(), Planes: s.planes, DataPlane: s.o.DataPlane}
	if s.o.Rings != nil {
		r := s.o.Rings.Info()
		i.Rings = &r
	}
	return i
}

// peer returns the number of the process at the other end, and whether it runs as this user or as root.
func peer(c *net.UnixConn) (pid int, trusted bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			pid, trusted = int(cred.Pid), cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
		}
	})
	return pid, err == nil && trusted
}
