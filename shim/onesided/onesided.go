// Package onesided runs put, signal and wait: it keeps links to other ranks, and the windows that ranks put to.
package onesided

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/memory"
)

// One-sided calls: a rank writes to a window of another, which takes no part, and counts a signal
// there; whoever waits for signals sees all that was written before them.
//
// Windows are numbered by rank in the order of registration, so that a window of the caller's names
// the one with its number at any rank. A rank's signals are counters in a page of its own, one per
// source. Where two ranks may share memory, the source maps the page and the windows that are memory
// of ncclMemAlloc, copies, and counts: the other process does nothing. Everything else goes over a
// connection from the source to the target's door, in order, where a goroutine of the target receives
// into the window and counts (sidelink.go, sideserve.go).

var sidedSlot = comm.NewSlot[State]()

// Of returns a rank's part in one-sided calls.
func Of(c *comm.Core) *State { return sidedSlot.Of(c) }

// Attach gives a communicator that has joined its part in one-sided calls.
func Attach(c *comm.Core, door *bootstrap.Door) {
	sidedSlot.Set(c, newOneSided(c, door))
}

// SignalBytes is a signal's counter.
const SignalBytes = 8

// State is a rank's part in one-sided calls. What sources use is guarded by the communicator's
// lock; what targets use by mu.
type State struct {
	c     *comm.Core
	door  *bootstrap.Door // where sources connect; nil for one rank
	Links []*link         // to ranks that this one has written to
	taken []uint64        // signals that waits have used up, by source

	mu      sync.Mutex
	windows []*ownWindow  // by number
	more    chan struct{} // closed when there is another one, or the end
	idle    sync.Cond     // on mu: a window is not written to any more
	page    *memory.Page  // of counters, once it is needed
	conns   map[closer]bool
	ended   bool
	serving sync.WaitGroup
}

type closer interface{ Close() error }

// ownWindow is a window of this rank.
type ownWindow struct {
	at      unsafe.Pointer
	size    int64
	device  bool // memory that the CPU cannot write: it has a number, and takes no puts
	gone    bool
	writers int // that are receiving into it
}

func newOneSided(c *comm.Core, door *bootstrap.Door) *State {
	s := &State{
		c: c, door: door, Links: make([]*link, c.Ranks), taken: make([]uint64, c.Ranks),
		more: make(chan struct{}), conns: map[closer]bool{},
	}
	s.idle.L = &s.mu
	c.OnFailure(s.closeAll)
	if door != nil {
		door.Receive(s.secret(c.Rank), s.serve)
	}
	return s
}

// secret is what a source proves to know to the target of that rank.
func (s *State) secret(target int) control.Secret {
	return s.c.Secret.Derive("one-sided", s.c.ID, uint64(target))
}

// AddWindow numbers a window.
func (s *State) AddWindow(at unsafe.Pointer, size int64, device bool) (number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows = append(s.windows, &ownWindow{at: at, size: size, device: device})
	if !s.ended {
		close(s.more)
		s.more = make(chan struct{})
	}
	return len(s.windows) - 1
}

// DropWindow has nobody write to a window any more: when it returns its memory may be freed.
func (s *State) DropWindow(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.windows[number]
	w.gone = true
	for w.writers > 0 {
		s.idle.Wait()
	}
}

// closeAll ends what is under way on connections: the communicator has failed.
func (s *State) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// track has the end of the communicator close a connection. False: it has ended.
func (s *State) track(conn closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.c.AsyncError() != nil {
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *State) forget(conn closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// End gives everything back. No call is in progress; other ranks' writes end here. Idempotent.
func (s *State) End() {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	close(s.more)
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	if s.door != nil {
		s.door.Receive(s.secret(s.c.Rank), nil)
	}
	s.serving.Wait()
	for _, l := range s.Links {
		l.close()
	}
	s.page.Free()
}

// signals returns the page with this rank's counters.
func (s *State) signals() (*memory.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page != nil || s.ended {
		return s.page, nil
	}
	var err error
	s.page, err = memory.NewPage("nccl-signals", SignalBytes*s.c.Ranks)
	return s.page, err
}

// count counts a signal of another rank at this one.
func (s *State) count(source int) error {
	page, err := s.signals()
	if err == nil && page != nil {
		atomic.AddUint64(page.Counter(source), 1)
	}
	return err
}

// Have is how many signals of a rank have come that no wait has used.
func (s *State) Have(source int) (uint64, error) {
	page, err := s.signals()
	if err != nil || page == nil {
		return 0, err
	}
	return atomic.LoadUint64(page.Counter(source)) - s.taken[source], nil
}

// Try runs a call, or reports that signals that it waits for are still to come. Hot path: where the
// window has been written to before it allocates nothing.
func (s *State) Try(call *calls.Call) (done bool, err error) {
	peer := int(call.Peer)
	if call.Kind == calls.WaitSignal {
		have, err := s.Have(peer)
		if err != nil || have < call.Count {
			return false, err
		}
		s.taken[peer] += call.Count
		return true, nil
	}
	l, err := s.link(peer)
	if err != nil {
		return false, err
	}
	if call.Kind == calls.Signal {
		return true, l.signal()
	}
	w, err := memory.Lookup(s.c, call.Window, true)
	if err != nil {
		return false, err
	}
	data := memory.Bytes(call.Send, int64(call.Count)*int64(call.Type.Size()))
	return true, l.put(w.Number, int64(call.Offset), data)
}
