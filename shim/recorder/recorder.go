package recorder

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/dispatch"
	"lightpath/shim/planeset"
)

// Recorder is a communicator's flight recorder: its last operations, their states, and the wait of the operation in
// progress. From it, a rank that waits learns which other calls its peers have made since. Safe for concurrent use: the
// communicator writes and reporters read, under a lock of the recorder's own.
type Recorder struct {
	mu     sync.Mutex
	Size   uint64 // of ops, a power of two
	Timed  bool   // LIGHTPATH_FLIGHT_RECORDER is not 0
	Planes int    // with circuits
	ops    []Operation
	lanes  []flownLane // planes per operation
	moves  []flownMove // maxMoves per operation

	last   uint64 // number of the last operation; they count from 1, collectives and groups alike
	seq    uint64 // number of the last collective
	counts [calls.EndOfKinds]uint64
	groups uint64
	stall  Standstill

	quick    quick
	device   deviceOps
	profiler Profiler    // nil: none
	profiled atomic.Bool // there is one
	totals   *totals     // nil without [Recorder.Measure]
}

var flightSlot = comm.NewSlot[Recorder]()

// Of returns the flight recorder of a communicator.
func Of(c *comm.Core) *Recorder { return flightSlot.Of(c) }

// Least is the least number of operations in a recorder, for ranks that ask each other.
const Least = 64

// maxMoves is how many reconfigurations of an operation are recorded.
const maxMoves = 16

// Operation is one operation.
type Operation struct {
	Number uint64
	// of a collective; 0: a group of sends and receives, a one-sided call, or a replay of a graph
	Seq      uint64
	Replay   bool
	Shape    calls.Shape     // of a collective; of a one-sided call kind, type, count and, as root, the peer
	Messages int32           // of a group
	Bytes    int64           // of a group, or of a put
	launch   uint32          // on the device, 0: the CPU ends it
	Entry    *dispatch.Entry // of a collective; nil if the call has no work, or if the entry is not known yet
	circuits bool            // the operation is on planes with circuits
	use      planeset.Set
	moves    int32 // recorded
	Outcome  Outcome
	Asked    int64 // nanoseconds of CLOCK_MONOTONIC, as all times here; 0: not yet, or not recorded
	Ticketed int64
	Arrived  int64
	Ended    int64
}

// Outcome is the state of an operation.
type Outcome uint8

// The outcomes.
const (
	UnderWay Outcome = iota
	Completed
	Failed
)

// flownLane is an operation on one plane with circuits.
type flownLane struct {
	base       uint32 // epoch
	start, end int64
}

// flownMove is a reconfiguration.
type flownMove struct {
	plane      int32
	epoch      uint32 // that it ends
	start, end int64  // end 0: nothing followed
}

// Standstill is the last seen wait of an operation that did not move.
type Standstill struct {
	number      uint64
	Wait        exec.Wait
	Since, Seen int64 // nanoseconds of CLOCK_MONOTONIC
}

// fresh is how long a recorded stall is valid. While a stall lasts, it is recorded again each second.
const fresh = 2500 * time.Millisecond

// New gives a communicator its flight recorder.
func New(c *comm.Core, n int) *Recorder {
	f := &Recorder{}
	f.setUp(n)
	flightSlot.Set(c, f)
	c.AddHooks(comm.Hooks{Failed: func(err error) { leave(c, err) }})
	return f
}

// setUp makes a recorder of n operations, 0 for the least and no times.
func (f *Recorder) setUp(n int) {
	f.Timed, f.Size = n > 0, Least
	for f.Size < uint64(n) {
		f.Size *= 2
	}
}

// clock returns the time, 0 if operations are not timed. Hot path: no system call.
func (f *Recorder) clock() int64 {
	if !f.Timed {
		return 0
	}
	return monotonic.Now()
}

// Add records a collective that begins, and returns its number.
// Hot path: no allocation after the first, no logging.
func (f *Recorder) Add(seq uint64, s *calls.Shape, e *dispatch.Entry) uint64 {
	now := f.clock()
	f.mu.Lock()
	f.catchUp()
	op := f.next(now)
	op.Seq, op.Shape, op.Entry, f.seq = seq, *s, e, seq
	f.counts[s.Kind]++
	f.began(op, nil, nil)
	f.mu.Unlock()
	return op.Number
}

