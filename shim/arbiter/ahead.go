package arbiter

import (
	"slices"
	"time"

	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/stall"
	"lightpath/shim/ticket"
)

// GapHold bounds how long planes stay granted for a predicted operation that does not come.
const GapHold = 10 * time.Second

// ahead is the state of a ticket that has gone out before all ranks asked. docs/design/iteration-run.md has the
// protocol.
type ahead struct {
	open      bool // ranks may use it, and the leader does not know which of them do
	recalling bool // all ranks have been asked
	ranks     []use
	left      bool      // a rank has left the communicator: no more tickets ahead
	elsewhere bool      // when the last operation ended, a rank's port expected another communicator's next
	split     time.Time // when some ranks had begun, and others had not
	conflicts int       // operations for which others have waited for long, since ranks began them at different times
	skip      int       // operations for which no ticket goes out ahead
}

// use is what the leader knows of one rank's use of the ticket ahead.
type use uint8

const (
	unknown use = iota
	unused      // the rank will not use it
	inUse       // the rank uses it, or has ended the operation
	gone        // the rank has left: it makes no calls
)

// issueAhead sends the ticket of the predicted operation. It reports whether there is one.
func (m *Machine) issueAhead() (bool, error) {
	all := m.cfg.Site.All()
	w, ok := m.predicted()
	switch {
	case !ok || m.held != all || m.ahead.elsewhere || m.wanted && m.patience() <= IdleHold || m.rounds.have > 0,
		m.outOfOrder(&w):
		return false, nil
	}
	for j := range all.Each() {
		if _, _, err := m.view.State(j); err != nil {
			return false, nil
		}
	}
	plan, flags, err := m.choose(w.shape, all)
	if err != nil || plan == nil {
		return false, err
	}
	m.work, m.iteration.ahead = w, w.seq
	m.prepare(plan)
	m.fill(plan.ID, all, flags)
	m.run()
	a := &m.ahead
	a.open, a.recalling, a.ranks = true, false, append(a.ranks[:0], make([]use, m.cfg.Ranks)...)
	m.act(Action{Kind: SendTicket, Rank: -1, Seq: w.seq, Body: ticket.EncodeAhead(&m.ticket, w.shape.Signature())})
	after := GapHold
	if m.wanted {
		after = m.patience()
	}
	m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: after})
	return true, nil
}

// outOfOrder reports whether a rank has already asked for something else than the predicted operation.
func (m *Machine) outOfOrder(next *work) bool {
	for seq, w := range m.wants {
		for r := range w.here {
			if w.here[r] && (seq != next.seq || w.shapes[r].Signature() != next.shape.Signature()) {
				return true
			}
		}
	}
	return false
}

// recall asks all ranks whether they use the ticket ahead.
func (m *Machine) recall() {
	if !m.ahead.open || m.ahead.recalling {
		return
	}
	m.ahead.recalling = true
	m.act(Action{Kind: StopTimer, Timer: IdleTimer})
	m.act(Action{Kind: SendRecall, Rank: -1, Seq: m.work.seq})
}

// onRecalled handles a rank's answer, also one without a question. Answers about past tickets come late.
func (m *Machine) onRecalled(e *Event) error {
	if !m.ahead.open || e.Seq != m.work.seq {
		return nil
	}
	how := unused
	if e.OK {
		how = inUse
	}
	return m.noteUse(e.Rank, how)
}

// onLeft handles the end of a rank. All its calls have ended, and it makes no more.
func (m *Machine) onLeft(e *Event) error {
	m.ahead.left = true
	if !m.ahead.open {
		return nil
	}
	return m.noteUse(e.Rank, gone)
}

// noteUse notes what a rank does with the ticket ahead. When the leader knows of all ranks, it goes on.
func (m *Machine) noteUse(rank int, how use) error {
	a := &m.ahead
	if a.ranks[rank] != inUse {
		a.ranks[rank] = how
	}
	if how == inUse && !a.recalling {
		return nil
	}
	m.recall()
	if slices.Contains(a.ranks, unknown) {
		return nil
	}
	a.open = false
	if slices.Contains(a.ranks, inUse) {
		return m.admitOthers()
	}
	m.iteration.misses++
	if m.ticket.Flags&ticket.Maps != 0 { // no rank has taken its maps
		m.tellMaps |= m.ticket.Use
	}
	return m.resume()
}

// admitOthers continues an operation that some ranks have begun with the ticket ahead. The others get the same ticket
// if they ask for the same call. They make no round with ranks that have begun.
func (m *Machine) admitOthers() error {
	m.ahead.split = m.clock
	r := &m.rounds
	before := RoundNumber(m.work.seq, 0)
	if r.open < before {
		m.closeRound()
	}
	r.closed = max(r.closed, before)
	w := m.wants[m.work.seq]
	if w == nil {
		return nil
	}
	for rank := range w.here {
		if w.here[rank] && m.ahead.ranks[rank] == unused {
			if err := m.join(rank, &w.shapes[rank]); err != nil {
				return err
			}
		}
	}
	return nil
}

// join lets a rank join an operation that is under way.
func (m *Machine) join(rank int, s *calls.Shape) error {
	if s.Signature() != m.work.shape.Signature() {
		first := slices.Index(m.ahead.ranks, inUse)
		x, y := m.work.shape.String(), s.String()
		if rank < first {
			first, rank, x, y = rank, first, y, x
		}
		return stall.Mismatch(m.work.seq, first, x, rank, y)
	}
	if a := &m.ahead; m.wanted && m.nextUser() != circuits.Alone && m.clock.Sub(a.split) > SharedWait/2 {
		a.conflicts++
		a.skip = 1 << min(a.conflicts, 10)
		a.split = m.clock
	}
	m.send(rank, m.work.seq, &m.ticket, nil)
	return nil
}

// resume goes on after work ahead that no rank has begun.
func (m *Machine) resume() error {
	m.stage, m.work = idle, work{}
	for seq, w := range m.wants {
		if w.have == m.cfg.Ranks {
			delete(m.wants, seq)
			return m.begin(work{seq: seq, shape: w.shapes[0]})
		}
	}
	if m.rounds.have == m.cfg.Ranks {
		if err := m.completeRound(); err != nil || m.stage != idle {
			return err
		}
	}
	if m.wanted {
		return m.releaseIdle()
	}
	m.linger()
	return nil
}

// choose returns the plan of a predicted collective on some planes and the flags of its ticket, nil if it has to ask.
func (m *Machine) choose(s calls.Shape, use planeset.Set) (*planning.Agreed, uint8, error) {
	switch {
	case s.Scripted: // it has its plan on streams
		return m.cfg.Scripted(planning.ShapeOf(s)), 0, nil
	case s.Request != (calls.Shape{}).Request:
		return nil, 0, nil
	}
	row, err := m.book.Row(s, use, m.initial(use))
	if err != nil || row.Packets || row.Hopeless {
		return nil, 0, err
	}
	plan, flags := m.best(&row, s, use)
	return plan, flags, nil
}

// Predictions returns how many tickets that went out ahead were used, and how many were not.
func (m *Machine) Predictions() (hits, misses uint64) { return m.iteration.hits, m.iteration.misses }
