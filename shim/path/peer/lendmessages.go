package peer

import "unsafe"

// If the sender has registered the buffer of a message, a kernel of the receiver copies the message from there. Such a
// message is copied once. It has the same chunks and tokens as a message in slots. As in collectives, each side
// decides for itself. If the receiver has opened a region of the sender, it checks the word of each long message. The
// sender lends a buffer if the receiver opened it before it called for the message.

// considerMessages decides which messages this rank lends, and which peers may lend it theirs.
func (x *Path) considerMessages() error {
	for i := range x.msgs {
		m := &x.msgs[i]
		m.lent, m.look = nil, false
		switch {
		case m.bytes <= lendBytes || m.peer == x.me:
		case !m.send:
			m.look = x.looks.has(m.peer)
		case lendAligned(m.at):
			if m.lent = x.lendableTo(m.peer, m.at, m.bytes, m.id, m.number); m.lent == nil {
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
	case m.lent != nil && l.chunk < numSlots:
		if l.said>>slot&1 != 0 {
			x.untell(slot, l.peer, wordMessage)
		}
		x.tell(slot, l.peer, wordMessage, x.theirs(m.lent, m.at, l.peer)|m.tag())
		l.said |= 1 << slot
	case m.lent == nil && l.said>>slot&1 != 0:
		x.untell(slot, l.peer, wordMessage)
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
		for slot := range numSlots {
			if l.said>>slot&1 != 0 {
				x.word(x.page.token(stagePair, slot, x.me, l.peer, tokenFree), 1, 1)
				x.untell(slot, l.peer, wordMessage)
			}
		}
		lent = lent || l.said != 0
		l.said = 0
	}
	if lent {
		x.passGates()
	}
}

// fetchMessage copies a chunk of n bytes from the sender's buffer, or from the slot. Lanes run side by side, so each
// has its own part of the scratch.
func (x *Path) fetchMessage(l *lane, m *message, to unsafe.Pointer, slot int, n int64) error {
	var room unsafe.Pointer
	if m.bounce || !lendAligned(m.at) {
		room = unsafe.Add(x.scratch(), int64(l.peer)*x.pairBytes)
	}
	return x.find(l.on, to, x.pairAt(l.peer, x.me, slot), x.said(l.peer, slot, x.me, wordMessage),
		m.tag(), l.off, n, room)
}
