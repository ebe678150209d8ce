package shim

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/session"
)

// crossing is an interposed call on planes with circuits: the part of it that runs on the CPU while its script is on
// streams. When the caller's stream comes to it, it obtains the planes by a ticket, as any operation on circuits does. Each
// lane's stream then waits, before the first messages under a map, for the lane's word to say that the plane has it, and signals
// when the last of them are through, on which the crossing agrees to the reconfiguration.
//
// Circuits lead both ways, so whoever receives on one that a reconfiguration takes away takes part in it like
// the sender: when both have signalled, nothing is under way on it but the network's last acknowledgement.
type crossing struct {
	in    *interposer
	e     *scripted
	call  calls.Call
	slot  uintptr
	words unsafe.Pointer // one for each lane
	base  []uint32       // of each word: base + k + 1 says that the plane has map k
	graph bool           // captured: it runs as often as the graph is replayed

	through []atomic.Int32 // by lane: maps whose messages are through
	over    atomic.Bool    // the caller's stream has left the script

	lanes []crossingLane // of the run in progress
	full  [][]circuit.Permutation
	polls uint

	session *session.Session
	ref     session.Ref
}

// crossingLane is where a plane is.
type crossingLane struct {
	epoch    uint32 // of the script's first map
	stage    int
	inForce  bool // the stage's map, as far as this rank needs it
	signals  int32
	complete bool
}

// crossings are those of a communicator.
type crossings struct {
	c           *comm.Core
	words       memory.Pinned
	seq         []uint32 // by lane, what the word becomes
	idle        []*crossing
	outstanding atomic.Int64 // that have been signalled and have not run
}

func (cs *crossings) setUp(c *comm.Core, lanes int) { cs.c, cs.seq = c, make([]uint32, lanes) }

// take returns a crossing for a script that is about to go on streams. The interposer's lock is held.
func (cs *crossings) take(p *issuing) (x *crossing, err error) {
	lanes := len(cs.seq)
	x = cs.spare(p)
	x.e, x.call = p.e, *p.call
	if x.graph {
		r, err := memory.Pin(lanes * memory.WordSize)
		if err != nil {
			return nil, err
		}
		x.words = r.At
		clear(unsafe.Slice((*byte)(r.At), lanes*memory.WordSize))
		return x, device.Active().Retain(p.capture, keepsakes.add(func() {
			crossingTable.remove(x.slot)
			memory.Unpin(r)
		}))
	}
	if cs.words.At == nil {
		if cs.words, err = memory.Pin(lanes * memory.WordSize); err != nil {
			return nil, err
		}
		clear(unsafe.Slice((*byte)(cs.words.At), lanes*memory.WordSize))
	}
	x.words = cs.words.At
	for j := range x.base {
		x.base[j] = cs.seq[j]
		cs.seq[j] += uint32(len(p.e.script.Stages[j]))
	}
	return x, nil
}

// spare returns a crossing that has ended, or a new one.
func (cs *crossings) spare(p *issuing) *crossing {
	captured := p.capture.ID != 0
	for i, x := range cs.idle {
		if x.over.Load() && !captured {
			cs.idle[i] = cs.idle[len(cs.idle)-1]
			cs.idle = cs.idle[:len(cs.idle)-1]
			return x
		}
	}
	lanes := len(cs.seq)
	x := &crossing{
		in: p.in, graph: captured, base: make([]uint32, lanes), through: make([]atomic.Int32, lanes),
		lanes: make([]crossingLane, lanes), full: make([][]circuit.Permutation, lanes),
	}
	crossingTable.add(x)
	return x
}

func (x *crossing) word(lane int) *uint32 {
	return (*uint32)(unsafe.Add(x.words, lane*memory.WordSize))
}

// What follows puts the crossing's part of a script on streams. Without circuits there is none.

// begin has the stream start the crossing.
func (x *crossing) begin(s device.Stream) error {
	if x == nil {
		return nil
	}
	if !x.graph {
		x.in.cross.outstanding.Add(1) // before, since it may run at once
	}
	err := device.Active().Signal(s, x.token(tokenBegin))
	if err != nil && !x.graph {
		x.in.cross.outstanding.Add(-1)
	}
	return err
}

// await holds a lane up until its plane has a map.
func (x *crossing) await(lane, config int, s device.Stream) error {
	if x == nil {
		return nil
	}
	return device.Active().Await(s, x.word(lane), x.base[lane]+uint32(config)+1, false)
}

