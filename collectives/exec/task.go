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
	"lightpath/plans/circuit"
)

// Buffer is memory that the caller leaves to a task until the task has finished. Ptr may be nil if Len is 0.
type Buffer struct {
	Ptr unsafe.Pointer
	Len int64
}

// BufferOf returns b as a Buffer.
func BufferOf(b []byte) Buffer {
	return Buffer{Ptr: unsafe.Pointer(unsafe.SliceData(b)), Len: int64(len(b))}
}

// Engine is an operation with its own data path, which a task polls instead of a program. It keeps its place among the
// operations of its communicator.
type Engine interface {
	// Poll advances the operation without waiting. The task does not call it again after done or an error.
	Poll() (moved, done bool, err error)
	// Waiting describes what the operation waits for.
	Waiting() Wait
}

// Call binds a program to one call.
type Call struct {
	Program *program.Program
	// Engine, if not nil, replaces Program. The task then uses only Comm, Op, Endpoint and Poison.
	Engine Engine
	// Buffers are the buffers of a collective. Messages are those of a point-to-point program: first the sends, then
	// the receives.
	Buffers  [schedule.NumBuffers]Buffer
	Messages []Buffer
	// Reduce computes dst = dst op src, and Scale computes dst = src x Factor. len(dst) == len(src); both contain whole
	// elements at any alignment. Only programs that reduce or scale need them.
	Reduce func(dst, src []byte)
	Scale  func(dst, src []byte, factor float64)
	Factor float64
	// Comm is the communicator and Op the number of its operation. Every frame carries both. Op is below pairBit, and
	// the numbers of operations on one endpoint ascend.
	Comm, Op uint64
	// Pairs has the communicator's message counters. Only point-to-point programs use it.
	Pairs *Pairs
	// Memory, if not nil, delays messages of point-to-point programs.
	Memory MessageMemory
	// Endpoint is the data path. Its dynamic type must be comparable, for example a pointer.
	Endpoint transport.Endpoint
	// OCS switches the planes of the endpoint, with the same plane numbers. It is nil on packet planes. Base is the
	// epoch of each plane at the start of the program.
	OCS  Switch
	Base []uint32
	// Poison ends the task with its error, if it holds one.
	Poison *atomic.Pointer[error]
	// Observer, if not nil, is told of the transfers as they happen. The task then records events, too.
	Observer Observer
	// SkipDrain injects faults: if it returns true, the task posts the reconfiguration of a plane from an epoch without
	// waiting until it has drained. It may be nil.
	SkipDrain func(plane int, epoch uint32) bool
}

// MessageMemory delays messages until their memory is ready. It identifies them by their index in Call.Messages, and
// does not delay messages of a rank to itself. The goroutine that runs the task calls the methods often, also if no
// doorbell rings.
type MessageMemory interface {
	// Ready reports whether a message may be moved. Once true, it stays true until Moved.
	Ready(message int) bool
	// Moved is called after the task has moved all of a message.
	Moved(message int)
}

// pairBit is set in the Op of frames of point-to-point calls. The other bits of Op then are the number of the message
// between its two ranks.
const pairBit = 1 << 63

// Pairs counts the messages between a rank and each other rank over the life of a communicator, by direction. It
// belongs to the goroutine that binds tasks.
type Pairs struct {
	send, recv []uint64
}

// NewPairs returns the counters of a new communicator.
func NewPairs(ranks int) *Pairs {
	return &Pairs{send: make([]uint64, ranks), recv: make([]uint64, ranks)}
}

// Sent returns the number of messages sent to a rank.
func (p *Pairs) Sent(rank int) uint64 { return p.send[rank] }

// Received returns the number of messages received from a rank.
func (p *Pairs) Received(rank int) uint64 { return p.recv[rank] }

// Task runs a program for one call at a time. Its zero value is ready for Bind. Reuse a Task for later calls, so that
// it allocates its state once. A Task belongs to one goroutine at a time.
type Task struct {
	call       Call
	prog       *program.Program      // program of the call, or of the present section
	code       []program.Instruction // instructions of prog, or of the present repetition
	base       []uint32              // by plane: epoch at the start of code
	codeBefore program.ID            // number of instructions of earlier sections and repetitions
	// section and repetition are the numbers of the present section and of its repetition. repeated and mapRoom are memory
	// for the instructions and the next map of a repetition.
	section, repetition int
	repeated            program.Repetition
	mapRoom             circuit.Permutation
	planes              []plane

	endpoint  transport.Endpoint // endpoint of planes
	regions   []Buffer           // the three buffers, then the messages
	depsLeft  []int32            // by instruction: incomplete dependencies
	bytesDone []int64            // by instruction: bytes moved
	ready     []program.ID       // local instructions without incomplete dependencies
	local     chain              // the running local instruction
	lanes     []lane
	remaining int
	bound     bool
	err       error
	// sendBase and recvBase are the number of the call's first message, by rank.
	sendBase, recvBase []uint64
	after              *Task // previous task of the same Run and endpoint
	traced, tracing    bool  // by Trace; or for an observer
	events             []Event
	partsLeft          []int32 // by message: incomplete instructions; only with Call.Memory
	measuring          bool
	firstByte          int64 // time of the first bytes on any plane; 0: none yet, or not measured
}

