package stream

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/session"
)

// crossing is the CPU part of a script on planes with circuits. When the caller's stream reaches the script, the
// crossing obtains the planes by a ticket, like any operation on circuits. Before the first messages under a map, each
// lane's stream waits for the lane's word, which says that the plane has the map. After the last of these messages the
// stream signals. Then the crossing agrees to the reconfiguration.
//
// Circuits are duplex. So the receiver on a circuit takes part in the reconfiguration that removes the circuit, like
// the sender. When both have signalled, only the network's last acknowledgement is in flight on the circuit.
type crossing struct {
	in    *Issuer
	of    *Scripted
	call  calls.Call
	token Token
	words unsafe.Pointer // one for each lane
	base  []uint32       // by lane: the word base + k + 1 says that the plane has map k
	graph bool           // captured: it runs at each replay of the graph

	// Of all runs so far, since the next replay of a graph may begin before this run has seen the end of its own:
	completed []atomic.Int32 // by lane: signals that the messages under a map have completed
	ended     atomic.Int32   // how often the caller's stream has left the script
	runs      int32          // how often the crossing has run

	// Of the run in progress:
	lanes   []crossingLane
	maps    circuits.ListedMaps // maps that each plane takes
	polls   uint
	session *session.Session
	ref     session.Ref
}

// crossingLane is the state of one plane in the run in progress.
type crossingLane struct {
	epoch    uint32 // of the script's first map
	stage    int
	inForce  bool  // the plane has the stage's map, or this rank does not need it
	signals  int32 // that must have come, of all runs so far
	complete bool
}

// crossings holds the crossings of a communicator.
type crossings struct {
	words memory.Pinned
	seq   []uint32 // by lane, the word's value after the last crossing
	idle  []*crossing
}

func (cs *crossings) setUp(lanes int) { cs.seq = make([]uint32, lanes) }

// wordsOf returns page-locked words for lanes.
func wordsOf(lanes int) (memory.Pinned, error) {
	r, err := memory.Pin(lanes * memory.WordSize)
	if err == nil {
		clear(unsafe.Slice((*byte)(r.At), lanes*memory.WordSize))
	}
	return r, err
}

// take returns a crossing for a script that is about to be put on streams. The caller holds Device.Mu.
func (in *Issuer) take(l *Launch) (x *crossing, err error) {
	cs := &in.cross
	words, captured := cs.words, l.Capture.ID != 0
	if captured || words.At == nil {
		if words, err = wordsOf(in.Lanes); err != nil {
			return nil, err
		}
	}
	if !captured {
		cs.words = words
		x = cs.reuse()
	}
	if x == nil {
		lanes := in.Lanes
		x = &crossing{
			in: in, graph: captured, base: make([]uint32, lanes), completed: make([]atomic.Int32, lanes),
			lanes: make([]crossingLane, lanes), maps: make(circuits.ListedMaps, lanes),
		}
		x.token = AddPlace(x)
	}
	x.of, x.call, x.words = l.Of, *l.Call, words.At
	if captured {
		drop := func() {
			DropPlace(x.token)
			memory.Unpin(words)
		}
		if err = OnGraphGone(l.Capture, drop); err != nil {
			drop()
			return nil, err
		}
		return x, nil
	}
	for j := range x.base {
		x.base[j] = cs.seq[j]
		cs.seq[j] += uint32(len(l.Of.Script.Stages[j]))
	}
	return x, nil
}

// reuse returns a crossing that has run, nil if there is none.
func (cs *crossings) reuse() (x *crossing) {
	if n := len(cs.idle); n > 0 {
		x, cs.idle = cs.idle[n-1], cs.idle[:n-1]
	}
	return x
}

// free frees the crossings and words. No stream uses them any more.
func (cs *crossings) free() {
	for _, x := range cs.idle {
		DropPlace(x.token)
	}
	memory.Unpin(cs.words)
	cs.idle, cs.words = nil, memory.Pinned{}
}

func (x *crossing) word(lane int) *uint32 {
	return (*uint32)(unsafe.Add(x.words, lane*memory.WordSize))
}

