package session

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"lightpath/collectives/exec"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/onesided"
	"lightpath/shim/recorder"
)

// takeOneSided moves the one-sided calls of a group to s.oneSided. They run before the other calls.
func (s *Session) takeOneSided(group []calls.Call) {
	for i := range group {
		if group[i].Kind.OneSided() {
			s.oneSided = append(s.oneSided, group[i])
		}
	}
	s.oneSidedFlights = slices.Grow(s.oneSidedFlights, len(s.oneSided))[:len(s.oneSided)]
	clear(s.oneSidedFlights)
	for i := range group {
		if !group[i].Kind.OneSided() {
			s.others = append(s.others, group[i])
		}
	}
	s.Calls = s.others
}

// runOneSided runs s.oneSided. Calls of one communicator run in order. While one waits for signals, calls of other
// communicators continue, since one thread may make the calls of all of them.
func (s *Session) runOneSided() error {
	err := s.tryOneSided()
	for i := range s.oneSided {
		if call := &s.oneSided[i]; call.Comm != nil && s.oneSidedFlights[i] != 0 {
			recorder.Of(call.Comm).End(s.oneSidedFlights[i], recorder.Failed)
		}
	}
	return err
}

// tryOneSided tries the calls of s.oneSided until all have completed. It clears Comm of each completed call.
func (s *Session) tryOneSided() error {
	var idle waiter
	for left := len(s.oneSided); left > 0; {
		completed := 0
		for _, c := range s.Comms {
			n, err := s.tryCallsOf(c)
			if err != nil {
				return c.Fail(err)
			}
			completed += n
		}
		left -= completed
		if completed > 0 {
			idle = waiter{}
		} else if err := s.waitForSignals(&idle); err != nil {
			return err
		}
	}
	return nil
}

// tryCallsOf tries the calls of one communicator up to the first that must wait.
func (s *Session) tryCallsOf(c *comm.Core) (completed int, err error) {
	for i := range s.oneSided {
		call := &s.oneSided[i]
		if call.Comm != c {
			continue
		}
		if s.oneSidedFlights[i] == 0 {
			s.oneSidedFlights[i] = recorder.Of(c).AddOneSided(call)
		}
		done, err := onesided.Of(c).Try(call)
		if bad := refusedBuffer(s.oneSided[i:i+1], err); bad != nil {
			err = bad
		}
		if !done || err != nil {
			return completed, err // later calls of the communicator wait too
		}
		recorder.Of(c).End(s.oneSidedFlights[i], recorder.Completed)
		call.Comm = nil
		completed++
	}
	return completed, nil
}

// waitForSignals pauses. After a long wait it reports whose signals are missing.
func (s *Session) waitForSignals(idle *waiter) error {
	idle.pause()
	waited := idle.waited()
	tell := idle.tell(waited)
	for i := range s.oneSided {
		call := &s.oneSided[i]
		if call.Comm == nil {
			continue
		}
		c := call.Comm
		if err := c.AsyncError(); err != nil {
			return err
		}
		if s.oneSidedFlights[i] == 0 || !tell && waited < c.Cfg.Timeout {
			continue
		}
		have, err := onesided.Of(c).Have(int(call.Peer))
		if err == nil {
			recorder.Of(c).Stalled(s.oneSidedFlights[i], exec.Wait{Rank: c.Rank, Peer: int(call.Peer), Plane: -1,
				Done: int64(have), Bytes: int64(call.Count)})
			if waited < c.Cfg.Timeout {
				continue
			}
			err = fmt.Errorf("shim: rank %d: %d of %d signals of rank %d in %v: %w", c.Rank, have, call.Count, call.Peer,
				c.Cfg.Timeout, errdefs.ErrTimeout)
		}
		return c.Fail(err)
	}
	return nil
}

// waiter paces polling: it yields, then sleeps longer and longer.
type waiter struct {
	polls int
	since time.Time
	told  time.Duration // length of the wait at the last report
}

// A waiter yields for patientPolls polls. Then it sleeps between polls, at most longestNap.
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

// tell returns true after each [comm.MaxStallInterval]: the wait should be reported.
func (w *waiter) tell(waited time.Duration) bool {
	if waited < w.told+comm.MaxStallInterval {
		return false
	}
	w.told = waited
	return true
}

func (w *waiter) waited() time.Duration {
	if w.polls%256 != 0 && w.polls < patientPolls {
		return 0 // reading the clock costs more than a poll
	}
	return time.Since(w.since)
}
