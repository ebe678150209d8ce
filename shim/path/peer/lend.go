package peer

import (
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// A rank tells each peer what it lends in a call by words in its own exchange memory. For each slot and peer one word
// is for the send buffer and one for the receive buffer. A word holds the address at which the peer has mapped the
// buffer, and the call's tag ([device.SaidTag]).
//
// The rank's stream first claims the slot, then writes the words, then gives the tokens of the slot's first
// chunk. At the end of the call it waits for all tokens and withdraws the words. So a word is valid only while the
// stream is in the call. In a failed communicator streams wait for nothing. A peer's stream may then read half a word,
// or the word of another call. It ignores both, because their tags differ from its own.

// lendBytes is the size of a block, in bytes, above which ranks check for lent buffers. Copying a smaller block is
// faster than waiting for its readers.
const lendBytes = 64 << 10

// The words for a slot and a peer.
const (
	wordSend    = iota // address of a collective's send buffer
	wordRecv           // address of a collective's receive buffer
	wordMessage        // address of a message to the peer
	saidWords
)

// saidBytes is the size of a rank's words in bytes. They are at the end of its exchange memory.
const saidBytes = numSlots * maxRanks * saidWords * 8

// said returns the address of a word by which owner tells reader what it lends.
func (x *Path) said(owner, slot, reader, word int) unsafe.Pointer {
	at := ((slot*maxRanks+reader)*saidWords + word) * 8
	return unsafe.Add(x.exchange[owner], x.c.Cfg.DeviceExchange-saidBytes+int64(at))
}

// tell makes the stream write a word of this rank. The word must be empty.
func (x *Path) tell(slot, reader, word int, value uint64) {
	at := device.Address(uintptr(x.said(x.me, slot, reader, word)))
	x.word(at, uint32(value), 0)
	x.word(at+4, uint32(value>>32), 0)
}

// untell makes the stream withdraw a word.
func (x *Path) untell(slot, reader, word int) {
	x.word(device.Address(uintptr(x.said(x.me, slot, reader, word)))+4, 0, 0)
}

// tag returns the tag of a collective's words. It depends on the collective and on the block, which are the same on
// all ranks.
func (op *operation) tag() uint64 {
	return device.SaidTag(uint64(op.block())<<8 | uint64(op.call.Kind)<<1)
}

// tag returns the tag of a message's word.
func (m *message) tag() uint64 { return device.SaidTag(uint64(m.bytes)<<8 | 1) }

// consider decides what this rank lends in a call, and which peers may lend it something.
func (x *Path) consider(op *operation) error {
	op.look, op.lentSend, op.lentRecv, op.spoken = 0, nil, nil, 0
	call, block := op.call, op.block()
	whole := call.Kind == calls.AllReduce || call.Kind == calls.Reduce || call.Kind == calls.Broadcast
	if block <= lendBytes || !whole && block%lendAlign != 0 {
		return nil
	}
	op.look = x.looks
	send, recv := call.Extents()
	scaled := calls.Kinds[call.Kind].Reduces && call.Op == calls.OpPreMulSum // the contribution differs from the buffer
	if send > 0 && !scaled && lendAligned(op.send) && (!op.inPlace || call.Kind != calls.AllToAll) {
		op.lentSend = x.lendable(op.send, send, op.sendID, op.number)
	}
	if recv > 0 && x.pushes(op) && lendAligned(op.recv) {
		op.lentRecv = x.lendable(op.recv, recv, op.recvID, op.number)
	}
	for _, r := range []*region{op.lentSend, op.lentRecv} {
		if r == nil {
			continue
		}
		if err := x.lend(r); err != nil {
			return err
		}
	}
	return nil
}

// lendAlign is the alignment of lent buffers in bytes, so that kernels find them aligned.
const lendAlign = 16

func lendAligned(p unsafe.Pointer) bool { return uintptr(p)%lendAlign == 0 }

// pushes reports whether ranks store results in the receive buffers of their peers.
func (x *Path) pushes(op *operation) bool {
	return op.call.Kind == calls.AllReduce || op.call.Kind == calls.Reduce
}

// speak tells the readers of a slot what this rank lends. Hot path.
func (x *Path) speak(op *operation, slot int) {
	if op.lentSend == nil && op.lentRecv == nil || op.spoken>>slot&1 != 0 {
		return
	}
	op.spoken |= 1 << slot
	for r := range x.n {
		if r == x.me {
			continue
		}
		if op.lentSend != nil {
			x.tell(slot, r, wordSend, x.theirs(op.lentSend, op.send, r)|op.tag())
		}
		if op.lentRecv != nil {
			x.tell(slot, r, wordRecv, x.theirs(op.lentRecv, op.recv, r)|op.tag())
		}
	}
}

// theirs returns the address at which another rank has mapped memory of a region.
func (x *Path) theirs(r *region, at unsafe.Pointer, rank int) uint64 {
	return x.recordOf(x.me, r.index).opened[rank].at.Load() + uint64(uintptr(at)-r.base())
}

// settle ends a call that has lent buffers. The stream waits for all tokens, withdraws the words and passes the gates.
func (x *Path) settle(op *operation) {
	if op.spoken == 0 {
		return
	}
	for slot := range numSlots {
		if op.spoken>>slot&1 == 0 {
			continue
		}
		for r := range x.n {
			if r != x.me {
				x.word(x.page.token(stageIn, slot, x.me, r, tokenFree), 1, 1)
			}
		}
	}
	x.unsay(op.spoken)
	x.passGates()
}

// unsay makes the stream withdraw all words of a set of slots.
func (x *Path) unsay(slots uint32) {
	for slot := range numSlots {
		for r := 0; r < x.n && slots>>slot&1 != 0; r++ {
			if r == x.me {
				continue
			}
			for word := range saidWords {
				x.untell(slot, r, word)
			}
		}
	}
}

// fetch copies a peer's contribution, from its lent send buffer at byte inSend or from its slot at byte inSlot.
func (x *Path) fetch(op *operation, dst unsafe.Pointer, rank, slot int, inSlot, inSend, size int64) error {
	from := unsafe.Add(x.slotAt(rank, slot), inSlot)
	if !op.look.has(rank) {
		return x.copy(dst, from, size)
	}
	var room unsafe.Pointer
	if op.bounce || !lendAligned(op.recv) {
		room = x.scratch()
	}
	return x.find(x.stream, dst, from, x.said(rank, slot, x.me, wordSend), op.tag(), inSend, size, room)
}

// find makes stream s copy size bytes to dst. If word has the tag, the source is the address in word plus offset.
// Otherwise the source is slot. If kernels cannot store at dst, or only slowly, room is memory for an intermediate
// copy. Otherwise room is nil.
func (x *Path) find(
	s device.Stream, dst, slot, word unsafe.Pointer, tag uint64, offset, size int64, room unsafe.Pointer,
) error {
	if size == 0 {
		return nil
	}
	if err := x.flushTo(s); err != nil {
		return err
	}
	k := &x.kernel
	*k = device.Reduction{Dst: dst, N: 1, Count: size, Type: datatype.Uint8, Tag: tag, Offset: offset}
	k.Sources[0], k.Found[0] = slot, word
	if room == nil {
		return device.Active().Reduce(k, s)
	}
	k.Dst = room
	if err := device.Active().Reduce(k, s); err != nil {
		return err
	}
	return device.Active().Copy(dst, room, int(size), s)
}