// leave has a lane tell that its messages under a map are through, if there is anybody to be told.
func (x *crossing) leave(lane, config int, s device.Stream) error {
	if x == nil || !moves(x.e.script.Stages[lane][config:]) {
		return nil
	}
	return device.Active().Signal(s, x.token(uintptr(lane)))
}

// moves tells whether a rank takes part in a reconfiguration after some stages.
func moves(stages []program.ScriptStage) bool {
	for i := range stages {
		if stages[i].Moves {
			return true
		}
	}
	return false
}

// end has the stream tell that it leaves the script.
func (x *crossing) end(s device.Stream) error {
	if x == nil {
		return nil
	}
	for j := range x.base {
		if x.graph {
			if err := device.Active().Store(s, x.word(j), 0); err != nil {
				return err
			}
		}
	}
	return device.Active().Signal(s, x.token(tokenEnd))
}

// ready is told by streams how far they have come.
func (x *crossing) ready(which uintptr) {
	switch which {
	case tokenBegin:
		// Nothing else of this run is told before: the words are not set.
		for j := range x.through {
			x.through[j].Store(0)
		}
		x.over.Store(false)
		go x.run()
	case tokenEnd:
		x.over.Store(true)
		circuits.Of(x.in.c).End.Wake()
	default:
		x.through[which].Add(1)
		circuits.Of(x.in.c).End.Wake()
	}
}

// run runs the crossing, and lets the streams go on, whatever has come of it.
func (x *crossing) run() {
	c := x.in.c
	if c.Sound() == nil {
		if err := x.runCall(); err != nil {
			c.Spread(err)
		}
	}
	failed := c.Sound() != nil
	if failed {
		for j := range x.base {
			raise(x.word(j), x.base[j]+uint32(len(x.e.script.Stages[j])))
		}
	}
	if x.graph {
		return
	}
	if !failed {
		x.in.launch.Lock()
		x.in.cross.idle = append(x.in.cross.idle, x)
		x.in.launch.Unlock()
	}
	x.session = nil
	x.in.cross.outstanding.Add(-1)
}

// raise sets a word that only rises. When a communicator has failed its streams go on by themselves, and the crossing that
// comes next may have set the word already.
func raise(word *uint32, to uint32) {
	for at := atomic.LoadUint32(word); int32(at-to) < 0; at = atomic.LoadUint32(word) {
		if atomic.CompareAndSwapUint32(word, at, to) {
			return
		}
	}
}

// runCall runs the crossing as the leader decides.
func (x *crossing) runCall() error {
	c := x.in.c
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if err := c.Sound(); err != nil {
		return err // while this thread waited for the lock
	}
	s := session.New([]calls.Call{x.call}, c)
	defer s.Close()
	s.Restart(c)
	sh := calls.ShapeOf(&x.call)
	sh.Request, sh.InPlace, sh.Scripted = calls.Request{}, false, true
	x.session, x.ref = s, session.Ref{Comm: c, Sig: sh.Signature(), Entry: x.e.entry}
	x.ref.Seq, x.ref.Flight = session.Of(c).Next(&sh, nil)
	return circuits.Of(c).Run(&circuits.Operation{
		Kind: control.MsgWant, Seq: x.ref.Seq, Shape: &sh, Flight: x.ref.Flight, Deadline: calls.DeadlineOf(s.Calls),
	}, x)
}

// Bind implements [circuits.Executor]. The planes will go through the script's maps, from where they stand.
func (x *crossing) Bind(g *circuits.Grant) ([][]circuit.Permutation, error) {
	c, p := x.in.c, circuits.Of(x.in.c)
	if g.OnPackets() || g.Ticket.Plan != x.e.plan.ID {
		return nil, fmt.Errorf("shim: rank %d operation %d: the ticket is not for the plan that is on streams: %w", c.Rank, g.Seq, errdefs.ErrInternal)
	}
	for j := range g.Use.Each() {
		l := &x.lanes[j]
		*l = crossingLane{epoch: p.Base()[j]}
		x.full[j] = x.e.script.Configs[j]
		if now := p.Now()[j].Maps; !now.Equal(x.full[j][0]) {
			x.full[j] = append([]circuit.Permutation{now}, x.full[j]...)
			l.epoch++
		}
	}
	recorder.Of(c).Bound(x.ref.Flight, x.ref.Entry, g.Use, true)
	return x.full, x.session.Engage(x.ref, x)
}