// Parts of a crossing that streams signal. Smaller numbers are lanes.
const (
	partBegin = 64
	partEnd   = 65
)

// The methods below put the crossing's part of a script on streams. On a nil crossing they do nothing.

// begin has the stream start the crossing.
func (x *crossing) begin(s device.Stream) error {
	if x == nil {
		return nil
	}
	if !x.graph {
		Of(x.in.c).Outstanding.Add(1) // count first: the crossing may run at once
	}
	err := device.Active().Signal(s, x.token.Part(partBegin))
	if err != nil && !x.graph {
		Of(x.in.c).Outstanding.Add(-1)
	}
	return err
}

// await makes a lane's stream wait until its plane has a map.
func (x *crossing) await(lane, config int, s device.Stream) error {
	if x == nil {
		return nil
	}
	return device.Active().Await(s, x.word(lane), x.base[lane]+uint32(config)+1, false)
}

// leave makes a lane's stream signal that its messages under a map have completed. It does so only if the rank takes
// part in a reconfiguration after that map.
func (x *crossing) leave(lane, config int, s device.Stream) error {
	if x == nil || !moves(x.of.Script.Stages[lane][config:]) {
		return nil
	}
	return device.Active().Signal(s, x.token.Part(lane))
}

// moves reports whether this rank takes part in a reconfiguration in some of the stages.
func moves(stages []program.ScriptStage) bool {
	for i := range stages {
		if stages[i].Moves {
			return true
		}
	}
	return false
}

// end makes the stream signal that it leaves the script.
func (x *crossing) end(s device.Stream) error {
	if x == nil {
		return nil
	}
	if x.graph {
		for j := range x.base {
			if err := device.Active().Store(s, x.word(j), 0); err != nil {
				return err
			}
		}
	}
	return device.Active().Signal(s, x.token.Part(partEnd))
}

// Come implements [Place].
func (x *crossing) Come(part int) {
	switch part {
	case partBegin:
		go x.run()
	case partEnd:
		x.ended.Add(1)
		circuits.Of(x.in.c).End.Wake()
	default:
		x.completed[part].Add(1)
		circuits.Of(x.in.c).End.Wake()
	}
}

// run runs the crossing. If it fails, run lets the streams continue.
func (x *crossing) run() {
	c := x.in.c
	if c.Healthy() == nil {
		if err := x.cross(); err != nil {
			c.Spread(err)
		}
	}
	failed := c.Healthy() != nil
	if failed {
		for j := range x.base {
			raise(x.word(j), x.base[j]+uint32(len(x.of.Script.Stages[j])))
		}
	}
	if x.graph {
		return
	}
	d := Of(c)
	if !failed {
		d.Mu.Lock()
		x.in.cross.idle = append(x.in.cross.idle, x)
		d.Mu.Unlock()
	}
	d.Outstanding.Add(-1)
}

// raise sets a word that only increases. If a communicator has failed, its streams continue by themselves, so the next
// crossing may already have set the word.
func raise(word *uint32, to uint32) {
	for at := atomic.LoadUint32(word); int32(at-to) < 0; at = atomic.LoadUint32(word) {
		if atomic.CompareAndSwapUint32(word, at, to) {
			return
		}
	}
}

// cross runs the crossing as the leader decides.
func (x *crossing) cross() error {
	c := x.in.c
	c.Turn.Lock()
	defer c.Turn.Unlock()
	if err := c.Healthy(); err != nil { // the communicator failed while this thread waited for the lock
		return err
	}
	x.runs++
	s := session.New([]calls.Call{x.call}, c)
	defer s.Close()
	s.Restart(c)
	sh := calls.ShapeOf(&x.call)
	sh.Request, sh.InPlace, sh.Scripted = calls.Request{}, false, true
	x.session, x.ref = s, session.Ref{Comm: c, Sig: sh.Signature(), Entry: x.of.Entry}
	x.ref.Seq, x.ref.Flight = session.Of(c).Next(&sh, nil)
	return circuits.Of(c).Run(&circuits.Operation{
		Kind: control.MsgWant, Seq: x.ref.Seq, Shape: &sh, Flight: x.ref.Flight, Deadline: calls.DeadlineOf(s.Calls),
	}, x)
}

