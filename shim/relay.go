package shim

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/memory"
)

// relay is a long message of a group, between device memory and another rank. Messages of a group may depend on each other in ways that no rank
// sees alone, so each moves by itself: through two slots of staging memory, on a stream of its own. A piece that is sent is copied into a slot
// when the one before the last has left that; a piece that is received has a slot when the one before the last has been copied out of it. Two
// words tell: how many pieces the stream has copied, and how many the CPU has moved.
//
// Nobody waits for a device on the CPU, and nothing is put on streams later than the launch. While there are relays the CPU looks at the words
// every 100 us where nothing else moves.
type relay struct {
	call   int // of the script's from
	send   bool
	slots  unsafe.Pointer
	buffer unsafe.Pointer
	piece  int // bytes
	bytes  int
	pieces uint32

	lane  *relayLane
	base  uint32 // what the words are when it begins
	moved uint32 // pieces, in their order
	ahead bool   // the one behind them has been moved, too
	put   uint32 // pieces that are on the stream
}

// relaySlots is how many a relay has.
const relaySlots = 2

// relayLane is what the communicator keeps for a relay.
type relayLane struct {
	stream device.Stream
	event  device.Event
	words  memory.Pinned // the device's, and the CPU's
	seq    uint32        // what both become with the last relay
}

func (l *relayLane) copied() *uint32 { return l.words.Word() }
func (l *relayLane) moved() *uint32  { return (*uint32)(unsafe.Add(l.words.At, memory.WordSize)) }

// relays are those of a launch, and the gate of its messages.
type relays struct {
	all    []relay
	pieces []relayPiece // by call of the step
	order  []relayPiece // by message, as the executor numbers them
	selfs  []selfCopy
}

// relayPiece is a part of a relay; relay is -1 for a message that is none.
type relayPiece struct {
	relay int32
	piece uint32
}

// selfCopy is a long message of a rank to itself.
type selfCopy struct {
	to, from unsafe.Pointer
	bytes    int
}

// skip says that the step's calls so far, where nothing has been said of them, are no relay's.
func (r *relays) skip(calls int) {
	for len(r.pieces) < calls {
		r.pieces = append(r.pieces, relayPiece{relay: -1})
	}
}

// Open implements exec.Gate.
func (r *relays) Open(message int) bool {
	p := r.order[message]
	if p.relay < 0 {
		return true
	}
	on := &r.all[p.relay]
	need := on.base + p.piece + 1
	if !on.send {
		if p.piece < relaySlots {
			return true
		}
		need -= relaySlots
	}
	return int32(atomic.LoadUint32(on.lane.copied())-need) >= 0
}

// Over implements exec.Gate.
func (r *relays) Over(message int) {
	p := r.order[message]
	if p.relay < 0 {
		return
	}
	on := &r.all[p.relay]
	if p.piece != on.moved { // on another plane
		on.ahead = true
		return
	}
	if on.moved++; on.ahead {
		on.moved++
		on.ahead = false
	}
	atomic.StoreUint32(on.lane.moved(), on.base+on.moved)
}

// release lets the streams go on, whatever has come of the messages.
func (r *relays) release() {
	for i := range r.all {
		if on := &r.all[i]; on.lane != nil {
			atomic.StoreUint32(on.lane.moved(), on.base+on.pieces)
		}
	}
}

// number brings the pieces into the executor's order: all sends, then all receives.
func (r *relays) number(group []calls.Call) {
	for _, kind := range [...]calls.Kind{calls.Send, calls.Recv} {
		for i := range group {
			if group[i].Kind == kind {
				r.order = append(r.order, r.pieces[i])
			}
		}
	}
}

// pieceBytes is how long the pieces of a message are.
func pieceBytes(c *calls.Call) int { return int(c.PieceCount()) * c.Type.Size() }

// isLong reports whether a message has more pieces than there are slots.
func isLong(c *calls.Call) bool { return c.PieceCount() > 0 && c.Count > relaySlots*c.PieceCount() }

// isRelayed reports whether a message of the group is one in device memory that moves by itself.
func (s *script) isRelayed(i int) bool {
	where, c := s.staged[i], &s.from[i]
	return s.relaying && (where.send || where.recv) && int(c.Peer) != s.comm.Rank && isLong(c)
}

// matchSelf finds the long messages that the rank sends to itself from device memory to device memory.
func (s *script) matchSelf() {
	recv := 0
	for i := range s.from {
		if !s.ownMessage(i, calls.Send) {
			continue
		}
		for recv < len(s.from) && !s.ownMessage(recv, calls.Recv) {
			recv++
		}
		if recv == len(s.from) {
			return // which is refused later
		}
		a, b := &s.from[i], &s.from[recv]
		if s.relaying && s.together && s.staged[i].send && s.staged[recv].recv && isLong(a) && a.Count*uint64(a.Type.Size()) == b.Count*uint64(b.Type.Size()) {
			s.staged[i].toSelf, s.staged[recv].toSelf = true, true
			s.relays.selfs = append(s.relays.selfs, selfCopy{b.Recv, a.Send, int(a.Count) * a.Type.Size()})
		}
		recv++
	}
}

