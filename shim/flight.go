package shim

import (
	"sync"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/planeset"
)

// recorder is a communicator's flight recorder: its last operations, what became of them, and what
// the one in progress waits for. It is also how a rank that waits learns what others, long past
// it, have called instead. Safe for concurrent use; the communicator writes and whoever asks
// reads, under a lock that nobody else takes.
type recorder struct {
	mu     sync.Mutex
	size   uint64 // of ops, a power of two
	timed  bool   // LIGHTPATH_FLIGHT_RECORDER is not 0
	planes int    // with circuits
	ops    []flown
	lanes  []flownLane // planes per operation
	moves  []flownMove // maxMoves per operation

	last   uint64 // number of the last operation; they count from 1, collectives and groups alike
	counts [calls.EndOfKinds]uint64
	groups uint64
	stall  standstill

	quick  quickFlights
	device deviceFlights
}

// minFlown is what a recorder remembers at least, for ranks that ask each other.
const minFlown = 64

// maxMoves is how many reconfigurations of an operation are recorded.
const maxMoves = 16

// flown is one operation.
type flown struct {
	number   uint64
	seq      uint64 // of a collective; 0: a group of sends and receives, a one-sided call, or a replay of what a graph holds
	replay   bool
	shape    calls.Shape     // of a collective; of a one-sided call kind, type, count and, as root, the peer
	messages int32           // of a group
	bytes    int64           // of a group, or of a put
	launch   uint32          // on the device, 0: the CPU ends it
	entry    *dispatch.Entry // of a collective; nil where nothing is to be done, or not known yet
	circuits bool            // the operation is on planes with circuits
	use      planeset.Set
	moves    int32 // recorded
	outcome  outcome
	asked    int64 // nanoseconds of CLOCK_MONOTONIC, as all times here; 0: not yet, or not recorded
	ticketed int64
	arrived  int64
	ended    int64
}

// outcome is what became of an operation.
type outcome uint8

const (
	underWay outcome = iota
	completed
	failed
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

// standstill is what an operation that did not move was last seen to wait for.
type standstill struct {
	number      uint64
	wait        exec.Wait
	since, seen int64
}

// fresh is for how long a stall is news: while one lasts it is seen again every second.
const fresh = 2500 * time.Millisecond

// setUp makes a recorder of n operations, 0 for the least and no times.
func (f *recorder) setUp(n int) {
	f.timed, f.size = n > 0, minFlown
	for f.size < uint64(n) {
		f.size *= 2
	}
}

// clock is the time where operations are timed. Hot path: no system call.
func (f *recorder) clock() int64 {
	if !f.timed {
		return 0
	}
	return monotonic.Now()
}

// add records a collective that begins, and returns its number.
// Hot path: no allocation after the first, no logging.
func (f *recorder) add(seq uint64, s *calls.Shape, e *dispatch.Entry) uint64 {
	now := f.clock()
	f.mu.Lock()
	f.catchUp()
	op := f.next(now)
	op.seq, op.shape, op.entry = seq, *s, e
	f.counts[s.Kind]++
	f.mu.Unlock()
	return op.number
}

// addGroup records a group of sends and receives.
func (f *recorder) addGroup(sends, recvs []program.Message) uint64 {
	var bytes int64
	for _, list := range [2][]program.Message{sends, recvs} {
		for i := range list {
			bytes += list[i].Bytes
		}
	}
	return f.addMessages(messageCount{uint64(len(sends)), uint64(len(recvs)), bytes})
}

// addMessages is addGroup for whoever has counted.
func (f *recorder) addMessages(n messageCount) uint64 {
	now := f.clock()
	f.mu.Lock()
	f.catchUp()
	op := f.next(now)
	what := called{messageCount: n}
	what.describe(op)
	f.tally(&what, 1)
	f.mu.Unlock()
	return op.number
}

// messageCount is how many messages a group has.
type messageCount struct {
	sends, recvs uint64
	bytes        int64
}

// called is what an operation without a number among the collectives does: a group of messages, or without any
// the collective that a graph replays.
type called struct {
	shape calls.Shape
	entry *dispatch.Entry
	messageCount
}

func (w *called) isGroup() bool { return w.sends+w.recvs > 0 }

// describe enters it into an operation that has just begun.
func (w *called) describe(op *flown) {
	if w.isGroup() {
		op.messages, op.bytes = int32(w.sends+w.recvs), w.bytes
		return
	}
	op.shape, op.entry = w.shape, w.entry
}

// tally counts it so many times. f.mu is held.
func (f *recorder) tally(w *called, times int64) {
	n := uint64(times)
	if w.isGroup() {
		f.counts[calls.Send] += n * w.sends
		f.counts[calls.Recv] += n * w.recvs
		f.groups += n
		return
	}
	f.counts[w.shape.Kind] += n
}

// addSided records a one-sided call.
func (f *recorder) addSided(c *calls.Call) uint64 {
	now := f.clock()
	f.mu.Lock()
	f.catchUp()
	op := f.next(now)
	op.shape = calls.Shape{Kind: c.Kind, Type: c.Type, Count: c.Count, Root: c.Peer}
	if c.Kind == calls.PutSignal {
		op.bytes = int64(c.Count) * int64(c.Type.Size())
	}
	f.counts[c.Kind]++
	f.mu.Unlock()
	return op.number
}

// next is the place of the next operation. f.mu is held.
func (f *recorder) next(now int64) *flown {
	if f.ops == nil {
		f.size = max(f.size, minFlown)
		f.ops = make([]flown, f.size)
		f.lanes, f.moves = make([]flownLane, int(f.size)*f.planes), make([]flownMove, int(f.size)*min(f.planes, 1)*maxMoves)
	}
	f.last++
	op := f.at(f.last)
	*op = flown{number: f.last, arrived: now}
	return op
}

func (f *recorder) at(number uint64) *flown { return &f.ops[number&(f.size-1)] }

// end records how an operation has ended. Hot path.
func (f *recorder) end(number uint64, how outcome) {
	now := f.clock()
	f.mu.Lock()
	if op := f.at(number); op.number == number && op.outcome == underWay {
		op.ended, op.outcome = now, how
	}
	f.mu.Unlock()
}

// ask records that the leader is asked, and with answered that it has answered.
func (f *recorder) ask(number uint64, answered bool) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.at(number)
	switch {
	case op.number != number:
	case answered:
		op.ticketed = max(now, 1)
	default:
		op.asked = max(now, 1)
	}
}