// Bind implements [circuits.Executor]. From where they stand, the planes move through the script's maps.
func (x *crossing) Bind(t *circuits.Ticket) (circuits.Movement, error) {
	c, p := x.in.c, circuits.Of(x.in.c)
	if t.OnPackets() || t.Plan != x.of.Plan.ID {
		return nil, fmt.Errorf("shim: rank %d operation %d: the ticket is not for the plan that is on streams: %w",
			c.Rank, t.Seq, errdefs.ErrInternal)
	}
	for j := range t.Use.Each() {
		l := &x.lanes[j]
		*l = crossingLane{epoch: p.Machine.Base()[j], signals: l.signals}
		x.maps[j] = x.of.Script.Configs[j]
		if now := p.Machine.Standing()[j].Maps; !now.Equal(x.maps[j][0]) {
			x.maps[j] = append([]circuit.Permutation{now}, x.maps[j]...)
			l.epoch++
		}
	}
	recorder.Of(c).Bound(x.ref.Flight, x.ref.Entry, t.Use, true)
	return &x.maps, x.session.BindEngine(x.ref, x)
}

// Drive implements [circuits.Executor]. First it moves the planes that are not at the plan's first map.
func (x *crossing) Drive() error {
	c, p := x.in.c, circuits.Of(x.in.c)
	for j, maps := range x.maps {
		if len(maps) > len(x.of.Script.Configs[j]) && maps[0][c.Rank] != maps[1][c.Rank] {
			if err := p.Post(j, p.Machine.Base()[j], maps[1]); err != nil {
				return c.Fail(x.failed(j, err))
			}
		}
	}
	return x.session.Drive()
}

// Poll implements [exec.Engine].
func (x *crossing) Poll() (moved, done bool, err error) {
	// Check the wire for errors only now and then: that check takes longer than all else here.
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
	return moved, done && x.ended.Load()-x.runs >= 0, nil
}

// poll advances a lane as far as it can without waiting.
func (x *crossing) poll(j int) (moved bool, err error) {
	l, p := &x.lanes[j], circuits.Of(x.in.c)
	epoch, err := p.Poll(j)
	if err != nil {
		return false, x.failed(j, err)
	}
	for !l.complete {
		stage := &x.of.Script.Stages[j][l.stage]
		at := l.epoch + uint32(l.stage)
		if !l.inForce {
			if stage.Batches > 0 {
				if int32(epoch-at) < 0 {
					return moved, nil
				}
				raise(x.word(j), x.base[j]+uint32(l.stage)+1)
				if moves(x.of.Script.Stages[j][l.stage:]) { // see leave
					l.signals++
				}
			}
			l.inForce, moved = true, true
		}
		if stage.Moves {
			if x.completed[j].Load()-l.signals < 0 && !p.SkipDrain(j, at) {
				return moved, nil
			}
			if err := p.Post(j, at, x.of.Script.Configs[j][l.stage+1]); err != nil {
				return moved, x.failed(j, err)
			}
		}
		if l.stage+1 == len(x.of.Script.Stages[j]) {
			l.complete = true
			return true, nil
		}
		l.stage, l.inForce, moved = l.stage+1, false, true
	}
	return moved, nil
}

func (x *crossing) failed(j int, err error) error {
	return fmt.Errorf("shim: rank %d plane %d epoch %d: %w", x.in.c.Rank, j,
		x.lanes[j].epoch+uint32(x.lanes[j].stage), err)
}

// Waiting implements [exec.Engine].
func (x *crossing) Waiting() exec.Wait {
	w := exec.Wait{Rank: x.in.c.Rank, Op: session.Of(x.in.c).Seq, Peer: -1, Plane: -1}
	for j := range x.lanes {
		l := &x.lanes[j]
		if l.complete {
			continue
		}
		w.Plane, w.Epoch, w.Kind = j, l.epoch+uint32(l.stage), program.Reconfigure
		if l.inForce {
			w.Detail = "messages on streams have not completed"
		} else {
			w.Epoch--
			w.Detail = circuits.Of(x.in.c).WaitingOn(j)
		}
		return w
	}
	return w
}
