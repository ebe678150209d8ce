package arbiter

import (
	"crypto/sha256"
	"fmt"

	"lightpath/shim/control"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// rounds holds the groups of sends and receives that ranks post. docs/design/rounds.md has the protocol, and why no
// rank can hang in it.
type rounds struct {
	rows   []*ticket.Row // by rank, of the open round; nil: the rank has not posted
	have   int
	open   uint64 // number of the round, if have > 0
	closed uint64 // posts up to this number go to packet planes at once
	misses int    // consecutive rounds that timed out
	skip   int    // rounds for which the leader will not wait
}

// maxSkip bounds the number of rounds for which the leader does not wait after timeouts.
const maxSkip = 1024

// RoundNumber returns the number of a rank's post. It combines the number of collectives called with the number of
// groups posted since the last of them, counted from 1.
func RoundNumber(collectives uint64, posts uint32) uint64 { return collectives<<32 | uint64(posts) }

// onRow handles a rank's group.
func (m *Machine) onRow(e *Event) error {
	r := &m.rounds
	if r.rows[e.Rank] != nil {
		return fmt.Errorf("%w: rank %d posts round %d twice", control.ErrMessage, e.Rank, e.Seq)
	}
	if r.have > 0 && e.Seq > r.open {
		m.closeRound() // a rank has gone past the open round
	}
	if e.Seq <= r.closed || r.have > 0 && e.Seq < r.open {
		m.sendRowToPackets(e.Rank, e.Seq)
		return nil
	}
	if r.have == 0 {
		r.open = e.Seq
		m.act(Action{Kind: SetTimer, Timer: RoundTimer, After: m.cfg.RoundWait})
	}
	r.rows[e.Rank] = e.Row
	r.have++
	switch {
	case e.Row.Packet, len(m.wants) > 0: // a rank that waits for the ticket of a collective does not post
		m.closeRound()
	case r.have == len(r.rows):
		m.act(Action{Kind: StopTimer, Timer: RoundTimer})
		r.misses, r.skip = 0, 0
		if m.ahead.open { // resume goes on with it
			return nil
		}
		return m.completeRound()
	case r.have == 1 && r.skip > 0:
		r.skip--
		m.closeRound()
	}
	return nil
}

// roundExpired ends a round that has timed out.
func (m *Machine) roundExpired() {
	r := &m.rounds
	if r.have == 0 {
		return
	}
	r.misses++
	r.skip = min(1<<min(r.misses, 16), maxSkip) - 1
	m.act(Action{Kind: Inform, Text: fmt.Sprintf(
		"round %#x: packet planes, %d of %d ranks in %v; the next %d rounds are not waited for",
		r.open, r.have, len(r.rows), m.cfg.RoundWait, r.skip)})
	m.closeRound()
}

// closeRound sends all posts of the open round, if there is one, to packet planes.
func (m *Machine) closeRound() {
	r := &m.rounds
	if r.have == 0 {
		return
	}
	m.act(Action{Kind: StopTimer, Timer: RoundTimer})
	for rank, row := range r.rows {
		if row != nil {
			m.sendRowToPackets(rank, r.open)
		}
	}
	m.clearRound()
}

func (m *Machine) clearRound() {
	r := &m.rounds
	clear(r.rows)
	r.have, r.closed = 0, max(r.closed, r.open)
}

// sendRowToPackets sends a rank's group to packet planes.
func (m *Machine) sendRowToPackets(rank int, number uint64) {
	m.send(rank, number, &ticket.Ticket{Flags: ticket.Packet, Planes: m.standing}, nil)
}

// completeRound answers a round that all ranks have posted.
func (m *Machine) completeRound() error {
	pairs, closed, err := ticket.Match(m.rounds.rows)
	if err != nil {
		return err
	}
	demand := planning.NewDemand(pairs, len(m.rounds.rows))
	if !closed || !m.cfg.Site.Worthwhile(demand) {
		m.closeRound()
		return nil
	}
	return m.begin(work{seq: m.rounds.open, demand: demand})
}

// decideRound answers a round after its planes have been obtained.
func (m *Machine) decideRound() error {
	var holds []byte
	if m.held != 0 {
		plan, err := m.book.Demand(m.work.demand, ticket.MapsOf(m.standing, m.held))
		if err != nil {
			return fmt.Errorf("shim: round %#x: %w", m.work.seq, err)
		}
		if plan != nil {
			holds = ticket.EncodeHolds(m.cfg.Ranks, plan)
		}
	}
	// No plane is held, a pair has no circuit, or the plan is too large for a message.
	if holds == nil || len(holds) > int(control.MaxBody(control.MsgTicket))/2 {
		m.closeRound()
		m.finish()
		m.linger()
		return nil
	}
	m.clearRound()
	m.fill(sha256.Sum256(holds), m.held, 0)
	m.run()
	m.send(-1, m.work.seq, &m.ticket, holds)
	return nil
}