// Drive implements [circuits.Executor]. It begins with the planes that do not stand where the plan begins.
func (x *crossing) Drive() error {
	c, p := x.in.c, circuits.Of(x.in.c)
	for j, full := range x.full {
		if len(full) > len(x.e.script.Configs[j]) && full[0][c.Rank] != full[1][c.Rank] {
			if err := p.Switches().Post(j, p.Base()[j], full[1]); err != nil {
				return c.Fail(x.failed(j, err))
			}
		}
	}
	return x.session.Drive()
}

// Poll implements [exec.Engine].
func (x *crossing) Poll() (moved, done bool, err error) {
	// A look at the library's errors takes longer than all else here.
	if x.polls++; x.polls%256 == 0 {
		x.in.check()
	}
	done = true
	for j := range x.lanes {
		m, err := x.poll(j)
		if err != nil {
			return moved, false, err
		}
		moved = moved || m
		done = done && x.lanes[j].complete
	}
	return moved, done && x.over.Load(), nil
}

// poll does what can be done for a lane.
func (x *crossing) poll(j int) (moved bool, err error) {
	l, p := &x.lanes[j], circuits.Of(x.in.c)
	epoch, err := p.Controller.Poll(j)
	if err != nil {
		return false, x.failed(j, err)
	}
	for !l.complete {
		stage := &x.e.script.Stages[j][l.stage]
		at := l.epoch + uint32(l.stage)
		if !l.inForce {
			if stage.Batches > 0 {
				if int32(epoch-at) < 0 {
					return moved, nil
				}
				raise(x.word(j), x.base[j]+uint32(l.stage)+1)
				l.signals++
			}
			l.inForce, moved = true, true
		}
		if stage.Moves {
			if x.through[j].Load() < l.signals && !p.SkipDrain(j, at) {
				return moved, nil
			}
			if err := p.Switches().Post(j, at, x.e.script.Configs[j][l.stage+1]); err != nil {
				return moved, x.failed(j, err)
			}
		}
		if l.stage+1 == len(x.e.script.Stages[j]) {
			l.complete = true
			return true, nil
		}
		l.stage, l.inForce, moved = l.stage+1, false, true
	}
	return moved, nil
}

func (x *crossing) failed(j int, err error) error {
	return fmt.Errorf("shim: rank %d plane %d epoch %d: %w", x.in.c.Rank, j, x.lanes[j].epoch+uint32(x.lanes[j].stage), err)
}

// Waiting implements [exec.Engine].
func (x *crossing) Waiting() exec.Wait {
	w := exec.Wait{Rank: x.in.c.Rank, Op: session.Of(x.in.c).Seq, Peer: -1, Plane: -1}
	for j := range x.lanes {
		l := &x.lanes[j]
		if l.complete {
			continue
		}
		w.Plane, w.Epoch = j, l.epoch+uint32(l.stage)
		if !l.inForce {
			w.Kind, w.Epoch = program.Reconfigure, w.Epoch-1
			w.Detail = circuits.Of(x.in.c).Controller.Waiting(j)
		} else {
			w.Kind, w.Detail = program.Reconfigure, "messages on streams are not through"
		}
		return w
	}
	return w
}

// Tokens of what streams tell: which of a crossing's events, by its slot, or a keepsake's end.
const (
	interposedToken = uintptr(1) << 62
	tokenBits       = 8
	tokenBegin      = 64 // below: lanes
	tokenEnd        = 65
	tokenForget     = 66
)

func (x *crossing) token(which uintptr) uintptr { return interposedToken | x.slot<<tokenBits | which }

// crossingSlots gives crossings numbers that a driver can carry.
type crossingSlots struct {
	mu   sync.Mutex
	last uintptr
	all  map[uintptr]*crossing
}

var crossingTable = crossingSlots{all: map[uintptr]*crossing{}}

func (t *crossingSlots) add(x *crossing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	x.slot = t.last
	t.all[x.slot] = x
}

func (t *crossingSlots) remove(slot uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, slot)
}

// interposedReady takes what a stream tells of an interposed call.
func interposedReady(token uintptr) {
	crossingTable.mu.Lock()
	x := crossingTable.all[token&^interposedToken>>tokenBits]
	crossingTable.mu.Unlock()
	if x != nil {
		x.ready(token & (1<<tokenBits - 1))
	}
}
