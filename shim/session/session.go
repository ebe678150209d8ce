package session

import (
	"slices"
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
)

// Session is one group of calls in progress. Get one with [New], and end it with [Session.Close].
type Session struct {
	Calls []calls.Call // checked, and not cut into pieces
	Comms []*comm.Core // of the calls
	Gate  exec.Gate    // holds messages back; nil: none

	tasks []*exec.Task
	refs  []Ref        // of tasks
	sided []calls.Call // the one-sided calls
	// sidedFlights holds their numbers in the flight recorder; 0: not begun.
	sidedFlights []uint64
	rest         []calls.Call // the other calls, if there are both
	opts         exec.Options
}

var pool = sync.Pool{New: func() any {
	s := &Session{}
	s.opts.OnStall = s.stalled
	return s
}}

// New returns a session of some calls and their communicators.
func New(group []calls.Call, comms ...*comm.Core) *Session {
	s := pool.Get().(*Session)
	s.Calls, s.Comms = group, append(s.Comms, comms...)
	return s
}

// Close returns the session to its pool.
func (s *Session) Close() {
	clear(s.Comms)
	clear(s.tasks)
	clear(s.refs)
	clear(s.sided)
	clear(s.rest)
	s.sided, s.rest = s.sided[:0], s.rest[:0]
	s.Calls, s.Comms, s.tasks, s.refs, s.Gate = nil, s.Comms[:0], s.tasks[:0], s.refs[:0], nil
	s.opts.Deadline = time.Time{}
	pool.Put(s)
}

// Deadline returns when the group must have ended, zero for no deadline.
func (s *Session) Deadline() time.Time { return s.opts.Deadline }

// Run runs the calls and returns when all have completed. Calls of one communicator keep their order, with two
// exceptions. Its one-sided calls run first. Its sends and receives are merged into one exchange after its
// collectives. Different communicators progress at the same time.
func (s *Session) Run() error {
	s.takeOneSided(s.Calls)
	s.opts.Deadline = calls.DeadlineOf(s.Calls)
	slices.SortFunc(s.Comms, comm.BySerial)
	for _, c := range s.Comms {
		c.Turn.Lock()
	}
	defer s.unlock()
	return s.runLocked()
}

func (s *Session) unlock() {
	for _, c := range s.Comms {
		c.Turn.Unlock()
	}
}

func (s *Session) runLocked() error {
	for _, c := range s.Comms {
		// Another thread may have failed or destroyed it while this thread waited for the lock.
		if err := c.Sound(); err != nil {
			return err
		}
	}
	if err := s.runOneSided(); err != nil {
		return err
	}
	switch {
	case len(s.Calls) == 0:
		return nil
	case slices.ContainsFunc(s.Comms, func(c *comm.Core) bool { return Of(c).Carrier != nil }):
		return s.runApart()
	}
	for _, c := range s.Comms {
		if err := s.Bind(c); err != nil {
			return err
		}
	}
	return s.Drive()
}

// runApart runs the calls of one communicator after another. A carrier may first wait for other ranks, and these may
// first have to complete calls of other communicators.
func (s *Session) runApart() error {
	if len(s.Comms) == 1 {
		return s.runOf(s.Comms[0])
	}
	errs := make([]error, len(s.Comms))
	var wg sync.WaitGroup
	for i, c := range s.Comms {
		wg.Go(func() {
			sub := New(s.Calls, c)
			sub.opts.Deadline = s.opts.Deadline
			errs[i] = sub.runOf(c)
			sub.Close()
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// runOf runs the calls of one communicator.
func (s *Session) runOf(c *comm.Core) error {
	if carrier := Of(c).Carrier; carrier != nil {
		return carrier.Run(s)
	}
	if err := s.Bind(c); err != nil {
		return err
	}
	return s.Drive()
}
