package arbiter

import (
	"time"

	"lightpath/shim/circuits"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// Communicators of one job use the planes by turns. What follows obtains planes before ranks ask, if the leader's port
// expects this communicator's operation next, and gives them back at once if it expects another one's.

// nextUser returns whose operation comes next at the leader's port.
func (m *Machine) nextUser() circuits.NextUser {
	if m.cfg.NextUser == nil {
		return circuits.Alone
	}
	return m.cfg.NextUser()
}

// predicted returns the operation that comes next, if there may be a ticket ahead for it.
func (m *Machine) predicted() (work, bool) {
	o, ok := m.iteration.next()
	w := work{seq: m.iteration.calls + o.after, shape: o.shape, ahead: true, gap: -1}
	return w, ok && !o.round && w.seq > m.iteration.ahead && !m.ahead.left && m.ahead.skip == 0
}

// onNext handles the news that an operation of this communicator comes next.
func (m *Machine) onNext() error {
	switch {
	case m.stage != idle:
		return nil
	case m.held != 0:
		return m.issueExpected()
	}
	m.askAhead()
	return nil
}

// askAhead requests planes for the predicted operation, before ranks ask.
func (m *Machine) askAhead() {
	if _, ok := m.predicted(); ok && m.stage == idle && m.held == 0 && m.nextUser() == circuits.Ours {
		m.requestPlanes()
	}
}

// issueExpected sends the ticket ahead of the predicted operation on held planes. Without one they linger.
func (m *Machine) issueExpected() error {
	if m.stage != idle {
		return nil
	}
	ahead, err := false, error(nil)
	if m.nextUser() == circuits.Ours {
		m.ahead.elsewhere = false
		ahead, err = m.issueAhead()
	}
	if !ahead {
		m.linger()
	}
	return err
}

// prepare moves planes to the maps with which a plan begins. The move of a plane counts as done: a ticket names the
// states after it, and planes are not given back before it.
func (m *Machine) prepare(p *planning.Agreed) {
	if p.Plan == nil {
		return
	}
	i := 0
	for j := range m.cfg.Site.All().Each() {
		to := p.Plan.Initial[i]
		if i++; m.standing[j].Maps.Equal(to) {
			continue
		}
		target := m.cfg.Site.Places.Expand(nil, to)
		m.act(Action{Kind: Prepare, Plane: j, Epoch: m.standing[j].Epoch, Target: target})
		m.standing[j] = ticket.At(m.standing[j].Epoch+1, to)
		m.tellMaps |= 1 << j
	}
}

// handsOver reports whether planes go back at once after an operation: another communicator comes next, or waits for
// them and the next operation does not follow at once. Then this machine asks for them again.
func (m *Machine) handsOver() bool {
	m.asksAgain = false
	if _, ok := m.iteration.next(); !ok {
		return false
	}
	switch m.nextUser() {
	case circuits.Theirs:
		return true
	case circuits.Ours:
		m.asksAgain = m.wanted && m.iteration.gap() > IdleHold
		return m.asksAgain
	}
	return false
}

// patience is how long planes wait for the predicted operation while another request waits for them.
func (m *Machine) patience() time.Duration {
	if m.nextUser() == circuits.Ours {
		return max(IdleHold, MaxHold-m.clock.Sub(m.since))
	}
	return IdleHold
}

// onContested handles the news that ranks may hold the planes that wait for one of this communicator's ranks. If the
// ticket that it declined is recalled, planes come soon.
func (m *Machine) onContested() {
	m.contested = true
	if m.stage == acquiring && !m.work.shape.Scripted {
		m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: MaxHold})
	}
}
