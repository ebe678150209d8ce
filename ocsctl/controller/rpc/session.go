package rpc

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/plans/circuit"
)

// sessionID is the secret with which a rank comes back to its session.
type sessionID [16]byte

// session is a rank's place at this controller: the core's Sink, and what the rank has not been
// told yet. It outlives a stream that breaks by the linger.
type session struct {
	server     *Server
	id         sessionID
	port       int
	identity   string                // of the certificate
	core       controller.Controller // that it is attached to
	attachment controller.Attachment

	mu          sync.Mutex // never held while something blocks: the core takes it
	planes      []planeMail
	dirty       uint64           // planes that have changed
	refused     []*ocspb.Refused // the last refusals, one per plane and holder
	refusedSent int              // number of refused that the stream has taken
	wanted      []*ocspb.Wanted  // of leases that the rank has
	wantedSent  int              // number of wanted that the stream has taken
	requests    map[uint64]*request
	answered    []uint64          // requests with an answer, oldest first; at most maxAcquires
	waiting     int               // requests without
	unsent      int               // answers that no stream has taken
	held        map[uint64]uint64 // holder -> planes
	closed      error             // the core has ended the attachment
	stream      *stream           // nil while broken
	linger      *time.Timer
	over        bool // it has ended
}

// planeMail is the newest of a plane.
type planeMail struct {
	epoch uint32 // of the port
	maps  circuit.Permutation
	fault error
}

// request is an Acquire and its answer.
type request struct {
	lease  *ocspb.Lease
	answer *ocspb.Granted // nil while it waits
	sent   bool
}

func newSession(s *Server, id sessionID, port int, identity string) *session {
	return &session{
		server: s, id: id, port: port, identity: identity,
		planes: make([]planeMail, len(s.o.Planes)), requests: map[uint64]*request{}, held: map[uint64]uint64{},
	}
}

var _ controller.Sink = (*session)(nil)

// Changed implements controller.Sink.
func (x *session) Changed(plane int, epochs []uint32, m circuit.Permutation, fault error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.planes[plane]
	p.epoch, p.maps, p.fault = epochs[x.port], m, fault
	x.dirty |= 1 << plane
	x.wake()
}

// Refused implements controller.Sink.
func (x *session) Refused(plane int, holder uint64, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := slices.ContainsFunc(x.refused, func(r *ocspb.Refused) bool {
		return int(r.GetPlane()) == plane && r.GetHolder() == holder
	})
	if known {
		return
	}
	if len(x.refused) == maxRefusals {
		x.refused, x.refusedSent = slices.Delete(x.refused, 0, 1), max(x.refusedSent-1, 0)
	}
	x.refused = append(x.refused, &ocspb.Refused{Plane: uint32(plane), Holder: holder, Fault: toFault(why)})
	x.wake()
}

// Granted implements controller.Sink.
func (x *session) Granted(id, mask uint64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.requests[id]
	if r == nil || r.answer != nil {
		return
	}
	r.answer = &ocspb.Granted{Id: id, Mask: mask, Fault: toFault(err)}
	x.waiting--
	x.unsent++
	if err == nil {
		x.held[r.lease.GetHolder()] |= mask
	}
	// The rank may have missed an answer only if it has the request outstanding, and it has no more
	// than so many.
	if x.answered = append(x.answered, id); len(x.answered) > maxAcquires {
		if old := x.requests[x.answered[0]]; !old.sent {
			x.unsent--
		}
		delete(x.requests, x.answered[0])
		x.answered = append(x.answered[:0], x.answered[1:]...)
	}
	x.wake()
}

// Wanted implements controller.Sink.
func (x *session) Wanted(holder, mask uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wanted = append(x.wanted, &ocspb.Wanted{Holder: holder, Mask: mask})
	x.wake()
}

// Closed implements controller.Sink.
func (x *session) Closed(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed == nil {
		x.closed = err
	}
	x.wake()
}

// end ends the session: no stream gets it any more. It reports whether the caller detaches it; the caller holds mu.
func (x *session) end() (detach bool) {
	detach = !x.over && x.closed == nil
	x.over = true
	return detach
}

// wake tells the stream's writer that there is something to send; the caller holds mu.
func (x *session) wake() {
	if x.stream == nil {
		return
	}
	select {
	case x.stream.wake <- struct{}{}:
	default:
	}
}

