package onesided

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/sharedmem/memfile"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/memory"
)

// One-sided calls: a rank (the source) writes to a window of another rank (the target) and counts a signal there. The
// target takes no part. A rank that waits for signals sees all data written before them.
//
// Each rank numbers its windows in the order of registration. A window of the caller stands for the window with the
// same number at any rank. A rank's signals are counters in a page of its own, one for each source. If two ranks may
// share memory, the source maps the page and the windows from ncclMemAlloc. Then it copies and counts by itself, and
// the target's process is idle. Everything else goes over a connection from the source to the target's rendezvous, in
// order. A goroutine of the target receives into the window and counts (link.go, serve.go).

var sidedSlot = comm.NewSlot[State]()

// Of returns a rank's part in one-sided calls.
func Of(c *comm.Core) *State { return sidedSlot.Of(c) }

// Attach prepares a joined communicator for one-sided calls.
func Attach(c *comm.Core, rendezvous *bootstrap.Rendezvous) {
	sidedSlot.Set(c, newOneSided(c, rendezvous))
}

// SignalBytes is the size of a signal's counter.
const SignalBytes = 8

// State is a rank's part in one-sided calls. The communicator's turn guards the fields that sources use; mu guards
// those of targets.
type State struct {
	c          *comm.Core
	rendezvous *bootstrap.Rendezvous // where sources connect; nil for one rank
	Links      []*link               // to ranks that this rank has written to
	taken      []uint64              // signals that waits have consumed, by source

	mu      sync.Mutex
	windows []*ownWindow  // by number
	more    chan struct{} // closed when a window is added, and at the end
	idle    sync.Cond     // a window has no writers any more
	page    *memory.Page  // of counters; nil until it is needed
	conns   map[closer]bool
	ended   bool
	serving sync.WaitGroup
	stale   atomic.Bool // a window is gone since the last sweep
}

type closer interface{ Close() error }

// ownWindow is a window of this rank.
type ownWindow struct {
	at      unsafe.Pointer
	size    int64
	device  bool // memory that the CPU cannot write: the window has a number, and refuses puts
	gone    bool
	writers int // goroutines that receive into it
}

func newOneSided(c *comm.Core, rendezvous *bootstrap.Rendezvous) *State {
	s := &State{
		c: c, rendezvous: rendezvous, Links: make([]*link, c.Ranks), taken: make([]uint64, c.Ranks),
		more: make(chan struct{}), conns: map[closer]bool{},
	}
	s.idle.L = &s.mu
	c.OnFailure(s.closeAll)
	if rendezvous != nil {
		rendezvous.Receive(s.secret(c.Rank), s.serve)
	}
	return s
}

// secret returns the secret that authenticates a source to a target.
func (s *State) secret(target int) control.Secret {
	return s.c.Secret.Derive("one-sided", s.c.ID, uint64(target))
}

// AddWindow registers a window and returns its number.
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

// DropWindow stops writes to a window. The caller may free the memory when it returns.
func (s *State) DropWindow(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.windows[number]
	w.gone = true
	s.stale.Store(true)
	for w.writers > 0 {
		s.idle.Wait()
	}
}

// sweep unmaps the peers' windows with the numbers of those that this rank has deregistered. No call names them any
// more, and a mapping keeps memory in use that the peer may have freed. The caller holds the communicator's turn.
func (s *State) sweep() {
	if !s.stale.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale.Store(false)
	for _, l := range s.Links {
		if l == nil {
			continue
		}
		for number, w := range l.Windows {
			if s.windows[number].gone {
				memfile.Unmap(w.Mem)
				delete(l.Windows, number)
			}
		}
	}
}

// closeAll closes all connections, since the communicator has failed.
func (s *State) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// track makes the end of the communicator close a connection. It returns false if the communicator has ended.
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

// End frees everything and stops writes of other ranks. No call may be in progress. Idempotent.
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
	if s.rendezvous != nil {
		s.rendezvous.Receive(s.secret(s.c.Rank), nil)
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

// count counts a signal of a source at this rank.
func (s *State) count(source int) error {
	page, err := s.signals()
	if err == nil && page != nil {
		atomic.AddUint64(page.Counter(source), 1)
	}
	return err
}

// Have returns how many signals of a rank have arrived that no wait has consumed.
func (s *State) Have(source int) (uint64, error) {
	page, err := s.signals()
	if err != nil || page == nil {
		return 0, err
	}
	return atomic.LoadUint64(page.Counter(source)) - s.taken[source], nil
}

// Try runs a call, or reports that the signals it waits for have not arrived. Hot path: for a window that was written
// before, it allocates nothing.
func (s *State) Try(call *calls.Call) (done bool, err error) {
	s.sweep()
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
	size, _ := call.Extents()
	return true, l.put(w.Number, int64(call.Offset), memory.Bytes(call.Send, size))
}
