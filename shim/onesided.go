package shim

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/exec"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
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

// signalBytes is a signal's counter.
const signalBytes = 8

// oneSided is a rank's part in one-sided calls. What sources use is guarded by the communicator's
// lock; what targets use by mu.
type oneSided struct {
	c     *comm.Core
	links []*sideLink // to ranks that this one has written to
	taken []uint64    // signals that waits have used up, by source

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

func newOneSided(c *comm.Core) *oneSided {
	s := &oneSided{
		c: c, links: make([]*sideLink, c.Ranks), taken: make([]uint64, c.Ranks),
		more: make(chan struct{}), conns: map[closer]bool{},
	}
	s.idle.L = &s.mu
	c.OnFailure(s.interrupt)
	if birthOf(c).door != nil {
		birthOf(c).door.Receive(s.secret(c.Rank), s.serve)
	}
	return s
}

// secret is what a source proves to know to the target of that rank.
func (s *oneSided) secret(target int) control.Secret {
	return s.c.Secret.Derive("one-sided", s.c.ID, uint64(target))
}

// addWindow numbers a window.
func (s *oneSided) addWindow(at unsafe.Pointer, size int64, device bool) (number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows = append(s.windows, &ownWindow{at: at, size: size, device: device})
	if !s.ended {
		close(s.more)
		s.more = make(chan struct{})
	}
	return len(s.windows) - 1
}

// dropWindow has nobody write to a window any more: when it returns its memory may be freed.
func (s *oneSided) dropWindow(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.windows[number]
	w.gone = true
	for w.writers > 0 {
		s.idle.Wait()
	}
}

// interrupt ends what is under way on connections: the communicator has failed.
func (s *oneSided) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// follow has the end of the communicator close a connection. False: it has ended.
func (s *oneSided) follow(conn closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.c.AsyncError() != nil {
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *oneSided) forget(conn closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// end gives everything back. No call is in progress; other ranks' writes end here. Idempotent.
func (s *oneSided) end() {
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
	if birthOf(s.c).door != nil {
		birthOf(s.c).door.Receive(s.secret(s.c.Rank), nil)
	}
	s.serving.Wait()
	for _, l := range s.links {
		l.close()
	}
	s.page.Free()
}

// signals returns the page with this rank's counters.
func (s *oneSided) signals() (*memory.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page != nil || s.ended {
		return s.page, nil
	}
	var err error
	s.page, err = memory.NewPage("nccl-signals", signalBytes*s.c.Ranks)
	return s.page, err
}

// count counts a signal of another rank at this one.
func (s *oneSided) count(source int) error {
	page, err := s.signals()
	if err == nil && page != nil {
		atomic.AddUint64(page.Counter(source), 1)
	}
	return err
}

// takeOneSided moves the one-sided calls of a group, which run before the others, to s.sided.
func (s *session) takeOneSided(calls []calls.Call) {
	for i := range calls {
		if calls[i].Kind.OneSided() {
			s.sided = append(s.sided, calls[i])
		}
	}
	if len(s.sided) == 0 {
		return
	}
	s.sidedFlights = slices.Grow(s.sidedFlights, len(s.sided))[:len(s.sided)]
	clear(s.sidedFlights)
	for i := range calls {
		if !calls[i].Kind.OneSided() {
			s.rest = append(s.rest, calls[i])
		}
	}
	s.calls = s.rest
}

// runOneSided runs s.sided: those of a communicator in the order of calls. While one waits for
// signals those of others go on, for all may be this thread's.
func (s *session) runOneSided() error {
	err := s.tryOneSided()
	for i := range s.sided {
		if call := &s.sided[i]; call.Comm != nil && s.sidedFlights[i] != 0 {
			recorder.Of(call.Comm).End(s.sidedFlights[i], recorder.Failed)
		}
	}
	return err
}

// tryOneSided tries the calls of s.sided until all are done, which then have no Comm any more.
func (s *session) tryOneSided() error {
	left := len(s.sided)
	if left == 0 {
		return nil
	}
	var idle waiter
	for {
		before := left
		for _, c := range s.comms {
			for i := range s.sided {
				call := &s.sided[i]
				if call.Comm != c {
					continue
				}
				if s.sidedFlights[i] == 0 {
					s.sidedFlights[i] = recorder.Of(c).AddOneSided(call)
				}
				done, err := sidedOf(c).try(call)
				if err != nil {
					return c.Fail(err)
				}
				if !done {
					break // those behind it wait too
				}
				recorder.Of(c).End(s.sidedFlights[i], recorder.Completed)
				call.Comm = nil
				left--
			}
		}
		switch {
		case left == 0:
			return nil
		case left < before:
			idle = waiter{}
		default:
			if err := s.waitForSignals(&idle); err != nil {
				return err
			}
		}
	}
}

// waitForSignals pauses, and says whose signals do not come when that has been in vain for long.
func (s *session) waitForSignals(idle *waiter) error {
	idle.pause()
	waited := idle.waited()
	tell := idle.tell(waited)
	for i := range s.sided {
		call := &s.sided[i]
		if call.Comm == nil {
			continue
		}
		c := call.Comm
		if err := c.AsyncError(); err != nil {
			return err
		}
		if s.sidedFlights[i] == 0 || !tell && waited < c.Cfg.Timeout {
			continue
		}
		have, err := sidedOf(c).have(int(call.Peer))
		if err == nil {
			recorder.Of(c).Stalled(s.sidedFlights[i], exec.Wait{Rank: c.Rank, Peer: int(call.Peer), Plane: -1, Done: int64(have), Bytes: int64(call.Count)})
			if waited < c.Cfg.Timeout {
				continue
			}
			err = fmt.Errorf("shim: rank %d: %d of %d signals of rank %d in %v: %w", c.Rank, have, call.Count, call.Peer, c.Cfg.Timeout, errdefs.ErrTimeout)
		}
		return c.Fail(err)
	}
	return nil
}

// have is how many signals of a rank have come that no wait has used.
func (s *oneSided) have(source int) (uint64, error) {
	page, err := s.signals()
	if err != nil || page == nil {
		return 0, err
	}
	return atomic.LoadUint64(page.Counter(source)) - s.taken[source], nil
}

// try runs a call, or reports that signals that it waits for are still to come. Hot path: where the
// window has been written to before it allocates nothing.
func (s *oneSided) try(call *calls.Call) (done bool, err error) {
	peer := int(call.Peer)
	if call.Kind == calls.WaitSignal {
		have, err := s.have(peer)
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

// waiter paces polling: it yields, then sleeps, longer the longer it has been in vain.
type waiter struct {
	polls int
	since time.Time
	told  time.Duration // when tell last said so
}

// Whoever waits looks again at once so many times, giving way to others, and then every longestNap.
const (
	patientPolls = 2000
	longestNap   = 200 * time.Microsecond
)

func (w *waiter) pause() {
	if w.polls == 0 {
		w.since = time.Now()
	}
	w.polls++
	if w.polls < patientPolls {
		runtime.Gosched()
		return
	}
	time.Sleep(min(longestNap, time.Duration(w.polls-patientPolls+1)*10*time.Microsecond))
}

// tell reports, about once a second, that what is waited for is worth a word.
func (w *waiter) tell(waited time.Duration) bool {
	if waited < w.told+time.Second {
		return false
	}
	w.told = waited
	return true
}

func (w *waiter) waited() time.Duration {
	if w.polls%256 != 0 && w.polls < patientPolls {
		return 0 // the clock is dearer than a look
	}
	return time.Since(w.since)
}
