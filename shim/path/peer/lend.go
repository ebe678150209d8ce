package peer

import (
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/device"
)

// A rank tells each peer what it lends in a call by words in its own exchange memory. For each peer one word is for the
// send buffer and one for the receive buffer. A word holds the address at which the peer has mapped the
// buffer, and the call's tag ([device.SaidTag]).
//
// The rank's stream first waits until its peers have ended all earlier calls, then writes the words, then gives tokens.
// At the end of the call it waits for all tokens and withdraws the words. So a word is valid only while the
// stream is in the call. In a failed communicator streams wait for nothing. A peer's stream may then read half a word,
// or the word of another call. It ignores both, because their tags differ from its own.

// lendBytes is the data of a call, in bytes of all ranks of a device, above which ranks check for lent buffers. Copying
// less to slots and back is faster than waiting for the readers. docs/gpu-model-results.md has the times of both.
const lendBytes = 24 << 20

// lendAbove returns the data of one rank's call, in bytes, above which ranks check for lent buffers. If slots are
// small, a call takes many chunks, and lending is faster for less data.
func (x *Path) lendAbove() int64 {
	most := min(lendBytes, x.exchange.used/8)
	if x.joint {
		most /= int64(x.n)
	}
	return most
}

// The words for a peer.
const (
	wordSend    = iota // address of a collective's send buffer
	wordRecv           // address of a collective's receive buffer
	wordMessage        // address of a message to the peer, for each slot
	saidWords   = wordMessage + pairSlots
)

// saidBytes is the size of a rank's words in bytes. They begin the last page of its exchange memory.
const saidBytes = maxRanks * saidWords * 8

// tell makes the stream write a word of this rank. The word must be empty.
func (x *Path) tell(reader, word int, value uint64) {
	x.queue.store(device.Address(uintptr(x.exchange.said(x.me, reader, word))), value, true)
}

// untell makes the stream withdraw a word.
func (x *Path) untell(reader, word int) {
	x.queue.store(device.Address(uintptr(x.exchange.said(x.me, reader, word)))+4, 0, false)
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
	op.look, op.lentSend, op.lentRecv = 0, nil, nil
	call, block := op.call, op.block()
	whole := call.Kind == calls.AllReduce || call.Kind == calls.Reduce || call.Kind == calls.Broadcast
	all := block
	if !whole {
		all *= int64(x.n)
	}
	if all <= x.lendAbove() || !whole && block%lendAlign != 0 || x.pushes(op) && x.oneShot(op) {
		return nil
	}
	op.look = x.opened.owners
	opened := func(r *region) bool { return x.openedBefore(r, op.number) }
	send, recv := call.Extents()
	// A contribution that is multiplied differs from its buffer.
	if send > 0 && !op.scaled() && lendAligned(op.call.Send) && (!op.call.InPlace() || call.Kind != calls.AllToAll) {
		op.lentSend = x.lendable(op.call.Send, send, op.sendID, opened)
	}
	if recv > 0 && x.pushes(op) && lendAligned(op.call.Recv) {
		op.lentRecv = x.lendable(op.call.Recv, recv, op.recvID, opened)
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

// speak tells all peers what this rank lends. Before that they must have ended all earlier calls, in which they may
// read the words. Hot path.
func (x *Path) speak(op *operation) {
	if op.lentSend == nil && op.lentRecv == nil {
		return
	}
	x.awaitPeers()
	x.everyone().without(x.me).each(func(r int) {
		if op.lentSend != nil {
			x.tell(r, wordSend, x.theirs(op.lentSend, op.call.Send, r)|op.tag())
		}
		if op.lentRecv != nil {
			x.tell(r, wordRecv, x.theirs(op.lentRecv, op.call.Recv, r)|op.tag())
		}
	})
}

// awaitPeers waits until all peers have given back all tokens of this rank.
func (x *Path) awaitPeers() {
	for slot := range numSlots {
		x.awaitFree(slot)
	}
}

// theirs returns the address at which another rank has mapped memory of a region.
func (x *Path) theirs(r *region, at unsafe.Pointer, rank int) uint64 {
	return x.recordOf(x.me, r.index).opened[rank].at.Load() + uint64(uintptr(at)-r.base())
}

// settle ends a call that has lent buffers. The stream waits for all tokens, withdraws the words and passes the gates.
func (x *Path) settle(op *operation) {
	if op.lentSend == nil && op.lentRecv == nil {
		return
	}
	x.awaitPeers()
	x.unsay(wordMessage)
	x.passGates()
}

// unsay makes the stream withdraw the first words of all peers.
func (x *Path) unsay(words int) {
	x.everyone().without(x.me).each(func(r int) {
		for word := range words {
			x.untell(r, word)
		}
	})
}

// If the sender has registered the buffer of a message, a kernel of the receiver copies the message from there. Such a
// message is copied once. It has the same chunks and tokens as a message in slots. As in collectives, each side
// decides for itself. If the receiver has opened a region of the sender, it checks the word of each long message. The
// sender lends a buffer if the receiver opened it before it called for the message.

// considerMessages decides which messages this rank lends, and which peers may lend it theirs.
func (x *Path) considerMessages() error {
	for i := range x.launch.msgs {
		m := &x.launch.msgs[i]
		m.lent, m.look = nil, false
		switch {
		case m.bytes <= x.lendAbove() || m.peer == x.me:
		case !m.send:
			m.look = x.opened.owners.has(m.peer)
		case lendAligned(m.at):
			opened := func(r *region) bool { return x.openedBy(m.peer, r, m.number) }
			if m.lent = x.lendable(m.at, m.bytes, m.id, opened); m.lent == nil {
				continue
			}
			if err := x.lend(m.lent); err != nil {
				return err
			}
		}
	}
	return nil
}

// speakOf tells the receiver the address of a lent message, once for each slot. For a message that is not lent, it
// withdraws the word. The stream has claimed the slot. Hot path.
func (x *Path) speakOf(l *lane, m *message, slot int) {
	switch {
	case m.lent != nil && l.chunk < pairSlots:
		if l.said>>slot&1 != 0 { // its halves may be written one after the other
			x.untell(l.peer, wordMessage+slot)
			_ = x.queue.flush() // the last flush returns the error
		}
		x.tell(l.peer, wordMessage+slot, x.theirs(m.lent, m.at, l.peer)|m.tag())
		l.said |= 1 << slot
	case m.lent == nil && l.said>>slot&1 != 0:
		x.untell(l.peer, wordMessage+slot)
		l.said &^= 1 << slot
	}
}

// settleMessages makes the launch's stream wait until peers have read all lent messages, and withdraws the words. Then
// the stream passes the gates. All lanes must have joined: waiting earlier could block work that the receiver waits
// for. At the gates no kernel of the launch may be left.
func (x *Path) settleMessages() {
	lent := false
	for i := range x.lanes {
		l := &x.lanes[i]
		for slot := range pairSlots {
			if l.said>>slot&1 != 0 {
				x.queue.wait(x.page.token(stagePair, slot, x.me, l.peer, tokenFree))
				x.untell(l.peer, wordMessage+slot)
			}
		}
		lent = lent || l.said != 0
		l.said = 0
	}
	if lent {
		x.passGates()
	}
}
