package rpc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
)

// busyGrace is how long a new rank waits for its predecessor on the port to be gone: a process's
// death is noticed a little after its successor starts.
const busyGrace = 500 * time.Millisecond

// ranks implements the service of that name.
type ranks struct {
	ocspb.UnimplementedRanksServer
	server *Server
}

// Attach serves one stream of a rank.
func (r *ranks) Attach(g grpc.BidiStreamingServer[ocspb.Up, ocspb.Down]) error {
	s := r.server
	st := newStream(g, len(s.o.Planes), s.o.Stall)
	defer st.stall.Stop()
	go st.read()
	hello, err := st.await(s.o.Patience)
	if err != nil {
		return s.refuse(st.ctx, err)
	}
	core, err := s.inCharge()
	if err != nil {
		return err // this controller stands by
	}
	if err := s.check(hello); err != nil {
		return s.refuse(st.ctx, err)
	}
	resumed := s.resume(st, hello, core)
	if !resumed {
		if err := s.attach(st, hello, core); err != nil {
			return s.refuse(st.ctx, err)
		}
	}
	end := st.serve(core, resumed)
	s.leave(st, end)
	return end.err
}

// refuse notes why a rank was turned away.
func (s *Server) refuse(ctx context.Context, err error) error {
	s.o.Log.Warn("rank refused", "from", who(ctx), "error", err)
	return err
}

// await returns the stream's Hello, unless it takes too long.
func (st *stream) await(patience time.Duration) (*ocspb.Hello, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case hello := <-st.hello:
		return hello, nil
	case end := <-st.ended:
		if end.err == nil {
			return nil, fmt.Errorf("goodbye before hello: %w", ErrProtocol)
		}
		return nil, end.err
	case <-st.ctx.Done():
		return nil, st.ctx.Err()
	case <-limit.C:
		return nil, fmt.Errorf("no hello in %v: %w", patience, ErrProtocol)
	}
}

// check decides whether a Hello is one that this controller can work with.
func (s *Server) check(h *ocspb.Hello) error {
	if h.GetProtocol() != ProtocolVersion {
		return fmt.Errorf("the rank speaks protocol version %d, controller %s speaks %d: %w", h.GetProtocol(), s.o.Name,
			ProtocolVersion, ocsctl.ErrVersion)
	}
	if err := ocsctl.CheckVersions(oneLine(h.GetVersion()), s.o.Version); err != nil {
		return err
	}
	if int64(h.GetPort()) >= int64(s.o.Ports) {
		return fmt.Errorf("port %d: the planes have ports 0..%d: %w", h.GetPort(), s.o.Ports-1, ErrProtocol)
	}
	if n := len(h.GetKnown()); n > len(s.o.Planes) {
		return fmt.Errorf("port %d: known: %d epochs of %d planes: %w", h.GetPort(), n, len(s.o.Planes), ErrProtocol)
	}
	if len(h.GetHeld()) > controller.MaxPlanes {
		return fmt.Errorf("port %d: %d leases: %w", h.GetPort(), len(h.GetHeld()), ErrProtocol)
	}
	return nil
}

// resume gives a session whose stream has broken, noticed or not, to the stream of the rank that
// comes back, and reports whether there is one.
func (s *Server) resume(st *stream, hello *ocspb.Hello, core controller.Controller) bool {
	var id sessionID
	if len(hello.GetSession()) != len(id) {
		return false
	}
	copy(id[:], hello.GetSession())
	s.mu.Lock()
	x := s.sessions[id]
	s.mu.Unlock()
	if x == nil || x.port != int(hello.GetPort()) || x.core != core || x.identity != identity(st.ctx) {
		return false
	}
	x.mu.Lock()
	if x.over || x.closed != nil {
		x.mu.Unlock()
		return false
	}
	old := x.stream
	x.stream, st.session = st, x
	if x.linger != nil {
		x.linger.Stop()
	}
	x.mu.Unlock()
	if old != nil {
		close(old.kicked)
		hangUp(old.ctx)
		<-old.done // its connection is closed
	}
	return true
}

