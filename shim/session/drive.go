package session

import (
	"errors"
	"fmt"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/transport"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/recorder"
	"lightpath/shim/shares"
	"lightpath/shim/stall"
)

// Drive runs the tasks that have been bound, and does what follows them. Its error has failed the communicators whose tasks
// did not end.
func (s *Session) Drive() error {
	if len(s.tasks) == 0 {
		return nil
	}
	s.policy()
	err := exec.Run(s.tasks, &s.opts)
	if err != nil {
		return s.failed(err)
	}
	s.ended()
	return nil
}

// Try drives the tasks of one communicator for as long as a driver's thread may: about 1 us if other ranks are waited for.
// If they have not ended, [Session.Drive] goes on with them, or [Session.Abandon] does after an error.
func (s *Session) Try(c *comm.Core) (ended bool, err error) {
	st, polls := Of(c), SpinLong
	if c.Ranks > 1 {
		polls = min(st.Polls(), polls)
	}
	if ended, err = exec.Try(s.tasks, polls); ended {
		s.ended()
	}
	st.Patience.Learn(polls, ended && polls == SpinLong)
	return ended, err
}

// Abandon ends a group after an error of [Session.Bind] or [Session.Try].
func (s *Session) Abandon(err error) error {
	if len(s.tasks) == 0 {
		return err
	}
	return s.failed(err)
}

// ended does what follows the tasks.
func (s *Session) ended() {
	for i := range s.refs {
		r := &s.refs[i]
		if r.Entry != nil && r.Entry.Brings != nil {
			shares.Of(r.Comm).Measure(r.Comm, s.tasks[i], r.Entry.Brings)
		}
		if p := circuits.Of(r.Comm); p != nil && r.onCircuits() {
			recorder.Of(r.Comm).Traced(r.Flight, s.tasks[i], p.Base())
		}
		r.Finish()
	}
}

// failed turns what ended [exec.Run] into the error of the group. It fails every communicator whose task did not finish:
// its ranks are in the middle of something.
func (s *Session) failed(err error) error {
	result := err
	for i := range s.refs {
		if op := s.refs[i].op; op != nil {
			op.Abandon()
		}
	}
	for i, t := range s.tasks {
		if t.Err() != nil {
			result = s.Explain(&s.refs[i], t.Err())
		}
	}
	for i, t := range s.tasks {
		if !t.Done() && t.Err() == nil {
			recorder.Of(s.refs[i].Comm).End(s.refs[i].Flight, recorder.Failed)
			s.refs[i].Comm.Spread(result)
		}
	}
	return result
}

// VerdictWait is how long a rank whose operation has failed waits for a rank that knows more.
const VerdictWait = 3 * time.Second

// Explain fails the communicator of a task. If ranks disagree or one is missing, the leader knows more than this rank does,
// and gets the first word.
func (s *Session) Explain(ref *Ref, err error) error {
	c := ref.Comm
	recorder.Of(c).End(ref.Flight, recorder.Failed)
	var wait time.Duration
	switch timedOut := errors.Is(err, exec.ErrTimeout); {
	case c.AsyncError() != nil:
	case errors.Is(err, transport.ErrPeerLost):
		// Why the peer is gone comes by the control network.
		wait = VerdictWait
	case timedOut && ref.onCircuits():
		// With a ticket every rank has arrived. What matters is which ports the switches wait for.
		err = fmt.Errorf("%w; %s", err, circuits.Of(c).Waiting())
	case ref.Entry == nil: // sends and receives concern two ranks, which the error names
	case errors.Is(err, exec.ErrSignature):
		s.report(ref)
		wait = VerdictWait
	case errors.Is(err, exec.ErrSequence):
		// A frame of an operation that this rank has left behind: its sender calls it something else. The leader finds out
		// which operation it is.
		for seq := ref.Seq; seq > 0 && seq+8 > ref.Seq; seq-- {
			if sh, ok := recorder.Of(c).Find(seq); ok {
				stall.ReportShape(c, seq, &sh)
			}
		}
		wait = VerdictWait
	case timedOut:
		stall.GiveUp(c, ref.Seq, ref.Sig, s.Calls[ref.Call].String(), err)
		wait = VerdictWait
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-c.FailedChan():
		case <-timer.C:
		}
	}
	return c.Fail(err)
}

// report tells the leader which call a task is of.
func (s *Session) report(ref *Ref) {
	stall.Report(ref.Comm, ref.Seq, ref.Sig, s.Calls[ref.Call].String())
}

// stalled tells the leaders which calls this rank waits in, and the flight recorders what it waits for.
func (s *Session) stalled([]*exec.Task) error {
	var said *comm.Core // the first task of a communicator is the one that waits
	for i, t := range s.tasks {
		ref := &s.refs[i]
		if w, ok := t.Blocked(); ok && !t.Done() && ref.Comm != said {
			said = ref.Comm
			recorder.Of(ref.Comm).Stalled(ref.Flight, w)
		}
		if !t.Done() && ref.Entry != nil { // sends and receives have no number that ranks could compare
			s.report(ref)
		}
	}
	return nil
}
