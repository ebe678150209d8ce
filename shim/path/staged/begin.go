package staged

import (
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/session"
)

// A step begins on the thread on which its driver reports that the stream reached it. This thread must not call the
// driver. Streams may wait for the thread, also streams of ranks that the step waits for. So the thread begins only a
// step that takes microseconds once all ranks have arrived. It never waits for a lock. If other ranks have not
// arrived, it leaves the step to the worker.

// briefMost is the largest sum of all ranks' blocks in such a step, in bytes.
const briefMost = 16 << 10

// try begins the launch's step and reports whether the step has ended. Otherwise the worker runs it or continues it.
// Hot path: no allocation, no logging, no system call.
func (l *launch) try() (over bool) {
	c := l.Comm
	if !l.isBrief() || !c.Turn.TryLock() {
		return false
	}
	if c.Healthy() != nil || !knows(c, &l.Calls[0]) {
		c.Turn.Unlock()
		return false
	}
	l.CopyOuts(0)
	s := session.New(l.Calls, c)
	if l.met = s.BindAll(c); l.met == nil {
		over, l.met = s.Try(c)
	}
	if !over {
		l.begun = s // c stays locked
		return false
	}
	l.leave(s)
	l.CopyIns(0)
	l.stepped()
	return true
}

// goOn completes a step that try has begun.
func (l *launch) goOn() error {
	s, err := l.begun, l.met
	l.begun, l.met = nil, nil
	if err == nil {
		err = s.Drive()
	} else {
		err = s.Abandon(err)
	}
	l.leave(s)
	if err == nil {
		l.CopyIns(0)
	}
	return err
}

// leave releases the lock and the session of a step that try has begun.
func (l *launch) leave(s *session.Session) {
	l.Comm.Turn.Unlock()
	s.Close()
}

// isBrief reports whether try may begin the step. The step must be the only one of its launch, with one collective of
// few bytes, among ranks that share memory.
func (l *launch) isBrief() bool {
	if len(l.Steps) != 1 || len(l.Calls) != 1 {
		return false
	}
	call, c := &l.Calls[0], l.Comm
	if call.Kind >= calls.NumKinds || call.Kind.P2P() || call.Options != (calls.Options{}) || call.Scalar != nil ||
		circuits.Of(c) != nil {
		return false
	}
	most := briefMost / uint64(call.Type.Size()*c.Ranks)
	if call.Count == 0 || call.Count > most {
		return false
	}
	return c.Ranks == 1 ||
		session.Of(c).InArena(call.Kind) && session.Of(c).Arena.InSmallSlots(calls.Kinds[call.Kind].Collective,
			int(call.Peer), int(call.Count)*call.Type.Size())
}

// knows reports whether the program of a call is cached and the call needs nothing else: no agreement on shares and no
// measurement. The caller holds c.Turn.
func knows(c *comm.Core, call *calls.Call) bool {
	if session.Of(c).Shares != nil {
		return false
	}
	e := session.Of(c).Programs.Get(dispatch.Key{Shape: calls.ShapeOf(call)})
	return e != nil && e.ReceivedBytes == nil
}
