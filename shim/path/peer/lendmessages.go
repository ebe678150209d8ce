package peer

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
