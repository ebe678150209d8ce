package peer

import (
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// What a rank lends in a call it says to each of the others in words of its exchange memory, one for its send buffer and one for its
// receive buffer, for each slot: the address at which the other has it, with the call's tag ([device.SaidTag]). Its stream writes them when the
// slot is the rank's, before it gives the tokens of the slot's first chunk, and takes them back at the end of the call, when it has all
// tokens back. So they say something only while the stream is in the call. Streams of a communicator that has failed wait for nothing, and may look
// while a word is written, or in another call than its writer: half a word, or another call's, says nothing to them.

// lendBytes is above which block the ranks look whether buffers are lent. Smaller ones are copied sooner than waited for.
const lendBytes = 64 << 10

// The words for a slot and a reader.
const (
	wordSend    = iota // of a collective
	wordRecv           // of a collective
	wordMessage        // of what is sent to the reader
	saidWords
)

// saidBytes is what the words of a rank take, at the end of its exchange memory.
const saidBytes = numSlots * maxRanks * saidWords * 8

// said is where a rank says to a reader what it lends.
func (x *Path) said(owner, slot, reader, word int) unsafe.Pointer {
	at := ((slot*maxRanks+reader)*saidWords + word) * 8
	return unsafe.Add(x.exchange[owner], x.c.Cfg.DeviceExchange-saidBytes+int64(at))
}

// tell has the stream write a word of this rank's, which says nothing yet.
func (x *Path) tell(slot, reader, word int, value uint64) {
	at := device.Address(uintptr(x.said(x.me, slot, reader, word)))
	x.word(at, uint32(value), 0)
	x.word(at+4, uint32(value>>32), 0)
}

// untell has the stream take a word back.
func (x *Path) untell(slot, reader, word int) {
	x.word(device.Address(uintptr(x.said(x.me, slot, reader, word)))+4, 0, 0)
}

// tag is that of the words of a collective, which has buffers of one size at all ranks.
func (op *operation) tag() uint64 {
	return device.SaidTag(uint64(op.block())<<8 | uint64(op.call.Kind)<<1)
}

// tag is that of a message's word.
func (m *message) tag() uint64 { return device.SaidTag(uint64(m.bytes)<<8 | 1) }

// consider decides what this rank lends in a call, and whom it looks at.
func (x *Path) consider(op *operation) error {
	op.look, op.lentSend, op.lentRecv, op.spoken = 0, nil, nil, 0
	call, block := op.call, op.block()
	whole := call.Kind == calls.AllReduce || call.Kind == calls.Reduce || call.Kind == calls.Broadcast
	if block <= lendBytes || !whole && block%lendAlign != 0 {
		return nil
	}
	op.look = x.looks
	if len(x.regions) == 0 {
		return nil
	}
	send, recv := call.Extents()
	scaled := calls.Kinds[call.Kind].Reduces && call.Op == calls.OpPreMulSum // what it brings is not what it has
	if send > 0 && !scaled && lendAligned(op.send) && (!op.inPlace || call.Kind != calls.AllToAll) {
		op.lentSend = x.lendable(op.send, send, op.number)
	}
	if recv > 0 && x.pushes(op) && lendAligned(op.recv) {
		op.lentRecv = x.lendable(op.recv, recv, op.number)
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

// lendAlign is what lent buffers begin at multiples of, so that kernels find them aligned.
const lendAlign = 16

func lendAligned(p unsafe.Pointer) bool { return uintptr(p)%lendAlign == 0 }

// pushes reports whether ranks store results in the receive buffers of others.
func (x *Path) pushes(op *operation) bool {
	return op.call.Kind == calls.AllReduce || op.call.Kind == calls.Reduce
}

// speak says what this rank lends, to the readers of a slot. Hot path.
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

// theirs is where another rank has memory of a region.
func (x *Path) theirs(r *region, at unsafe.Pointer, rank int) uint64 {
	return x.recordOf(x.me, r.index).opened[rank].at.Load() + uint64(uintptr(at)-r.base)
}

// settle ends a call that has lent something: when nobody reads it any more, nothing is said of it.
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

// unsay takes back what this rank may have said of some slots.
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

// fetch copies what a rank brings: from its slot, at an offset, or from its send buffer at another one.
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

// find has a stream copy from where a word with a tag says, at an offset, or, if it says nothing, from a slot: by way of room, unless that is nil, where
// kernels do not store at dst, or not fast.
func (x *Path) find(s device.Stream, dst, slot, word unsafe.Pointer, tag uint64, offset, size int64, room unsafe.Pointer) error {
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
