package session

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/sharedmem"
	"lightpath/collectives/transport"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/shares"
	"lightpath/shim/status"
)

// State is a communicator's state between groups. It is reused, so that running a group allocates nothing. The
// communicator's turn guards it.
type State struct {
	Packet   transport.Endpoint // of the packet planes
	MinPiece int64              // of a flow that uses a packet plane of its own, in bytes; 0: program.DefaultMinPiece
	Arena    *sharedmem.Arena   // nil if the ranks share no memory
	Optical  OpticalPath        // nil: the communicator has no circuits
	Shares   *shares.State      // of the packet planes; nil: they are always even
	Programs dispatch.Table
	Pairs    *exec.Pairs // of sends and receives
	Seq      uint64      // number of the last collective
	Patience Patience    // for calls that run alone in their group
	yielder  exec.Yielder
	slow     bool  // the last session waited long for the network (exec.Options.Slow)
	Group    Group // the sends and receives in progress

	c        *comm.Core
	tasks    []*exec.Task
	ops      []*sharedmem.Op
	used     int // tasks that the group in progress uses
	usedOps  int // ops that it uses
	scratch  []byte
	p2p      program.Program
	recvBufs []exec.Buffer
}

// Group is the sends and receives of a group.
type Group struct {
	Sends, Recvs []program.Message
	Buffers      []exec.Buffer // of the sends, then of the receives
	Flight       uint64        // its number in the flight recorder
}

// OpticalPath runs the calls of a communicator with circuits. It is package path/optical, which is above this one.
type OpticalPath interface {
	// Run runs the session's calls of the communicator, whose turn is held.
	Run(s *Session) error
}

var slot = comm.NewSlot[State]()

// Of returns the state of a communicator.
func Of(c *comm.Core) *State { return slot.Of(c) }

// Setup gives a communicator its state.
func Setup(c *comm.Core) {
	st := &State{c: c}
	slot.Set(c, st)
	c.AddHooks(comm.Hooks{
		Forget: st.forget, Close: st.close,
		Faults: func(time.Duration) []status.Fault {
			if !c.Made() {
				return nil
			}
			return endpoints.Faults(st.Packet)
		},
	})
}

// CountMessages begins to count messages by pairs of ranks. The ranks have met.
func (st *State) CountMessages() {
	st.Pairs = exec.NewPairs(st.c.Ranks)
	st.c.Above.CountMessages = func() map[int]control.Messages {
		counted := map[int]control.Messages{}
		for rank := range st.c.Ranks {
			m := control.Messages{Sent: st.Pairs.Sent(rank), Received: st.Pairs.Received(rank)}
			if m != (control.Messages{}) {
				counted[rank] = m
			}
		}
		return counted
	}
}

// InArena reports whether collectives of a kind run in shared memory, if they do not use circuits.
func (st *State) InArena(k calls.Kind) bool {
	cfg := st.c.Cfg
	return st.Arena != nil && k < calls.NumKinds && !k.P2P() &&
		(len(cfg.Algorithms) == 0 || cfg.Algorithms[calls.Kinds[k].Collective.String()] == "")
}

// Begin starts a group.
func (st *State) Begin() { st.used, st.usedOps = 0, 0 }

// Next returns the next collective's number, on which all ranks agree, and its number in this rank's flight recorder.
// e is nil if its entry is not known yet.
func (st *State) Next(s *calls.Shape, e *dispatch.Entry) (seq, flight uint64) {
	st.Seq++
	return st.Seq, recorder.Of(st.c).Add(st.Seq, s, e)
}

// Skip is [State.Next] for a collective without elements. Every rank counts those too.
func (st *State) Skip(s *calls.Shape) {
	_, flight := st.Next(s, nil)
	recorder.Of(st.c).End(flight, recorder.Completed)
}

// task returns a task that the group in progress does not use.
func (st *State) task() *exec.Task {
	if st.used == len(st.tasks) {
		st.tasks = append(st.tasks, new(exec.Task))
	}
	st.used++
	return st.tasks[st.used-1]
}

// Op is State.task for operations through shared memory.
func (st *State) Op() *sharedmem.Op {
	if st.usedOps == len(st.ops) {
		st.ops = append(st.ops, new(sharedmem.Op))
	}
	st.usedOps++
	return st.ops[st.usedOps-1]
}

// largeScratch is the size from which the system is asked for scratch memory first: without it, Go ends the process.
const largeScratch = 1 << 30

// scratchOf returns n bytes. Tasks of one communicator run one after another and share it.
func (st *State) scratchOf(n int64) (exec.Buffer, error) {
	if n <= int64(len(st.scratch)) {
		return exec.BufferOf(st.scratch), nil
	}
	st.scratch = nil
	if n >= largeScratch {
		probe, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return exec.Buffer{}, fmt.Errorf("shim: rank %d: no memory for %d bytes of scratch: %w: %w", st.c.Rank, n, err,
				errdefs.ErrSystem)
		}
		_ = unix.Munmap(probe)
	}
	st.scratch = make([]byte, n)
	return exec.BufferOf(st.scratch), nil
}

// forget frees memory that completed calls keep for later calls.
func (st *State) forget() {
	st.Programs, st.tasks, st.scratch, st.recvBufs, st.Group = dispatch.Table{}, nil, nil, nil, Group{}
}

// close frees the planes and shared memory. No call may be in progress.
func (st *State) close() {
	if st.Packet != nil {
		_ = st.Packet.Close() // no call waits for data in flight
	}
	if st.Arena != nil {
		st.Arena.Close()
	}
}

// Bytes returns the size of programs and scratch memory, in bytes.
func (st *State) Bytes() uint64 {
	const (
		instruction = uint64(unsafe.Sizeof(program.Instruction{}))
		segment     = uint64(unsafe.Sizeof(program.Segment{}))
		dep         = uint64(unsafe.Sizeof(program.None))
	)
	sum := uint64(cap(st.scratch))
	for _, e := range st.Programs.Programs {
		if e.Prog == nil {
			continue
		}
		for part := range e.Prog.Parts() {
			for i := range part.Code {
				in := &part.Code[i]
				sum += instruction + segment*uint64(cap(in.Src)+cap(in.Dst)+cap(in.Init)) + dep*uint64(cap(in.Deps))
			}
		}
	}
	return sum
}

// Yielder learns whether yields pay; nil if ranks outnumber CPUs.
func (st *State) Yielder() *exec.Yielder {
	if st.c.LocalRanks > runtime.NumCPU() {
		return nil
	}
	return &st.yielder
}
