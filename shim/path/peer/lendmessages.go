package peer

import "unsafe"

// A message whose buffer the sender has registered is copied once: by a kernel of the receiver's, from where the sender has it. Chunks and
// tokens are those of slots. As for collectives each side decides for itself: the receiver looks at all long messages of a sender of which it has
// opened something, the sender lends what that receiver has opened before it called for the message.

// considerMessages decides what this rank lends to whom, and whom it looks at.
func (x *Path) considerMessages() error {
	for i := range x.msgs {
		m := &x.msgs[i]
		m.lent, m.look = nil, false
		switch {
		case m.bytes <= lendBytes || m.peer == x.me:
		case !m.send:
			m.look = x.looks.has(m.peer)
		case len(x.regions) > 0 && lendAligned(m.at):
			if m.lent = x.lendableTo(m.peer, m.at, m.bytes, m.number); m.lent == nil {
				continue
			}
			if err := x.lend(m.lent); err != nil {
				return err
			}
		}
	}
	return nil
}

// speakOf says to the receiver where a message is, once for each slot, or that it is in the slot, which is this rank's now. Hot path.
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

// settleMessages has the launch's stream wait until nobody reads what lanes have lent, and say nothing of it any more. It comes when all lanes have
// joined: what the receiver waits for may be behind what this rank waits for, and at the gates no kernel of the launch is left.
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

// fetchMessage copies a chunk of n bytes from where the sender has it, or from the slot. Lanes go on side by side, so each has a part of the scratch.
func (x *Path) fetchMessage(l *lane, m *message, to unsafe.Pointer, slot int, n int64) error {
	var room unsafe.Pointer
	if m.bounce || !lendAligned(m.at) {
		room = unsafe.Add(x.scratch(), int64(l.peer)*x.pairBytes)
	}
	return x.find(l.on, to, x.pairAt(l.peer, x.me, slot), x.said(l.peer, slot, x.me, wordMessage), m.tag(), l.off, n, room)
}
