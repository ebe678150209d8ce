package circuits

import (
	"time"

	"lightpath/shim/control"
	"lightpath/shim/planeset"
	"lightpath/shim/ticket"
)

// ahead is the ticket that the leader has sent before the rank asks, and the request for which the rank waits. The
// leader may recall the ticket at any time. So the port's lock guards both: a ticket is used, or void, but never both.
type ahead struct {
	state aheadState
	seq   uint64
	sig   uint32
	body  []byte

	waits  bool
	forSeq uint64
	forSig uint32 // 0: a round
}

// aheadState says what has become of the last ticket ahead.
type aheadState uint8

const (
	void aheadState = iota // recalled or declined, or there was none
	inHand
	used
)

// Offer takes a ticket that has come ahead. wake: the rank waits for this operation, and must call Claim. declined: the
// rank waits for something else, maybe of another communicator, and tells the leader so.
func (m *Machine) Offer(seq uint64, sig uint32, body []byte) (wake, declined bool) {
	a := &m.ahead
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	if a.waits && (a.forSeq != seq || a.forSig != sig) || !a.waits && m.waitsElsewhere() {
		a.state = void
		return false, true
	}
	a.state, a.seq, a.sig, a.body = inHand, seq, sig, body
	return a.waits, false
}

// Recall answers whether the rank uses or has used the ticket ahead of an operation. If not, the ticket is void.
func (m *Machine) Recall(seq uint64) (inUse bool) {
	a := &m.ahead
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	if a.state == inHand && a.seq == seq {
		a.state = void
	}
	return a.state == used && a.seq == seq
}

// Begin begins an operation. It returns the ticket in hand, nil if the rank has to ask. declined: the rank had a ticket
// for another operation, number seq, and must tell the leader that it does not use it, before it asks.
func (m *Machine) Begin(at time.Time, op *Operation) (t *Ticket, declined bool, seq uint64, err error) {
	a := &m.ahead
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	a.forSeq, a.forSig = op.Seq, 0
	if op.Shape != nil {
		a.forSig = op.Shape.Signature()
	}
	m.ticket.Seq = op.Seq
	t, declined, err = m.claim(at)
	if a.waits = t == nil; a.waits {
		m.declineOthers()
	}
	return t, declined, a.seq, err
}

// Claim is Begin for a rank that has asked, and was woken by [Machine.Offer]. It returns nil if the leader has recalled
// the ticket.
func (m *Machine) Claim(at time.Time) (t *Ticket, declined bool, err error) {
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	t, declined, err = m.claim(at)
	m.ahead.waits = t == nil
	return t, declined, err
}

// claim uses the ticket in hand if it is for this operation, and its planes are sound. The caller holds the lock.
func (m *Machine) claim(at time.Time) (t *Ticket, declined bool, err error) {
	a := &m.ahead
	if a.state != inHand {
		return nil, false, nil
	}
	a.state = void
	if a.seq != a.forSeq || a.sig != a.forSig {
		return nil, true, nil
	}
	if t, err = m.decode(at, a.body); err != nil {
		return nil, false, err
	}
	if !m.stillValid(t.Use) {
		return nil, true, nil
	}
	a.state = used
	return t, false, nil
}

// answered notes that the rank has its answer.
func (m *Machine) answered() {
	m.port.mu.Lock()
	m.ahead.waits = false
	m.port.mu.Unlock()
}

// stillValid reports whether planes are in service, and no further than the ticket says. A ticket that lay here for a
// while may be of another time: a plane has failed since, or another controller has begun with later epochs. Then the
// leader decides again. A ticket with maps says where planes stand that others may have moved.
func (m *Machine) stillValid(use planeset.Set) bool {
	for j := range use.Each() {
		epoch, _, err := m.view.State(j)
		want, moved := &m.ticket.Planes[j], m.ticket.Flags&ticket.Maps != 0
		if err != nil || int32(epoch-want.Epoch) > 0 ||
			!moved && (m.standing[j].Epoch != want.Epoch || m.standing[j].Hash != want.Hash) {
			return false
		}
	}
	return true
}

// CameAhead reports whether the ticket went out before the rank asked.
func (t *Ticket) CameAhead() bool { return t.Flags&ticket.Ahead != 0 }

// AnswerRecall returns the message by which a rank tells its leader whether it uses a ticket ahead.
func AnswerRecall(seq uint64, used bool) control.Message {
	m := control.Message{Kind: control.MsgRecalled, Seq: seq}
	if used {
		m.Arg = 1
	}
	return m
}