// plane is a plane of the endpoint. Interfaces that it does not implement are nil.
type plane struct {
	transport.Plane
	forwarder transport.Forwarder
	steerer   transport.Steerer
	lander    transport.Lander
	borrower  transport.Borrower
}

// lane is the state of one plane.
type lane struct {
	id           int
	steer        transport.Steerer // nil if this rank forwards itself
	tx           []txChain         // by destination: next send of the present stage
	fwd          []program.ID      // by flow: next forward of the present stage
	rx           []chain           // by source: next receive
	stage        int
	txLeft       int32 // incomplete sends and forwards of the stage
	forwardsOwed int   // frames to forward before the next send of this rank (see sendAndForward)
	lastStep     int32 // last step of which this rank may send (see countForwarded)
	// Only if the kernel forwards: nextForward is the index in Stage.TX of the next forward. forwarded is the number of
	// bytes of complete forwards since the start of the program, and forwardDue that number at the end of the stage.
	nextForward           int
	forwarded, forwardDue int64
	// awaitsCircuits is set until the plane has reached epoch awaitedEpoch. The rank sends nothing meanwhile.
	awaitedEpoch        uint32
	awaitsCircuits      bool
	holdReported        bool       // the observer knows that the plane waits
	posted              program.ID // reconfiguration for which awaitsCircuits is set; index of events
	finished            bool       // all of TX is complete, and all reconfigurations are posted
	firstByte, lastByte int64      // times of the first and last bytes, 0 for none; see MeasureDelivery
	lent                []loan     // sends whose payload the plane has not returned yet
}

// loan is a send of borrowed payload. It completes when the plane has returned payload up to mark.
type loan struct {
	id   program.ID
	mark uint64
}

// chain is a position in a chain of instructions or in the local work.
type chain struct {
	id  program.ID
	seg int
	off int64 // offset in the segment
}

type txChain struct {
	chain
	mark   uint64 // mark of the instruction's borrowed payload, 0 for none
	header wire.Header
}

// Bind prepares t for a call. It does not change the program, which other tasks may use too. The previous call of t
// must have finished, or its Run must have failed. On [ErrCall], t is unbound.
func (t *Task) Bind(c Call) error {
	t.bound = false
	if err := checkCall(&c); err != nil {
		return err
	}
	t.call, t.prog, t.err, t.firstByte = c, c.Program, nil, 0
	t.tracing = t.traced || c.Observer != nil
	t.bindPlanes()
	if c.Engine != nil {
		t.lanes, t.remaining, t.bound = t.lanes[:0], 1, true
		return nil
	}
	if len(t.planes) < len(t.prog.Lanes) {
		return fmt.Errorf("exec: program of %d planes on an endpoint of %d: %w",
			len(t.prog.Lanes), len(t.planes), ErrCall)
	}
	t.regions = append(append(t.regions[:0], c.Buffers[:]...), c.Messages...)
	t.base = append(t.base[:0], c.Base...)
	t.begin()
	if t.prog.P2P {
		t.bindPairs()
	}
	if c.Memory != nil {
		t.countParts()
	}
	t.bound = true
	return nil
}

// begin prepares the call's program, or its first section.
func (t *Task) begin() {
	t.section, t.repetition, t.codeBefore = 0, 0, 0
	t.code = t.prog.Code
	t.lanes = resize(t.lanes, len(t.prog.Lanes))
	for i := range t.lanes {
		t.bindLane(i)
	}
	if t.tracing {
		t.events = resize(t.events, t.prog.Instructions())
	}
	if t.prog.Sections != nil {
		t.enterSection()
	}
	t.loadCode()
	t.enterNext()
}

// enterNext begins the next repetition or section after the present one is complete.
func (t *Task) enterNext() {
	sections := t.call.Program.Sections
	for t.remaining == 0 && sections != nil {
		next, turn := t.section, t.repetition+1
		if turn == sections[next].Count {
			next, turn = next+1, 0
		}
		if next == len(sections) {
			return
		}
		for j := range t.base {
			t.base[j] += t.prog.Switches(j)
		}
		t.codeBefore += program.ID(len(t.code))
		t.section, t.repetition = next, turn
		t.enterSection()
		t.loadCode()
	}
}

// enterSection sets the instructions of the present repetition.
func (t *Task) enterSection() {
	s := &t.call.Program.Sections[t.section]
	t.prog = s.Program
	s.Repetition(t.repetition, &t.repeated)
	t.code = t.repeated.Code
}

// target returns the target map of a reconfiguration in the present repetition. It is valid until the next call.
func (t *Task) target(plane, config int) circuit.Permutation {
	if t.repetition == 0 {
		return t.prog.Configs[plane][config]
	}
	return t.call.Program.Sections[t.section].Map(plane, config, t.repetition, &t.mapRoom)
}

