package shim

import (
	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/sharedmem"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/recorder"
)

// runner is what a communicator keeps between groups so that running one allocates
// nothing. Guarded by Comm.mu, but for flight.
type runner struct {
	seq      uint64 // of the last collective
	programs dispatch.Table
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

	flight *recorder.Recorder
	group  uint64 // of sends and receives in progress: its number in the flight recorder
}

// begin starts a group.
func (r *runner) begin() { r.used, r.usedOps = 0, 0 }

// next gives a collective its number, which agrees on all ranks, and the one that it has in this
// rank's flight recorder. e is nil while it is not known what will be done.
func (r *runner) next(s *calls.Shape, e *dispatch.Entry) (seq, flight uint64) {
	r.seq++
	return r.seq, r.flight.Add(r.seq, s, e)
}

// skip is next for a collective of no elements: every rank counts those too.
func (r *runner) skip(s *calls.Shape) {
	_, n := r.next(s, nil)
	r.flight.End(n, recorder.Completed)
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
	r.programs, r.latest, r.tasks, r.scratch = dispatch.Table{}, latest{}, nil, nil
	r.sends, r.recvs, r.msgs, r.recvBufs = nil, nil, nil, nil
}
