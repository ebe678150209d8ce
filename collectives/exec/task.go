// Package exec is the progress engine: it drives programs over the planes of an endpoint,
// on the calling goroutine, with one loop that polls every lane.
//
// Layer: inside collectives; it imports program, transport, wire and ocsctl/monotonic. It decides
// nothing: what is sent where is in the program, and what is in force on the planes is
// in the call. It never prints, starts no goroutine and, in the steady state, allocates
// nothing.
package exec

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/program"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/monotonic"
	"lightpath/plans/circuit"
)

// Buffer is memory that a call lends to a task until the task has finished. Ptr may be
// nil where Len is 0.
type Buffer struct {
	Ptr unsafe.Pointer
	Len int64
}

// BufferOf returns b as a Buffer.
func BufferOf(b []byte) Buffer {
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(b)), Len: int64(len(b))}
}

// Engine is an operation that is driven instead of a program, in its place among the others of its
// communicator: one with its own way to the other ranks of the endpoint.
type Engine interface {
	// Poll does what can be done without waiting. It is not called again after done or an error.
	Poll() (moved, done bool, err error)
	// Waiting says what it waits for.
	Waiting() Wait
}

// Call binds a program to one call.
type Call struct {
	Program *program.Program
	// Engine, where not nil, takes the place of Program; all that is looked at then is Comm, Op,
	// Endpoint and Poison.
	Engine Engine
	// Buffers are the memories of a collective, Messages those of a point-to-point program:
	// its sends, then its receives.
	Buffers  [schedule.NumBuffers]Buffer
	Messages []Buffer
	// Reduce computes dst = dst op src, Scale dst = src x Factor; len(dst) == len(src), whole
	// elements, any alignment. Needed only by programs that reduce or scale.
	Reduce func(dst, src []byte)
	Scale  func(dst, src []byte, factor float64)
	Factor float64
	// Comm and Op, the communicator and its operation sequence, go into every frame. Op
	// stays below PairBit; operations on one endpoint have ascending numbers.
	Comm, Op uint64
	// Pairs are the communicator's message counters; point-to-point only.
	Pairs *Pairs
	// Gate, where not nil, says when messages may be moved; point-to-point only.
	Gate Gate
	// Endpoint is the data path; its dynamic type must be comparable, as a pointer is.
	Endpoint transport.Endpoint
	// OCS switches the endpoint's planes, which it numbers like the endpoint; nil on packet
	// planes. Base is the epoch of each plane at the start of the program.
	OCS  Switch
	Base []uint32
	// SwitchAt, where not nil, is when each plane moves, by [plane][reconfiguration] as in
	// Program.SwitchUS, in nanoseconds of Unix time: the time-based barrier. Nobody posts then;
	// a rank that is not drained when its plane moves fails with [ErrLate].
	SwitchAt [][]int64
	// Poison, once it holds an error, ends the task with it.
	Poison *atomic.Pointer[error]
	// SkipDrain reports, for fault injection, that a plane's reconfiguration from an epoch
	// is to be posted although frames may be on the wire. Nil: never.
	SkipDrain func(plane int, epoch uint32) bool
}

// Gate holds messages back, by their index in Call.Messages, until their memory is ready; those of a rank to itself are not asked about. Its
// methods are called often, by the goroutine that runs the task, which also looks again when no doorbell rings.
type Gate interface {
	// Open reports whether a message may be moved. It stays open until Over.
	Open(message int) bool
	// Over is told when all of a message has been moved.
	Over(message int)
}

// PairBit marks, in a frame's Op, the messages of point-to-point calls; the rest of Op is
// then the number of the message between its pair of ranks.
const PairBit = 1 << 63

// Pairs counts the messages that a rank has exchanged with each other rank over the life
// of a communicator, per direction. It belongs to the goroutine that binds tasks.
type Pairs struct {
	send, recv []uint64
}

// NewPairs returns the counters of a new communicator.
func NewPairs(ranks int) *Pairs {
	return &Pairs{send: make([]uint64, ranks), recv: make([]uint64, ranks)}
}

// Sent is how many messages have been sent to a rank.
func (p *Pairs) Sent(rank int) uint64 { return p.send[rank] }

// Received is how many messages of a rank have been received.
func (p *Pairs) Received(rank int) uint64 { return p.recv[rank] }