// loadCode prepares the instructions of the present repetition.
func (t *Task) loadCode() {
	t.bindCode()
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
	case c.Op >= pairBit:
		return fmt.Errorf("exec: operation number %d: %w", c.Op, ErrCall)
	case p.Configs != nil && (c.OCS == nil || len(c.Base) < len(p.Lanes)):
		return fmt.Errorf("exec: a program with circuits needs a switch and its epochs: %w", ErrCall)
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

func (t *Task) bindPlanes() {
	if t.endpoint == t.call.Endpoint {
		return
	}
	t.endpoint = t.call.Endpoint
	all := t.endpoint.Planes()
	t.planes = make([]plane, len(all))
	for i, of := range all {
		p := &t.planes[i]
		p.Plane = of
		p.forwarder, _ = of.(transport.Forwarder)
		p.steerer, _ = of.(transport.Steerer)
		p.lander, _ = of.(transport.Lander)
		p.borrower, _ = of.(transport.Borrower)
	}
}

func (t *Task) bindCode() {
	n := len(t.code)
	t.remaining = n
	t.depsLeft = resize(t.depsLeft, n)
	copy(t.depsLeft, t.prog.NumDeps)
	t.bytesDone = resize(t.bytesDone, n)
	clear(t.bytesDone)
	t.ready, t.local = t.ready[:0], chain{id: program.None}
	if cap(t.ready) < len(t.prog.Local) {
		t.ready = make([]program.ID, 0, len(t.prog.Local))
	}
	for _, id := range t.prog.Local {
		if t.depsLeft[id] == 0 {
			t.ready = append(t.ready, id)
		}
	}
	if t.tracing {
		for i := range t.code {
			t.events[int(t.codeBefore)+i] = Event{Plane: t.code[i].Plane, Kind: t.code[i].Kind}
		}
	}
}

// bindLane prepares a lane for a call. This state persists over the sections of a program.
func (t *Task) bindLane(i int) {
	l := &t.lanes[i]
	l.id, l.posted = i, program.None
	l.steer, l.forwarded = nil, 0
	if t.call.OCS != nil {
		l.steer = t.planes[i].steerer
	}
	l.awaitedEpoch, l.awaitsCircuits, l.holdReported = 0, t.call.OCS != nil, false
	if i < len(t.base) {
		l.awaitedEpoch = t.base[i]
	}
}

// loadLane prepares a lane for the instructions of the present repetition.
func (t *Task) loadLane(i int) {
	l := &t.lanes[i]
	pl := &t.prog.Lanes[i]
	l.stage, l.finished = 0, false
	l.rx, l.lent, l.firstByte, l.lastByte = l.rx[:0], l.lent[:0], 0, 0
	for _, id := range pl.Sources {
		l.rx = append(l.rx, chain{id: id})
	}
	t.enterStage(l)
}

// enterStage loads the chains of the lane's present stage.
func (t *Task) enterStage(l *lane) {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	l.txLeft, l.forwardsOwed, l.lastStep = int32(len(st.TX)), 0, math.MaxInt32
	l.tx = l.tx[:0]
	for _, id := range st.Sends {
		l.tx = append(l.tx, txChain{chain: chain{id: id}})
	}
	l.fwd = l.fwd[:0]
	if l.steer == nil {
		l.fwd = append(l.fwd, st.Forwards...)
		return
	}
	l.nextForward, l.forwardDue = 0, l.forwarded+st.Transit
	// The kernel would forward frames that are sent too early over the old circuits.
	if route := t.epoch(l.id, st.Route); int32(route-l.awaitedEpoch) > 0 {
		l.awaitedEpoch, l.awaitsCircuits = route, true
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

// Done reports whether the task has finished: the results are in place, and the planes have accepted all frames.
func (t *Task) Done() bool { return t.bound && t.remaining == 0 }

// Err returns the error that ended the task. It is nil while the task runs, and if it has finished.
func (t *Task) Err() error { return t.err }

// bytes returns at most n bytes of a segment from offset off.
func (t *Task) bytes(g *program.Segment, off, n int64) []byte {
	at := unsafe.Add(t.regions[int(g.Buf)+int(g.Msg)].Ptr, g.Off+off)
	return unsafe.Slice((*byte)(at), min(n, g.Len-off))
}

// complete marks an instruction as complete and updates the instructions that depend on it.
func (t *Task) complete(id program.ID) {
	t.remaining--
	if t.call.Memory != nil {
		t.noteMessage(id)
	}
	if t.tracing {
		t.noteEnd(id)
	}
	for _, s := range t.prog.Successors(id) {
		t.depsLeft[s]--
		if t.depsLeft[s] == 0 && t.code[s].Plane < 0 {
			t.ready = append(t.ready, s)
		}
	}
}

// remove returns s without element i, in another order. It uses the memory of s.
func remove[T any](s []T, i int) []T {
	last := len(s) - 1
	s[i] = s[last]
	return s[:last]
}

// resize returns s with length n. It reuses the memory of s if that is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	next := make([]T, n)
	copy(next, s[:cap(s)])
	return next
}
