package circuits

import (
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/ticket"
)

// Handle registers the handlers of the leader's messages: tickets, recalls of tickets, and moves of planes.
func Handle(c *comm.Core) {
	c.Handle(control.MsgTicket, func(m *control.Message) {
		sig, ahead := ticket.IsAhead(m.Body)
		if p := Of(c); ahead && p != nil {
			wake, declined := p.Machine.Offer(m.Seq, sig, m.Body)
			if declined {
				p.tell(AnswerRecall(m.Seq, false))
			}
			if !wake {
				return
			}
		}
		c.ToCall(m)
	})
	c.Handle(control.MsgRecall, func(m *control.Message) {
		if p := Of(c); p != nil {
			p.tell(AnswerRecall(m.Seq, p.Machine.Recall(m.Seq)))
		}
	})
	c.Handle(control.MsgPrepare, func(q *control.Message) {
		if p := Of(c); p != nil {
			if m, ok := p.Machine.ReadMove(q.Body); ok {
				// If the post fails, the plane has failed, and the leader sees that.
				_ = p.Controller.Post(m.Plane, m.Epoch, c.ID, m.Target)
			}
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
	m := AnswerRecall(seq, false)
	return p.c.Star.ToLeader(&m)
}