// catchUp enters the operations that devices and C have made or ended. The caller holds f.mu. Hot path.
func (f *Recorder) catchUp() {
	if d := &f.device; d.ended != nil || len(d.graphs) > 0 {
		d.catchUp(f)
	}
	if f.quick.q != nil {
		f.enterQuick()
	}
}

// began tells the profiler, if there is one, of an operation that has begun, with the messages of a group. The caller
// holds f.mu. Hot path.
func (f *Recorder) began(op *Operation, sends, recvs []program.Message) {
	if f.profiler != nil {
		f.profile(op, sends, recvs)
	}
}

// next returns the entry of the next operation. The caller holds f.mu.
func (f *Recorder) next(now int64) *Operation {
	if f.ops == nil {
		f.Size = max(f.Size, Least)
		f.ops = make([]Operation, f.Size)
		f.lanes, f.moves = make([]flownLane, int(f.Size)*f.Planes), make([]flownMove, int(f.Size)*min(f.Planes, 1)*maxMoves)
	}
	f.last++
	op := f.at(f.last)
	if op.Outcome == UnderWay && f.profiler != nil {
		f.profiler.End(op.Number) // the recorder forgets it
	}
	*op = Operation{Number: f.last, Arrived: now}
	return op
}

func (f *Recorder) at(number uint64) *Operation { return &f.ops[number&(f.Size-1)] }

// End records how an operation has ended. Hot path.
func (f *Recorder) End(number uint64, how Outcome) {
	now := f.clock()
	f.mu.Lock()
	if op := f.at(number); op.Number == number && op.Outcome == UnderWay {
		f.end(op, how, now)
	}
	f.mu.Unlock()
}

// end ends an operation. The caller holds f.mu. Hot path.
func (f *Recorder) end(op *Operation, how Outcome, now int64) {
	op.Ended, op.Outcome = now, how
	if f.profiler != nil {
		f.profiler.End(op.Number)
	}
	if f.totals != nil && how == Completed {
		f.totals.ended(op)
	}
}

// Asked records a request to the leader or, if answered is set, the leader's answer.
func (f *Recorder) Asked(number uint64, answered bool) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.at(number)
	switch {
	case op.Number != number:
	case answered:
		op.Ticketed = max(now, 1)
	default:
		op.Asked = max(now, 1)
	}
}

// Bound records the program and the planes that a ticket has given an operation.
func (f *Recorder) Bound(number uint64, e *dispatch.Entry, use planeset.Set, circuits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op := f.at(number); op.Number == number {
		op.Entry, op.use, op.circuits = e, use, circuits
	}
}

// Observer returns the observer for the task that runs an operation's program, nil if no profiler wants to know what
// happens on planes. Hot path.
func (f *Recorder) Observer(number uint64, p *program.Program) exec.Observer {
	if !f.profiled.Load() || p == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.profiler == nil || !f.profiler.Program(number, p) {
		return nil
	}
	return observer{f, number}
}

// Traced records what a traced task has done on its planes.
func (f *Recorder) Traced(number uint64, t *exec.Task, base []uint32) {
	events := t.Events()
	if events == nil || f.Planes == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.at(number)
	if op.Number != number {
		return
	}
	slot := int(number & (f.Size - 1))
	lanes, moves := f.lanes[slot*f.Planes:][:f.Planes], f.moves[slot*maxMoves:][:maxMoves]
	for j := range lanes {
		lanes[j] = flownLane{}
		if j < len(base) {
			lanes[j].base = base[j]
		}
	}
	for _, e := range events {
		switch {
		case e.Plane < 0 || int(e.Plane) >= f.Planes || e.Start == 0:
		case e.Kind != program.Reconfigure:
			l := &lanes[e.Plane]
			if l.start == 0 || e.Start < l.start {
				l.start = e.Start
			}
			l.end = max(l.end, e.End)
		case int(op.moves) < maxMoves:
			moves[op.moves] = flownMove{int32(e.Plane), e.Epoch, e.Start, e.End}
			op.moves++
		}
	}
}

// Stalled records what an operation waits for.
func (f *Recorder) Stalled(number uint64, w exec.Wait) {
	now := monotonic.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stall.number != number || f.stall.Wait != w || now-f.stall.Seen > int64(fresh) {
		f.stall = Standstill{number: number, Wait: w, Since: now}
	}
	f.stall.Seen = now
}

