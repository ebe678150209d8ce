package steps

import (
	"sync/atomic"
	"unsafe"

	"lightpath/shim/calls"
)

// Relay is a long message of a group, between device memory and another rank. Messages of a group may depend on each
// other across ranks, so each relay moves independently: through two slots of staging memory, on a stream of its own.
// Pieces use the slots in turn. A piece to send enters a slot when the CPU has sent the slot's previous piece. A piece
// to receive enters a slot when the slot's previous piece has been copied out. Two words count pieces: one
// counts the pieces that the stream has copied, the other the pieces that the CPU has moved.
//
// The CPU waits for no device, and nothing is put on streams after the launch. While there are relays the CPU looks at
// the words every 100 us if nothing else moves.
type Relay struct {
	Send   bool
	Peer   int
	After  int // the relay of the previous message to the peer, or from it; -1 for none
	Slots  unsafe.Pointer
	Buffer unsafe.Pointer
	Piece  int // bytes
	Bytes  int
	Pieces uint32

	Copied *uint32 // pieces that the stream has copied; nil until there is a stream
	Moved  *uint32 // pieces that the CPU has moved
	Base   uint32  // value of both words when the relay begins
	moved  uint32  // pieces, in their order
	ahead  bool    // the next piece has been moved, too
}

// RelaySlots is how many slots a relay has.
const RelaySlots = 2

// Relays holds the relays of a step. It is the [exec.MessageMemory] of the step's messages.
type Relays struct {
	All   []Relay
	Selfs []SelfCopy

	pieces []relayPiece // by call of the step
	order  []relayPiece // by message, as the executor numbers them
}

// relayPiece is a part of a relay. relay is -1 for a message without a relay.
type relayPiece struct {
	relay int32
	piece uint32
}

// SelfCopy is a long message of a rank to itself.
type SelfCopy struct {
	To, From unsafe.Pointer
	Bytes    int
}

func (r *Relays) begin() { r.All, r.pieces, r.order = r.All[:0], r.pieces[:0], r.order[:0] }

// skip records that the calls of the step so far, without an entry, belong to no relay.
func (r *Relays) skip(calls int) {
	for len(r.pieces) < calls {
		r.pieces = append(r.pieces, relayPiece{relay: -1})
	}
}

// Ready implements [exec.MessageMemory].
func (r *Relays) Ready(message int) bool {
	p := r.order[message]
	if p.relay < 0 {
		return true
	}
	on := &r.All[p.relay]
	need := on.Base + p.piece + 1
	if !on.Send {
		if p.piece < RelaySlots {
			return true
		}
		need -= RelaySlots
	}
	return int32(atomic.LoadUint32(on.Copied)-need) >= 0
}

// Moved implements [exec.MessageMemory].
func (r *Relays) Moved(message int) {
	p := r.order[message]
	if p.relay < 0 {
		return
	}
	on := &r.All[p.relay]
	if p.piece != on.moved { // on another plane
		on.ahead = true
		return
	}
	if on.moved++; on.ahead {
		on.moved++
		on.ahead = false
	}
	atomic.StoreUint32(on.Moved, on.Base+on.moved)
}

// Release lets the streams continue, also if messages have failed.
func (r *Relays) Release() {
	for i := range r.All {
		if on := &r.All[i]; on.Moved != nil {
			atomic.StoreUint32(on.Moved, on.Base+on.Pieces)
		}
	}
}

// number brings the pieces into the executor's order: all sends, then all receives.
func (r *Relays) number(group []calls.Call) {
	for _, kind := range [...]calls.Kind{calls.Send, calls.Recv} {
		for i := range group {
			if group[i].Kind == kind {
				r.order = append(r.order, r.pieces[i])
			}
		}
	}
}

// pieceBytes returns how long the pieces of a message are.
func pieceBytes(c *calls.Call) int { return int(c.PieceCount()) * c.Type.Size() }

// isLong reports whether a message has more pieces than there are slots.
func isLong(c *calls.Call) bool { return c.PieceCount() > 0 && c.Count > RelaySlots*c.PieceCount() }

// isRelayed reports whether a message of the group is in device memory and moves by itself.
func (l *List) isRelayed(i int) bool {
	where, c := l.Staged[i], &l.From[i]
	return l.Relaying && (where.Send || where.Recv) && int(c.Peer) != l.Comm.Rank && isLong(c)
}

// matchSelf finds the long messages that the rank sends to itself from device memory to device memory.
func (l *List) matchSelf() {
	recv := 0
	for i := range l.From {
		if !l.isOwn(i, calls.Send) {
			continue
		}
		for recv < len(l.From) && !l.isOwn(recv, calls.Recv) {
			recv++
		}
		if recv == len(l.From) {
			return // it is refused later
		}
		a, b := &l.From[i], &l.From[recv]
		size := int(a.Count) * a.Type.Size()
		if l.Relaying && l.together && l.Staged[i].Send && l.Staged[recv].Recv && isLong(a) &&
			size == int(b.Count)*b.Type.Size() {
			l.Staged[i].ToSelf, l.Staged[recv].ToSelf = true, true
			l.Relays.Selfs = append(l.Relays.Selfs, SelfCopy{b.Recv, a.Send, size})
		}
		recv++
	}
}

// isOwn reports whether a call is a message of this rank to itself.
func (l *List) isOwn(i int, kind calls.Kind) bool {
	return l.From[i].Kind == kind && int(l.From[i].Peer) == l.Comm.Rank
}

// addRelayed adds the pieces of a message, which take turns with its slots.
func (l *List) addRelayed(i int) {
	c := l.From[i]
	r := Relay{
		Send: c.Kind == calls.Send, Piece: pieceBytes(&c), Bytes: int(c.Count) * c.Type.Size(), Buffer: c.Recv,
		Slots: unsafe.Add(l.at, l.sendAt), Peer: int(c.Peer), After: len(l.Relays.All) - 1,
	}
	for r.After >= 0 && (l.Relays.All[r.After].Send != r.Send || l.Relays.All[r.After].Peer != r.Peer) {
		r.After--
	}
	if r.Send {
		r.Buffer = c.Send
	}
	room, count := Aligned(r.Piece), c.PieceCount()
	l.sendAt += RelaySlots * room
	c.Whole = c.Count
	for done := uint64(0); done < c.Whole; done += count {
		p, slot := c, unsafe.Add(r.Slots, int(r.Pieces%RelaySlots)*room)
		if p.Count = min(count, c.Whole-done); r.Send {
			p.Send = slot
		} else {
			p.Recv = slot
		}
		l.addCall(p)
		l.Relays.pieces = append(l.Relays.pieces, relayPiece{int32(len(l.Relays.All)), r.Pieces})
		r.Pieces++
	}
	l.Relays.All = append(l.Relays.All, r)
}