// apply does what a rank asks for.
func (x *session) apply(up *ocspb.Up) error {
	switch m := up.GetMessage().(type) {
	case *ocspb.Up_Post:
		target, err := x.target(m.Post.GetPlane(), m.Post.GetTarget())
		if err != nil {
			return fmt.Errorf("post: %w", err)
		}
		return x.attachment.Post(int(m.Post.GetPlane()), m.Post.GetEpoch(), m.Post.GetHolder(), target)
	case *ocspb.Up_Acquire:
		return x.acquire(m.Acquire)
	case *ocspb.Up_Release:
		return x.release(m.Release.GetMask(), m.Release.GetHolder())
	}
	return fmt.Errorf("unexpected %s: %w", kind(up), ErrProtocol)
}

// kind names a message.
func kind(up *ocspb.Up) string {
	if up.GetMessage() == nil {
		return "empty or unknown message"
	}
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", up.GetMessage()), "*ocspb.Up_"))
}

// target checks the plane and the map of a message.
func (x *session) target(plane uint32, m []int32) (circuit.Permutation, error) {
	if err := x.server.checkPlane(plane); err != nil {
		return nil, err
	}
	target, err := fromMap(m, x.server.o.Ports)
	if err != nil {
		return nil, fmt.Errorf("plane %d: %w", plane, err)
	}
	return target, nil
}

// checkMask checks a set of planes.
func checkMask(mask uint64, planes int) error {
	if err := ocsctl.CheckMask(mask, planes); err != nil {
		return fmt.Errorf("%w: %w", err, ErrProtocol)
	}
	return nil
}

// lease reads and checks a lease of a rank.
func (s *Server) lease(m *ocspb.Lease) (ocsctl.Lease, error) {
	l, err := fromLease(m)
	if err == nil {
		err = l.Check(s.o.Ports, len(s.o.Planes))
	}
	if err != nil {
		return l, fmt.Errorf("%w: %w", err, ErrProtocol)
	}
	return l, nil
}

// acquire asks the core, unless it has been asked under this id.
func (x *session) acquire(m *ocspb.Acquire) error {
	lease, err := x.server.lease(m.GetLease())
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	x.mu.Lock()
	r := x.requests[m.GetId()]
	switch {
	case r != nil && !proto.Equal(r.lease, m.GetLease()):
		x.mu.Unlock()
		return fmt.Errorf("acquire: id %d stands for another request: %w", m.GetId(), ErrProtocol)
	case r != nil: // again, after a break: so is the answer
		if r.answer != nil && r.sent {
			r.sent = false
			x.unsent++
		}
		x.wake()
		x.mu.Unlock()
		return nil
	case x.waiting >= maxAcquires:
		x.mu.Unlock()
		return fmt.Errorf("acquire: %d requests wait already: %w", x.waiting, ErrProtocol)
	}
	x.forgetWanted(lease.Holder) // the core first frees planes that the holder still has
	x.requests[m.GetId()] = &request{lease: m.GetLease()}
	x.waiting++
	x.mu.Unlock()
	return x.attachment.Acquire(m.GetId(), lease)
}

func (x *session) release(mask, holder uint64) error {
	if err := checkMask(mask, len(x.planes)); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	x.mu.Lock()
	have := x.held[holder]
	if mask&^have != 0 {
		x.mu.Unlock()
		return fmt.Errorf("release: holder %s has planes %#x, not %#x: %w", ocsctl.HolderName(holder),
			have, mask, ErrProtocol)
	}
	x.forgetWanted(holder)
	if have &^= mask; have == 0 {
		delete(x.held, holder)
	} else {
		x.held[holder] = have
	}
	x.mu.Unlock()
	return x.attachment.Release(mask, holder)
}

// forgetWanted drops the news that others want a holder's planes; the caller holds mu. There is none for planes that
// it keeps: a holder gives all of them back.
func (x *session) forgetWanted(holder uint64) {
	kept, sent := x.wanted[:0], x.wantedSent
	for i, w := range x.wanted {
		if w.GetHolder() != holder {
			kept = append(kept, w)
		} else if i < sent {
			x.wantedSent--
		}
	}
	clear(x.wanted[len(kept):])
	x.wanted = kept
}

// adopt notes what the core has given back to the rank of a new session.
func (x *session) adopt(held []*ocspb.Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range held {
		x.held[l.GetHolder()] |= l.GetMask()
	}
}

// leases returns what a snapshot says that a port holds.
func leases(s *controller.Snapshot, port int) (all []*ocspb.Lease) {
	for _, l := range s.Leases() {
		if l.Port == port {
			all = append(all, toLeaseSnapshot(l))
		}
	}
	return all
}