// bound records what a ticket made of an operation.
func (f *recorder) bound(number uint64, e *dispatch.Entry, use planeset.Set, circuits bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op := f.at(number); op.number == number {
		op.entry, op.use, op.circuits = e, use, circuits
	}
}

// flew records what a task that was traced has done on the planes that it used.
func (f *recorder) flew(number uint64, t *exec.Task, base []uint32) {
	events := t.Events()
	if events == nil || f.planes == 0 {
		return
	}
	p := t.Program()
	f.mu.Lock()
	defer f.mu.Unlock()
	op := f.at(number)
	if op.number != number {
		return
	}
	slot := int(number & (f.size - 1))
	lanes, moves := f.lanes[slot*f.planes:][:f.planes], f.moves[slot*maxMoves:][:maxMoves]
	for j := range lanes {
		lanes[j] = flownLane{}
		if j < len(base) {
			lanes[j].base = base[j]
		}
	}
	for i := range p.Ops {
		o, e := &p.Ops[i], events[i]
		switch {
		case o.Plane < 0 || int(o.Plane) >= f.planes || e.Start == 0:
		case o.Kind != program.Reconfigure:
			l := &lanes[o.Plane]
			if l.start == 0 || e.Start < l.start {
				l.start = e.Start
			}
			l.end = max(l.end, e.End)
		case int(op.moves) < maxMoves:
			moves[op.moves] = flownMove{int32(o.Plane), lanes[o.Plane].base + o.Epoch, e.Start, e.End}
			op.moves++
		}
	}
}

// stalled records what an operation waits for.
func (f *recorder) stalled(number uint64, w exec.Wait) {
	now := monotonic.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stall.number != number || f.stall.wait != w || now-f.stall.seen > int64(fresh) {
		f.stall = standstill{number: number, wait: w, since: now}
	}
	f.stall.seen = now
}

// find returns what was called as collective seq.
func (f *recorder) find(seq uint64) (calls.Shape, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	for n := f.last; n > 0 && n+f.size > f.last; n-- {
		if op := f.at(n); op.seq == seq {
			return op.shape, seq > 0
		} else if op.seq != 0 && op.seq < seq {
			break
		}
	}
	return calls.Shape{}, false
}

// glance is what there is to see of a recorder now.
type glance struct {
	op      flown // the first in progress, or else the last one; number 0: there was none
	running bool
	last    flown // the last collective; number 0: none that is remembered
	stall   *standstill
	counts  [calls.EndOfKinds]uint64
	groups  uint64
}

func (f *recorder) glance() glance {
	now := monotonic.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp()
	g := glance{counts: f.counts, groups: f.groups}
	for n := f.last; n > 0 && n+f.size > f.last; n-- {
		op := f.at(n)
		if g.op.number == 0 || op.outcome == underWay {
			g.op, g.running = *op, op.outcome == underWay
		} else if g.last.number != 0 {
			break // what comes before has ended
		}
		if g.last.number == 0 && op.seq > 0 {
			g.last = *op
		}
	}
	if g.running && f.stall.number == g.op.number && now-f.stall.seen < int64(fresh) {
		s := f.stall
		g.stall = &s
	}
	return g
}
