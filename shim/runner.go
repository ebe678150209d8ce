package shim

import (
	"fmt"
	"strings"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// runner is what a communicator keeps between groups so that running one allocates
// nothing. Guarded by Comm.mu, but for flight.
type runner struct {
	seq      uint64 // of the last collective
	programs programs
	latest   latest // of programs
	patience patience
	tasks    []*exec.Task
	ops      []*sharedmem.Op
	used     int // of tasks and, apart, of ops by the group in progress
	usedOps  int
	scratch  []byte

	pairs        *exec.Pairs
	p2p          program.Program
	sends, recvs []program.Message
	msgs         []exec.Buffer
	recvBufs     []exec.Buffer

	flight      *recorder
	group       uint64 // of sends and receives in progress: its number in the flight recorder
	traceFailed bool
}

// begin starts a group.
func (r *runner) begin() { r.used, r.usedOps = 0, 0 }

// next gives a collective its number, which agrees on all ranks, and the one that it has in this
// rank's flight recorder. e is nil while it is not known what will be done.
func (r *runner) next(s *shape, e *entry) (seq, flight uint64) {
	r.seq++
	return r.seq, r.flight.add(r.seq, s, e)
}

// skip is next for a collective of no elements: every rank counts those too.
func (r *runner) skip(s *shape) {
	_, n := r.next(s, nil)
	r.flight.end(n, completed)
}

// task returns a task that the group in progress does not use yet.
func (r *runner) task() *exec.Task {
	if r.used == len(r.tasks) {
		r.tasks = append(r.tasks, new(exec.Task))
	}
	r.used++
	return r.tasks[r.used-1]
}

// op is task for operations through the arena.
func (r *runner) op() *sharedmem.Op {
	if r.usedOps == len(r.ops) {
		r.ops = append(r.ops, new(sharedmem.Op))
	}
	r.usedOps++
	return r.ops[r.usedOps-1]
}

// scratchFor returns n bytes. Tasks of one communicator run one after another and share it.
func (r *runner) scratchFor(n int64) exec.Buffer {
	if n > int64(len(r.scratch)) {
		r.scratch = make([]byte, n)
	}
	return exec.BufferOf(r.scratch)
}

// forget gives back what calls have left for those that follow. Comm.mu is held.
func (r *runner) forget() {
	r.programs, r.latest, r.tasks, r.scratch = programs{}, latest{}, nil, nil
	r.sends, r.recvs, r.msgs, r.recvBufs = nil, nil, nil, nil
}

// misuse is an error of how calls were put together rather than of one argument.
func (c *Call) misuse(err error) error {
	return fmt.Errorf("shim: %v: %w: %w", c.Kind, err, errdefs.ErrInvalidUsage)
}

// reportCall sends the leader what this rank is waiting in, or gives up on.
func reportCall(c *Comm, kind control.Kind, seq uint64, sig uint32, call *Call) {
	// Without the leader the communicator fails by itself.
	_ = c.Star.ToLeader(&control.Message{Kind: kind, Seq: seq, Arg: uint64(sig), Body: []byte(call.String())})
}

// reportTimeout reports a call that has waited too long; why, where it is known, is what it waits for.
func reportTimeout(c *Comm, seq uint64, sig uint32, call *Call, why error) {
	body := call.String()
	if why != nil {
		body += "\n" + strings.TrimSuffix(why.Error(), ": "+exec.ErrTimeout.Error())
	}
	_ = c.Star.ToLeader(&control.Message{Kind: control.MsgTimeout, Seq: seq, Arg: uint64(sig), Body: []byte(body)})
}

// reportShape reports a collective of the past.
func reportShape(c *Comm, kind control.Kind, seq uint64, s *shape) {
	_ = c.Star.ToLeader(&control.Message{Kind: kind, Seq: seq, Arg: uint64(s.callSignature()), Body: []byte(s.String())})
}

// String describes the call that a shape came from.
func (s *shape) String() string {
	c := s.call()
	if s.scripted {
		return c.String() + ", interposed"
	}
	return c.String()
}

// call is that call, without its buffers.
func (s *shape) call() Call {
	return Call{Kind: s.kind, Type: s.typ, Op: s.op, Peer: s.root, Count: s.count, whole: s.whole, Options: Options{Plan: s.wish.plan, Planes: uint64(s.wish.planes)}}
}