// Find returns the shape of collective seq.
func (f *Recorder) Find(seq uint64) (calls.Shape, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	for n := f.last; n > 0 && n+f.Size > f.last; n-- {
		if op := f.at(n); op.Seq == seq {
			return op.Shape, seq > 0
		} else if op.Seq != 0 && op.Seq < seq {
			break
		}
	}
	return calls.Shape{}, false
}

// Snapshot is the present content of a recorder.
type Snapshot struct {
	Op      Operation // the first in progress, or else the last one; number 0: there was none
	Running bool
	Last    Operation // the last collective; number 0: the recorder has none
	Stall   *Standstill
	Counts  [calls.EndOfKinds]uint64
	Groups  uint64
}

// Snapshot returns the state of the recorder for status reports.
func (f *Recorder) Snapshot() Snapshot {
	now := monotonic.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	g := Snapshot{Counts: f.counts, Groups: f.groups}
	for n := f.last; n > 0 && n+f.Size > f.last; n-- {
		op := f.at(n)
		if g.Op.Number == 0 || op.Outcome == UnderWay {
			g.Op, g.Running = *op, op.Outcome == UnderWay
		} else if g.Last.Number != 0 {
			break // earlier operations have ended
		}
		if g.Last.Number == 0 && op.Seq > 0 {
			g.Last = *op
		}
	}
	if g.Running && f.stall.number == g.Op.Number && now-f.stall.Seen < int64(fresh) {
		s := f.stall
		g.Stall = &s
	}
	return g
}

// CallsMade returns the number of the last collective, and that of all calls.
func (f *Recorder) CallsMade() (collectives, all uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	for _, n := range f.counts {
		all += n
	}
	return f.seq, all
}

// InProgress returns the operations in progress, oldest first, and the last recorded wait of one of them.
func (f *Recorder) InProgress() (ops []Operation, stall Standstill) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	for n := f.first(); n <= f.last; n++ {
		if op := f.at(n); op.Number == n && op.Outcome == UnderWay {
			ops = append(ops, *op)
		}
	}
	if monotonic.Now()-f.stall.Seen < int64(fresh) {
		stall = f.stall
	}
	return ops, stall
}

// CallInProgress names the oldest call in progress, "" for none.
func (f *Recorder) CallInProgress() string {
	if ops, _ := f.InProgress(); len(ops) > 0 {
		return ops[0].String()
	}
	return ""
}

// CountsMessages reports whether an operation is a group on the host path, whose messages are counted by pairs of
// ranks.
func (op *Operation) CountsMessages() bool { return op.Messages > 0 && op.launch == 0 && !op.Replay }

// Text names an operation by its number, "a call" if the recorder does not have it any more.
func (f *Recorder) Text(number uint64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op := f.at(number); op.Number == number {
		return op.String()
	}
	return "a call"
}

// String names an operation for an error.
func (op *Operation) String() string {
	s := &op.Shape
	switch {
	case op.Seq > 0:
		return fmt.Sprintf("operation %d, %v", op.Seq, s)
	case op.IsCollective():
		return fmt.Sprintf("%v of a graph", s)
	case s.Kind.OneSided():
		return calls.DescribeOneSided(s.Kind, s.Count, s.Type, s.Root)
	case op.Messages == 1:
		return "a send or receive"
	}
	return fmt.Sprintf("a group of %d sends and receives", op.Messages)
}

// Of reports whether the standstill is that of an operation.
func (s *Standstill) Of(op *Operation) bool { return s.number == op.Number && op.Number > 0 }

// WaitText says what an operation waits for.
func (op *Operation) WaitText(w *exec.Wait) string {
	if op.Shape.Kind.OneSided() {
		return fmt.Sprintf("signals of rank %d (%d of %d)", w.Peer, w.Done, w.Bytes)
	}
	return w.String()
}

// Replayed records a replay that begins. It has no number among the collectives: streams reach replays in different
// orders, so ranks would count differently. Hot path: no allocation after the first.
func (f *Recorder) Replayed(r *Called) uint64 {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	op := f.next(now)
	op.Replay = true
	r.describe(op)
	f.tally(r, 1)
	f.began(op, nil, nil)
	return op.Number
}

// IsCollective reports whether the operation has a collective's shape.
func (op *Operation) IsCollective() bool { return op.Seq > 0 || op.Replay && op.Messages == 0 }

// first returns the number of the oldest operation in the recorder. The caller holds f.mu.
func (f *Recorder) first() uint64 {
	if f.last > f.Size {
		return f.last - f.Size + 1
	}
	return 1
}
