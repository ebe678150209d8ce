package circuits

import (
	"time"

	"lightpath/shim/comm"
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

// Enter begins an operation. It returns the grant of the ticket in hand, nil if the rank has to ask. declined: the rank
// had a ticket, and must tell the leader that it does not use it, before it asks. The ticket that was declined is
// void; seq is its number.
func (m *Machine) Enter(at time.Time, op *Operation) (g *Grant, declined bool, seq uint64, err error) {
	a := &m.ahead
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	a.forSeq, a.forSig = op.Seq, 0
	if op.Shape != nil {
		a.forSig = op.Shape.Signature()
	}
	m.grant.Seq = op.Seq
	g, declined, err = m.claim(at)
	if a.waits = g == nil; a.waits {
		m.declineOthers()
	}
	return g, declined, a.seq, err
}

// Claim is Enter for a rank that has asked, and was woken by [Machine.Offer]. It returns nil if the leader has recalled
// the ticket.
func (m *Machine) Claim(at time.Time) (g *Grant, declined bool, err error) {
	m.port.mu.Lock()
	defer m.port.mu.Unlock()
	g, declined, err = m.claim(at)
	m.ahead.waits = g == nil
	return g, declined, err
}

// claim uses the ticket in hand if it is for this operation, and its planes are sound. The caller holds the lock.
func (m *Machine) claim(at time.Time) (g *Grant, declined bool, err error) {
	a := &m.ahead
	if a.state != inHand {
		return nil, false, nil
	}
	a.state = void
	if a.seq != a.forSeq || a.sig != a.forSig {
		return nil, true, nil
	}
	if g, err = m.read(at, a.body); err != nil {
		return nil, false, err
	}
	if !m.sound(g.Use) {
		return nil, true, nil
	}
	a.state = used
	return g, false, nil
}

// answered notes that the rank has its answer.
func (m *Machine) answered() {
	m.port.mu.Lock()
	m.ahead.waits = false
	m.port.mu.Unlock()
}

// sound reports whether planes are in service, and no further than the ticket says, or shared with the ticket's circuits.
// A ticket that lay here for a while may be of another time: a plane has failed since, or another controller has begun
// with later epochs. Then the leader decides again. A ticket with maps says where planes stand that others may have
// moved.
func (m *Machine) sound(use planeset.Set) bool {
	for j := range use.Each() {
		epoch, ports, err := m.view.State(j)
		want, moved := &m.grant.Planes[j], m.grant.Flags&ticket.Maps != 0
		later := int32(epoch-want.Epoch) > 0
		if err != nil || later && (!m.shares() || !m.holds(ports, want)) ||
			!moved && (m.now[j].Epoch != want.Epoch || m.now[j].Hash != want.Hash) {
			return false
		}
	}
	return true
}

// InHand reports whether the grant came ahead.
func (g *Grant) InHand() bool { return g.Flags&ticket.Ahead != 0 }

// Answer returns the message by which a rank tells its leader whether it uses a ticket ahead.
func Answer(seq uint64, used bool) control.Message {
	m := control.Message{Kind: control.MsgRecalled, Seq: seq}
	if used {
		m.Arg = 1
	}
	return m
}

// HandleAhead makes ranks take and give back tickets that go out ahead.
func HandleAhead(c *comm.Core) {
	c.Handle(control.MsgTicket, func(m *control.Message) {
		sig, ahead := ticket.IsAhead(m.Body)
		if p := Of(c); ahead && p != nil {
			wake, declined := p.Offer(m.Seq, sig, m.Body)
			if declined {
				p.tell(Answer(m.Seq, false))
			}
			if !wake {
				return
			}
		}
		c.ToCall(m)
	})
	c.Handle(control.MsgRecall, func(m *control.Message) {
		if p := Of(c); p != nil {
			p.tell(Answer(m.Seq, p.Recall(m.Seq)))
		}
	})
}

// tell sends a message to the leader. It does not block: at the leader, the goroutine that handles the message may be
// the one that sends it.
func (p *Planes) tell(m control.Message) {
	go func() { _ = p.c.Star.ToLeader(&m) }() // a leader that cannot be reached has ended the communicator
}

// decline tells the leader that this rank does not use a ticket, before it asks for something else.
func (p *Planes) decline(seq uint64) error {
	m := Answer(seq, false)
	return p.c.Star.ToLeader(&m)
}