// Task runs one program for one call at a time. Its zero value is ready for Bind; keep it
// for the next call, so that its state is allocated once. A Task belongs to one goroutine.
type Task struct {
	call Call
	prog *program.Program // of the call or, where that has sections, of the present one
	ops  []program.Op     // of prog or, where that is repeated, of the present repetition
	base []uint32         // the planes' epochs where ops begin
	past program.OpID     // operations of the sections and repetitions before
	// section and turn are the present section of the call's program and its repetition; rep and room hold
	// the operations and the next map of a repetition.
	section, turn int
	rep           program.Repetition
	room          circuit.Permutation
	planes        []transport.Plane
	// forwarders are the planes that carry transit, nil for the others.
	forwarders []transport.Forwarder
	// steerers are the planes whose transit the kernel carries, nil for the others.
	steerers []transport.Steerer
	// landers are the planes that receive payload in its place, nil for the others.
	landers []transport.Lander
	// borrowers are the planes that send payload from its place, nil for the others.
	borrowers []transport.Borrower
	lookup    transport.Endpoint // whose planes these are
	regions   []Buffer           // the three buffers, then the messages
	waits     []int32            // per operation, dependencies to go
	moved     []int64            // per operation, bytes done
	ready     []program.OpID     // local operations that may run
	local     chain              // the one that is running
	lanes     []lane
	remaining int
	bound     bool
	err       error
	// sendBase and recvBase number the first message of the call for each rank.
	sendBase, recvBase []uint64
	after              *Task // of the same Run and endpoint, goes first
	tracing            bool
	events             []Event
	parts              []int32 // per message, operations to go; where there is a gate
	pacing             bool
	first              int64 // when the first bytes came, on whatever plane; 0: none yet, or not pacing
}

// lane is the run-time state of one plane.
type lane struct {
	id    int
	steer transport.Steerer // nil where this rank forwards itself
	tx    []txChain         // sends of the current stage, the head of each destination
	fwd   []program.OpID
	rx    []chain
	stage int
	left  int32 // sends and forwards of the stage to go
	owed  int   // frames of others that go before the next of this rank's own (see share)
	limit int32 // no send of a later step goes (see advance)
	// Where the kernel steers: what of the stage has been looked at, and the bytes passed on
	// since the program began, by the forwards that are complete and at the end of the stage.
	next        int
	passed, due int64
	// settle is the epoch that the plane must have reached before anything is sent; gated
	// while that has not been seen.
	settle   uint32
	gated    bool
	posted   program.OpID // the event of the reconfiguration that gated waits for
	finished bool         // all of TX, posts included
	first    int64        // when the first bytes came, and the last; 0: not yet; see Pace
	last     int64
	lent     []loan // sends that have been taken, of payload that is not given back yet
}

// loan is a send whose payload its plane has not given back up to a mark.
type loan struct {
	id   program.OpID
	mark uint64
}

// chain is where in its operation a chain of them, or the local work, is.
type chain struct {
	id  program.OpID
	seg int
	off int64 // in the segment
}

type txChain struct {
	chain
	mark   uint64 // of what has been lent of it
	header wire.Header
}

// Bind prepares t for a call. The program is shared and not changed. What t held before
// must have finished or been given up. Errors: [ErrCall], with t unbound.
func (t *Task) Bind(c Call) error {
	t.bound = false
	if err := checkCall(&c); err != nil {
		return err
	}
	t.call, t.prog, t.err, t.first = c, c.Program, nil, 0
	t.bindPlanes()
	if c.Engine != nil {
		t.lanes, t.remaining, t.bound = t.lanes[:0], 1, true
		return nil
	}
	if len(t.planes) < len(t.prog.Lanes) {
		return fmt.Errorf("exec: program of %d planes on an endpoint of %d: %w", len(t.prog.Lanes), len(t.planes), ErrCall)
	}
	t.regions = append(append(t.regions[:0], c.Buffers[:]...), c.Messages...)
	t.base = append(t.base[:0], c.Base...)
	t.begin()
	if t.prog.P2P {
		t.bindPairs()
	}
	if c.Gate != nil {
		t.bindGate()
	}
	t.bound = true
	return nil
}

