package rpc

import (
	"sync"
	"sync/atomic"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
)

// attached counts how often it is detached.
type attached struct {
	controller.Attachment
	detached atomic.Int32
}

func (a *attached) Detach(bool) { a.detached.Add(1) }

func (a *attached) Acquire(uint64, ocsctl.Lease) error { return nil }

// TestWantedOfThisLease: a request of a holder gives back the planes that it has. So the news that others want those is
// void, and does not pile up.
func TestWantedOfThisLease(t *testing.T) {
	s := &Server{o: ServerOptions{Ports: 2, Planes: make([]ocsctl.PlaneInfo, 1)}}
	x := newSession(s, sessionID{}, 0, "")
	x.attachment = &attached{}
	for id := range uint64(3) {
		require.NoError(t, x.acquire(&ocspb.Acquire{Id: id, Lease: &ocspb.Lease{Holder: 7, Mask: 1}}))
		x.Granted(id, 1, nil)
		x.Wanted(7, 1)
	}
	if len(x.wanted) != 1 {
		t.Errorf("%v", x.wanted)
	}
}

// TestReturnAtTheLastMoment: a rank that comes back when its time is over gets its session, or the session ends. It
// never gets a session that has ended, on which it would wait without end.
func TestReturnAtTheLastMoment(t *testing.T) {
	s := &Server{sessions: map[sessionID]*session{}}
	for i := range 50000 {
		id := sessionID{byte(i), byte(i >> 8), byte(i >> 16)}
		a := &attached{}
		x := newSession(s, id, 0, "")
		x.attachment = a
		s.sessions[id] = x
		var both sync.WaitGroup
		both.Go(func() { s.expire(x) })
		resumed := s.resume(&stream{ctx: t.Context()}, &ocspb.Hello{Session: id[:]}, nil)
		both.Wait()
		if ended := a.detached.Load() > 0; resumed == ended {
			t.Fatalf("round %d: resumed: %v, ended: %v", i, resumed, ended)
		}
	}
}
