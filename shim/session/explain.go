package session

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/transport"
	"lightpath/ocsctl"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/stall"
)

// failed turns the error of [exec.Run] into the error of the group. It fails every communicator whose task did not
// finish, since its ranks are in the middle of a call.
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

// verdictWait is how long a rank with a failed operation waits for a more precise error from another rank.
const verdictWait = 3 * time.Second

// VerdictWait returns the time that a rank with a failed operation waits for a more precise error from another rank:
// three seconds or, if the timeout is shorter, the timeout, but one second at least.
func VerdictWait(timeout time.Duration) time.Duration {
	return min(verdictWait, max(timeout, time.Second))
}

// Explain fails the communicator of a task. If ranks disagree or one is missing, the leader knows more than this rank.
// So Explain waits first for the leader's error.
func (s *Session) Explain(ref *Ref, err error) error {
	c := ref.Comm
	defer recorder.Of(c).End(ref.Flight, recorder.Failed)
	if bad := refusedBuffer(s.Calls, err); bad != nil {
		return c.Fail(bad)
	}
	var wait time.Duration
	verdict := VerdictWait(c.Cfg.Timeout)
	switch timedOut := errors.Is(err, exec.ErrTimeout); {
	case c.AsyncError() != nil:
	case errors.Is(err, transport.ErrPeerLost), errors.Is(err, ocsctl.ErrPortLost):
		// The control network reports why the peer has ended, unless the leader has ended too.
		if w, ok := s.blocked(ref); ok {
			recorder.Of(c).Stalled(ref.Flight, w)
		}
		if wait = verdict; c.LeaderGone() {
			wait = c.StallInterval()
		}
	case timedOut && ref.onCircuits():
		// A ticket means that every rank has arrived. Report which ports the switches wait for.
		err = fmt.Errorf("%w; %s", err, circuits.Of(c).Waiting())
	case ref.Entry == nil: // sends and receives concern two ranks; the error names them
	case errors.Is(err, exec.ErrSignature):
		s.report(ref)
		wait = verdict
	case errors.Is(err, exec.ErrSequence):
		// The frame is from an operation that this rank has completed; its sender gave it another signature. The
		// leader finds out which operation it is.
		for seq := ref.Seq; seq > 0 && seq+8 > ref.Seq; seq-- {
			if sh, ok := recorder.Of(c).Find(seq); ok {
				stall.ReportShape(c, seq, &sh)
			}
		}
		wait = verdict
	case timedOut:
		stall.GiveUp(c, ref.Seq, ref.Sig, s.Calls[ref.Call].String(), err)
		wait = verdict
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

// blocked returns what the task of a reference waits for.
func (s *Session) blocked(ref *Ref) (exec.Wait, bool) {
	if ref.op != nil {
		return ref.op.Waiting(), true
	}
	for i := range s.refs {
		if &s.refs[i] == ref {
			return s.tasks[i].Blocked()
		}
	}
	return exec.Wait{}, false
}

// report tells the leader to which call a task belongs.
func (s *Session) report(ref *Ref) {
	stall.Report(ref.Comm, ref.Seq, ref.Sig, s.Calls[ref.Call].String())
}

// compareSends fails the communicator if a rank waits for a send that cannot come while this rank is in a collective.
// Without circuits, a group counts all its sends before its collectives begin. With circuits, its sends begin after
// them.
func (s *Session) compareSends(ref *Ref) {
	st := Of(ref.Comm)
	if err := stall.Unsent(ref.Comm, ref.Seq, s.Calls[ref.Call].String(), st.Pairs.Sent); err != nil {
		go ref.Comm.Spread(err) // not on this goroutine, which the failure wakes
	}
}

// reportReceives tells each rank from which the group receives how many messages it has to send.
func (s *Session) reportReceives(c *comm.Core) {
	st := Of(c)
	for i, m := range st.Group.Recvs {
		first := slices.IndexFunc(st.Group.Recvs, func(o program.Message) bool { return o.Peer == m.Peer })
		if first == i && m.Peer != c.Rank {
			a := stall.Awaited{Rank: c.Rank, Messages: st.Pairs.Received(m.Peer), Collectives: st.Seq}
			stall.ReportAwaited(c, m.Peer, a)
		}
	}
}

// compareDepartures fails the communicator if a group waits for a message that a rank has not called before it left.
// Others may still be on their way.
func compareDepartures(ref *Ref, t *exec.Task) {
	c, pairs := ref.Comm, Of(ref.Comm).Pairs
	for _, d := range c.Departures() {
		w, waits := t.BlockedBy(func(rank int) bool { return rank == d.Rank })
		called := d.Messages[c.Rank]
		missing := pairs.Received(d.Rank) > called.Sent || w.Kind == program.Send && pairs.Sent(d.Rank) > called.Received
		if waits && missing {
			go c.Spread(stall.Departed(c, ref.Flight, d)) // not on this goroutine, which the failure wakes
			return
		}
	}
}

// stalled tells the leaders in which calls this rank waits, and the flight recorders for what it waits.
func (s *Session) stalled() error {
	var said *comm.Core // only the first unfinished task of a communicator waits
	for i, t := range s.tasks {
		ref := &s.refs[i]
		if w, ok := t.Blocked(); ok && !t.Done() && ref.Comm != said {
			said = ref.Comm
			recorder.Of(ref.Comm).Stalled(ref.Flight, w)
		}
		switch {
		case t.Done():
		case ref.Entry != nil:
			s.report(ref)
			s.compareSends(ref)
		default: // sends and receives have no number that ranks could compare
			stall.ReportFaults(ref.Comm)
			s.reportReceives(ref.Comm)
			compareDepartures(ref, t)
		}
	}
	return nil
}

// refusedBuffer is [BadBuffer] if the kernel has refused a buffer (EFAULT), else nil.
func refusedBuffer(group []calls.Call, err error) error {
	if !errors.Is(err, syscall.EFAULT) {
		return nil
	}
	return BadBuffer(group)
}

// BadBuffer returns the error of a call of a group that cannot use some of its memory, nil if there is none.
func BadBuffer(group []calls.Call) error {
	for i := range group {
		call := &group[i]
		send, recv := call.Extents()
		buffer, need := "send", "r"
		bad, why := unusable(uintptr(call.Send), uintptr(send), need)
		if why == "" {
			buffer, need = "receive", "rw"
			bad, why = unusable(uintptr(call.Recv), uintptr(recv), need)
		}
		if why != "" {
			return fmt.Errorf("shim: rank %d: %v: the %s buffer is %s at %#x: %w",
				call.Comm.Rank, call, buffer, why, bad, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// unusable returns the first address of a range that this process may not access as needed, and why not, "" if there
// is none.
func unusable(at, size uintptr, need string) (bad uintptr, why string) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return at, ""
	}
	defer f.Close()
	end := at + size
	for lines := bufio.NewScanner(f); at < end && lines.Scan(); {
		var from, to uintptr
		var access string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &access); n != 3 || to <= at {
			continue
		}
		switch {
		case from > at:
			return at, "not mapped"
		case access[0] != 'r':
			return at, "not readable"
		case !strings.HasPrefix(access, need):
			return at, "read-only"
		}
		at = to
	}
	if at < end {
		return at, "not mapped"
	}
	return at, ""
}