// begin makes the call's program ready to run.
func (t *Task) begin() {
	t.section, t.turn, t.past = 0, 0, 0
	t.ops = t.prog.Ops
	t.lanes = resize(t.lanes, len(t.prog.Lanes))
	for i := range t.lanes {
		t.bindLane(i)
	}
	if t.tracing {
		t.events = resize(t.events, t.prog.Operations())
	}
	if t.prog.Sections != nil {
		t.enterSection()
	}
	t.load()
	t.proceed()
}

// proceed goes on with the next repetition of a section, or the next section, while nothing is left to do of
// the one before.
func (t *Task) proceed() {
	sections := t.call.Program.Sections
	for t.remaining == 0 && sections != nil {
		next, turn := t.section, t.turn+1
		if turn == sections[next].Count {
			next, turn = next+1, 0
		}
		if next == len(sections) {
			return
		}
		for j := range t.base {
			t.base[j] += t.prog.Switches(j)
		}
		t.past += program.OpID(len(t.ops))
		t.section, t.turn = next, turn
		t.enterSection()
		t.load()
	}
}

// enterSection takes the operations of the present repetition.
func (t *Task) enterSection() {
	s := &t.call.Program.Sections[t.section]
	t.prog = s.Program
	s.Repetition(t.turn, &t.rep)
	t.ops = t.rep.Ops
}

// target returns the map that a reconfiguration of the present repetition asks for, valid until the next.
func (t *Task) target(plane, config int) circuit.Permutation {
	if t.turn == 0 {
		return t.prog.Configs[plane][config]
	}
	return t.call.Program.Sections[t.section].Map(plane, config, t.turn, &t.room)
}

// load prepares the operations to be run.
func (t *Task) load() {
	t.bindOps()
	for i := range t.lanes {
		t.loadLane(i)
	}
}

func checkCall(c *Call) error {
	p := c.Program
	switch {
	case c.Engine != nil && c.Endpoint != nil:
		return nil
	case p == nil || c.Endpoint == nil:
		return fmt.Errorf("exec: a call needs a program and an endpoint: %w", ErrCall)
	case c.Op >= PairBit:
		return fmt.Errorf("exec: operation number %d: %w", c.Op, ErrCall)
	case p.Configs != nil && (c.OCS == nil || len(c.Base) < len(p.Lanes)):
		return fmt.Errorf("exec: a program with circuits needs a switch and its epochs: %w", ErrCall)
	case c.SwitchAt != nil && (p.Sections != nil || !timesFit(c)):
		return fmt.Errorf("exec: a reconfiguration without its time: %w", ErrCall)
	case p.P2P && (c.Pairs == nil || len(c.Messages) != len(p.MsgBytes) || len(c.Pairs.send) != p.Ranks):
		return fmt.Errorf("exec: %d buffers for %d messages: %w", len(c.Messages), len(p.MsgBytes), ErrCall)
	}
	if p.Reduces && c.Reduce == nil || p.Scales && c.Scale == nil {
		return fmt.Errorf("exec: a program that reduces or scales needs the kernel: %w", ErrCall)
	}
	for b, need := range p.Extent {
		if have := c.Buffers[b]; have.Len < need || need > 0 && have.Ptr == nil {
			return fmt.Errorf("exec: buffer %d has %d of %d bytes: %w", b, have.Len, need, ErrCall)
		}
	}
	for i, need := range p.MsgBytes {
		if have := c.Messages[i]; p.P2P && (have.Len < need || need > 0 && have.Ptr == nil) {
			return fmt.Errorf("exec: message %d has %d of %d bytes: %w", i, have.Len, need, ErrCall)
		}
	}
	return nil
}

// timesFit reports whether the call has a time for each reconfiguration of its program.
func timesFit(c *Call) bool {
	for j := range c.Program.Configs {
		if j >= len(c.SwitchAt) || len(c.SwitchAt[j]) < int(c.Program.Switches(j)) {
			return false
		}
	}
	return true
}

func (t *Task) bindPlanes() {
	if t.lookup == t.call.Endpoint {
		return
	}
	t.lookup = t.call.Endpoint
	t.planes = t.call.Endpoint.Planes()
	t.forwarders = make([]transport.Forwarder, len(t.planes))
	t.steerers = make([]transport.Steerer, len(t.planes))
	t.landers = make([]transport.Lander, len(t.planes))
	t.borrowers = make([]transport.Borrower, len(t.planes))
	for i, p := range t.planes {
		t.forwarders[i], _ = p.(transport.Forwarder)
		t.steerers[i], _ = p.(transport.Steerer)
		t.landers[i], _ = p.(transport.Lander)
		t.borrowers[i], _ = p.(transport.Borrower)
	}
}

