package session

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/recorder"
)

// Session is one group of calls in progress. Get one with [New], and end it with [Session.Close].
type Session struct {
	Calls  []calls.Call       // checked, and not cut into pieces
	Comms  []*comm.Core       // of the calls
	Memory exec.MessageMemory // holds messages back; nil: none

	tasks    []*exec.Task
	refs     []Ref        // of tasks
	oneSided []calls.Call // the one-sided calls
	// oneSidedFlights holds their numbers in the flight recorder; 0: not begun.
	oneSidedFlights []uint64
	others          []calls.Call // the other calls, if there are both
	opts            exec.Options
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
	clear(s.oneSided)
	clear(s.others)
	s.oneSided, s.others = s.oneSided[:0], s.others[:0]
	s.Calls, s.Comms, s.tasks, s.refs, s.Memory = nil, s.Comms[:0], s.tasks[:0], s.refs[:0], nil
	s.opts.Deadline = time.Time{}
	pool.Put(s)
}

// Deadline returns when the group must have ended, zero for no deadline.
func (s *Session) Deadline() time.Time { return s.opts.Deadline }

// Run runs the calls and returns when all have completed. Calls of one communicator keep their order, with two
// exceptions. Its one-sided calls run first. Its sends and receives are merged into one exchange after its
// collectives. Different communicators progress at the same time.
func (s *Session) Run() error {
	for i := range s.Calls {
		if s.Calls[i].Kind.OneSided() {
			s.takeOneSided(s.Calls)
			break
		}
	}
	s.opts.Deadline = calls.DeadlineOf(s.Calls)
	slices.SortFunc(s.Comms, comm.BySerial)
	for _, c := range s.Comms {
		c.Turn.Lock()
	}
	defer s.unlock()
	onCircuits := false
	for _, c := range s.Comms {
		// Another thread may have failed or destroyed it while this thread waited for the lock.
		if err := c.Healthy(); err != nil {
			return err
		}
		onCircuits = onCircuits || Of(c).Optical != nil
	}
	if len(s.oneSided) > 0 {
		if err := s.runOneSided(); err != nil {
			return err
		}
	}
	switch {
	case len(s.Calls) == 0:
		return nil
	case onCircuits:
		return s.runEachComm()
	}
	for _, c := range s.Comms {
		if err := s.BindAll(c); err != nil {
			return err
		}
	}
	return s.Drive()
}

func (s *Session) unlock() {
	for _, c := range s.Comms {
		c.Turn.Unlock()
	}
}

// runEachComm runs the calls of each communicator on a goroutine of its own. An operation on circuits may first wait
// for other ranks, and these may first have to complete calls of other communicators.
func (s *Session) runEachComm() error {
	if len(s.Comms) == 1 {
		return s.runComm(s.Comms[0])
	}
	errs := make([]error, len(s.Comms))
	var wg sync.WaitGroup
	for i, c := range s.Comms {
		wg.Go(func() {
			sub := New(s.Calls, c)
			sub.opts.Deadline = s.opts.Deadline
			errs[i] = sub.runComm(c)
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

// runComm runs the calls of one communicator.
func (s *Session) runComm(c *comm.Core) error {
	if optical := Of(c).Optical; optical != nil {
		return optical.Run(s)
	}
	if err := s.BindAll(c); err != nil {
		return err
	}
	return s.Drive()
}

// Drive runs the bound tasks and the work after them. If it returns an error, it has failed the communicators whose
// tasks did not end.
func (s *Session) Drive() error {
	if len(s.tasks) == 0 {
		return nil
	}
	s.setWaiting()
	st := Of(s.Comms[0])
	s.opts.Yielder, s.opts.Slow = st.Yielder(), &st.slow
	err := exec.Run(s.tasks, &s.opts)
	if err != nil {
		return s.failed(err)
	}
	s.finish()
	return nil
}

// setWaiting sets how the session waits. A yield costs about 0.3 us if no other process wants the CPU, a wake-up 30 us.
// So ranks yield long before they sleep, also if each could have a CPU: the system may have put two on one. If ranks
// outnumber CPUs, spinning delays the awaited rank, and so both.
func (s *Session) setWaiting() {
	s.opts.Timeout, s.opts.Alone = 0, true
	for _, c := range s.Comms {
		if s.opts.Timeout == 0 || c.Cfg.Timeout < s.opts.Timeout {
			s.opts.Timeout, s.opts.StallAfter = c.Cfg.Timeout, c.StallInterval()
		}
		s.opts.Alone = s.opts.Alone && c.SoleRank
	}
	c, ref := s.Comms[0], &s.refs[0]
	s.opts.LongWait = 0
	if !ref.shared() && !ref.onCircuits() {
		s.opts.LongWait = 16 // about as long as a wake-up takes
	}
	if c.LocalRanks <= runtime.NumCPU() {
		s.opts.Spin, s.opts.Yield = 64, 2000
		if ref.shared() {
			s.opts.Spin = 0 // the call has already spun
		}
	} else {
		s.opts.Spin, s.opts.Yield = 1, 200
		if ref.onCircuits() {
			// On the emulated wire a frame takes far longer than a wake-up, and the switch itself needs the CPUs.
			s.opts.Spin, s.opts.Yield = 0, 0
		}
	}
	if c.Cfg.Spin >= 0 {
		s.opts.Spin, s.opts.LongWait = c.Cfg.Spin, 0
	}
}

// finish does the work after the tasks.
func (s *Session) finish() {
	for i := range s.refs {
		r := &s.refs[i]
		if r.Entry != nil && r.Entry.ReceivedBytes != nil {
			Of(r.Comm).Shares.Measure(r.Comm, s.tasks[i], r.Entry.ReceivedBytes)
		}
		if p := circuits.Of(r.Comm); p != nil && r.onCircuits() {
			recorder.Of(r.Comm).Traced(r.Flight, s.tasks[i], p.Machine.Base())
		}
		r.Finish()
	}
}

// Try drives the tasks of one communicator for as long as a driver's thread may: about 1 us if it must wait for other
// ranks. If they have not ended, the caller continues with [Session.Drive], or after an error with [Session.Abandon].
func (s *Session) Try(c *comm.Core) (ended bool, err error) {
	st, polls := Of(c), SpinLong
	if c.Ranks > 1 {
		polls = min(st.Polls(), polls)
	}
	if ended, err = exec.Try(s.tasks, polls); ended {
		s.finish()
	}
	st.Patience.Learn(polls, ended && polls == SpinLong)
	return ended, err
}

// Abandon ends a group after an error of [Session.BindAll] or [Session.Try].
func (s *Session) Abandon(err error) error {
	if len(s.tasks) == 0 {
		return err
	}
	return s.failed(err)
}