// attach makes a new session.
func (s *Server) attach(st *stream, hello *ocspb.Hello, core controller.Controller) error {
	var id sessionID
	_, _ = rand.Read(id[:]) // never fails
	port := int(hello.GetPort())
	x := newSession(s, id, port, identity(st.ctx))
	x.core, x.stream, st.session = core, st, x
	o := controller.AttachOptions{Port: port, Who: who(st.ctx), Known: hello.GetKnown()}
	for _, l := range hello.GetHeld() {
		held, err := s.lease(l)
		if err != nil {
			return fmt.Errorf("port %d: held: %w", port, err)
		}
		o.Held = append(o.Held, held)
	}
	for deadline := time.Now().Add(busyGrace); ; time.Sleep(10 * time.Millisecond) {
		s.evict(port)
		var err error
		if x.attachment, err = core.Attach(x, o); err == nil {
			break
		}
		if !errors.Is(err, controller.ErrPortBusy) || time.Now().After(deadline) || st.ctx.Err() != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		x.attachment.Detach(false)
		return fmt.Errorf("controller %s: %w", s.o.Name, controller.ErrStopped)
	}
	s.sessions[id] = x
	return nil
}

// evict ends a session of the port whose stream has broken: another rank wants the port.
func (s *Server) evict(port int) {
	s.mu.Lock()
	var stale []*session
	for _, x := range s.sessions {
		if x.port == port {
			stale = append(stale, x)
		}
	}
	s.mu.Unlock()
	for _, x := range stale {
		s.expire(x)
	}
}

// serve welcomes the rank and serves its stream to the end.
func (st *stream) serve(core controller.Controller, resumed bool) ending {
	x := st.session
	snapshot, err := core.Snapshot()
	if err != nil {
		return ending{err: err}
	}
	if !resumed {
		x.adopt(leases(&snapshot, x.port))
	}
	if err := st.put(&ocspb.Down{Welcome: st.welcome(&snapshot, resumed)}); err != nil {
		return ending{err, true}
	}
	x.mu.Lock()
	x.wake() // for what came before the welcome
	x.mu.Unlock()
	close(st.ready)
	return st.write()
}

// leave ends a stream: the session stays for a while if the stream broke.
func (s *Server) leave(st *stream, end ending) {
	x := st.session
	x.mu.Lock()
	if x.stream != st {
		x.mu.Unlock()
		return
	}
	x.stream = nil
	if end.broken && x.closed == nil {
		x.linger = time.AfterFunc(s.o.Linger, func() { s.expire(x) })
		x.mu.Unlock()
		s.o.Log.Info("stream of a rank broke", "port", x.port, "error", end.err)
		return
	}
	detach := x.end()
	x.mu.Unlock()
	if end.err != nil {
		s.o.Log.Warn("stream of a rank ended", "port", x.port, "error", end.err)
	}
	s.remove(x, detach, end.err == nil)
}

// expire ends a session whose rank has not reconnected.
func (s *Server) expire(x *session) {
	x.mu.Lock()
	if x.stream != nil { // it has, and resume does not give a session to it that has ended
		x.mu.Unlock()
		return
	}
	detach := x.end()
	x.mu.Unlock()
	s.remove(x, detach, false)
}

// remove forgets a session that has ended.
func (s *Server) remove(x *session, detach, clean bool) {
	s.mu.Lock()
	delete(s.sessions, x.id)
	s.mu.Unlock()
	if detach {
		x.attachment.Detach(clean)
	}
}

// Waiting answers what the next switch of a plane waits for.
func (r *ranks) Waiting(_ context.Context, m *ocspb.WaitingRequest) (*ocspb.WaitingReply, error) {
	core, err := r.server.inCharge()
	if err != nil {
		return nil, err
	}
	if err := r.server.checkPlane(m.GetPlane()); err != nil {
		return nil, err
	}
	return &ocspb.WaitingReply{Text: clip(core.Waiting(int(m.GetPlane())))}, nil
}

func (s *Server) checkPlane(plane uint32) error {
	if int64(plane) >= int64(len(s.o.Planes)) {
		return fmt.Errorf("plane %d of %d: %w", plane, len(s.o.Planes), ErrProtocol)
	}
	return nil
}