func (t *Task) bindOps() {
	n := len(t.ops)
	t.remaining = n
	t.waits = resize(t.waits, n)
	copy(t.waits, t.prog.NumDeps)
	t.moved = resize(t.moved, n)
	clear(t.moved)
	t.ready, t.local = t.ready[:0], chain{id: program.None}
	if cap(t.ready) < len(t.prog.Local) {
		t.ready = make([]program.OpID, 0, len(t.prog.Local))
	}
	for _, id := range t.prog.Local {
		if t.waits[id] == 0 {
			t.ready = append(t.ready, id)
		}
	}
	if t.tracing {
		for i := range t.ops {
			t.events[int(t.past)+i] = Event{Plane: t.ops[i].Plane, Kind: t.ops[i].Kind}
		}
	}
}

// bindLane readies a lane for a call: what a plane does lasts from one section to the next.
func (t *Task) bindLane(i int) {
	l := &t.lanes[i]
	l.id, l.posted = i, program.None
	l.steer, l.passed = nil, 0
	if t.call.OCS != nil {
		l.steer = t.steerers[i]
	}
	l.settle, l.gated = 0, t.call.OCS != nil
	if i < len(t.base) {
		l.settle = t.base[i]
	}
}

// loadLane has a lane begin with the operations of the present repetition.
func (t *Task) loadLane(i int) {
	l := &t.lanes[i]
	pl := &t.prog.Lanes[i]
	l.stage, l.finished = 0, false
	l.rx, l.lent, l.first, l.last = l.rx[:0], l.lent[:0], 0, 0
	for _, id := range pl.Sources {
		l.rx = append(l.rx, chain{id: id})
	}
	t.enterStage(l)
}

// enterStage loads the chains of the lane's current stage.
func (t *Task) enterStage(l *lane) {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	l.left, l.owed, l.limit = st.Ops, 0, math.MaxInt32
	l.tx = l.tx[:0]
	for _, id := range st.Sends {
		l.tx = append(l.tx, txChain{chain: chain{id: id}})
	}
	l.fwd = l.fwd[:0]
	if l.steer == nil {
		l.fwd = append(l.fwd, st.Forwards...)
		return
	}
	l.next, l.due = 0, l.passed+st.Transit
	// Whatever is sent too early is steered over circuits that have yet to move.
	if route := t.epoch(l.id, st.Route); int32(route-l.settle) > 0 {
		l.settle, l.gated = route, true
	}
}

func (t *Task) bindPairs() {
	p := t.call.Pairs
	t.sendBase = append(t.sendBase[:0], p.send...)
	t.recvBase = append(t.recvBase[:0], p.recv...)
	for r := range p.send {
		p.send[r] += uint64(t.prog.Sends[r])
		p.recv[r] += uint64(t.prog.Receives[r])
	}
}

// Done reports whether the task has finished: results in place, everything sent accepted.
func (t *Task) Done() bool { return t.bound && t.remaining == 0 }

// Err returns what ended the task, nil while it runs or where it has finished.
func (t *Task) Err() error { return t.err }

// bytes returns the memory of a segment from off, at most n bytes.
func (t *Task) bytes(g *program.Segment, off, n int64) []byte {
	at := unsafe.Add(t.regions[int(g.Buf)+int(g.Msg)].Ptr, g.Off+off)
	return unsafe.Slice((*byte)(at), min(n, g.Len-off))
}

// complete records that an operation has been done, and wakes what waited for it.
func (t *Task) complete(id program.OpID) {
	t.remaining--
	if t.call.Gate != nil {
		t.over(id)
	}
	if t.tracing {
		t.events[t.past+id].End = monotonic.Now()
	}
	for _, s := range t.prog.Successors(id) {
		t.waits[s]--
		if t.waits[s] == 0 && t.ops[s].Plane < 0 {
			t.ready = append(t.ready, s)
		}
	}
}

// resize returns s with length n, reusing its memory where it suffices.
func resize[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	next := make([]T, n)
	copy(next, s[:cap(s)])
	return next
}