func (s *script) ownMessage(i int, kind calls.Kind) bool {
	return s.from[i].Kind == kind && int(s.from[i].Peer) == s.comm.Rank
}

// addRelayed adds the pieces of a message, which take turns with its slots.
func (s *script) addRelayed(i int) {
	c := s.from[i]
	r := relay{call: i, send: c.Kind == calls.Send, piece: pieceBytes(&c), bytes: int(c.Count) * c.Type.Size(), buffer: c.Recv, slots: unsafe.Add(s.at, s.sendAt)}
	if r.send {
		r.buffer = c.Send
	}
	room, count := aligned(r.piece), c.PieceCount()
	s.sendAt += relaySlots * room
	c.Whole = c.Count
	for done := uint64(0); done < c.Whole; done += count {
		p, slot := c, unsafe.Add(r.slots, int(r.pieces%relaySlots)*room)
		if p.Count = min(count, c.Whole-done); r.send {
			p.Send = slot
		} else {
			p.Recv = slot
		}
		s.calls = append(s.calls, p)
		s.relays.pieces = append(s.relays.pieces, relayPiece{int32(len(s.relays.all)), r.pieces})
		r.pieces++
	}
	s.relays.all = append(s.relays.all, r)
}

// serve gives each relay what the communicator keeps for one.
func (d *onDevice) serve(r *relays) error {
	for i := range r.all {
		if i == len(d.lanes) {
			d.lanes = append(d.lanes, new(relayLane))
		}
		lane := d.lanes[i]
		if err := d.open(lane); err != nil {
			return err
		}
		r.all[i].lane, r.all[i].base = lane, lane.seq
		lane.seq += r.all[i].pieces
	}
	return nil
}

// open makes what a lane lacks.
func (d *onDevice) open(l *relayLane) (err error) {
	if err = newEvents(&l.event); err == nil && l.stream == 0 {
		l.stream, err = device.Active().NewStream()
	}
	if err == nil && l.words.At == nil {
		if l.words, err = d.lock(2 * memory.WordSize); err == nil {
			atomic.StoreUint32(l.copied(), l.seq)
			atomic.StoreUint32(l.moved(), l.seq)
		}
	}
	return err
}

// close gives back what the communicator keeps for relays.
func (l *relayLane) close(d *onDevice) {
	if l.event != 0 {
		_ = device.Active().FreeEvent(l.event)
	}
	if l.stream != 0 {
		_ = device.Active().FreeStream(l.stream)
	}
	d.locked.Add(-int64(l.words.Size))
	memory.Unpin(l.words)
}

// putRelays puts the relays' copies on streams that part from the launch's, and join it again at its end. They come by turns, so that they also go
// on where a driver keeps several streams in one queue and the groups of all ranks are alike.
func (l *launch) putRelays() error {
	if len(l.relays.all) == 0 {
		return nil
	}
	if err := device.Active().Record(l.dev.joint, l.streams[0]); err != nil {
		return err
	}
	for i := range l.relays.all {
		if err := device.Active().Follow(l.relays.all[i].lane.stream, l.dev.joint); err != nil {
			return err
		}
	}
	for more := true; more; {
		more = false
		for _, send := range [...]bool{true, false} {
			for i := range l.relays.all {
				on := &l.relays.all[i]
				if on.send != send || on.put == on.pieces {
					continue
				}
				if err := on.putPiece(); err != nil {
					return err
				}
				more = true
			}
		}
	}
	return nil
}

// putPiece puts the next piece on the relay's stream.
func (r *relay) putPiece() error {
	s, first := r.lane.stream, int(r.put)*r.piece
	slot, size := unsafe.Add(r.slots, int(r.put%relaySlots)*aligned(r.piece)), min(r.piece, r.bytes-first)
	r.put++
	at, wait := unsafe.Add(r.buffer, first), r.put
	if r.send { // else it must have been received
		wait -= min(relaySlots, wait)
	}
	if wait > 0 {
		if err := device.Active().Await(s, r.lane.moved(), r.base+wait, false); err != nil {
			return err
		}
	}
	var err error
	if r.send {
		err = device.Active().CopyOut(slot, at, size, s)
	} else {
		err = device.Active().CopyIn(at, slot, size, s)
	}
	if err == nil {
		err = device.Active().Store(s, r.lane.copied(), r.base+r.put)
	}
	return err
}
