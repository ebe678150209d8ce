package controller

import (
	"errors"
	"fmt"
)

// answer is what an operator waits for until the journal has confirmed a change.
type answer struct {
	due  int64
	done func(error)
}

// confirm notes what happened, and calls done when the journal has it, or with ErrJournal when it does not
// answer in time.
func (m *machine) confirm(now int64, e Event, done func(error)) {
	m.nextAnswer++
	id := m.nextAnswer
	m.answers[id] = answer{now + int64(m.cfg.JournalTimeout), done}
	m.note(now, e, func(err error) { m.later(func(now int64) { m.confirmed(id, err, now) }) })
}

// confirmed is the journal's answer.
func (m *machine) confirmed(id uint64, err error, now int64) {
	if errors.Is(err, ErrNotLeader) {
		m.retire(err, now)
		return
	}
	a, waits := m.answers[id]
	if !waits {
		return // too late
	}
	delete(m.answers, id)
	if err != nil {
		err = notDurable("%w: %w", ErrJournal, err)
	}
	a.done(err)
}

// answerLate answers operators whose change the journal has not confirmed in time, and returns when the
// next one is due.
func (m *machine) answerLate(now int64) (next int64) {
	next = never
	for id, a := range m.answers {
		if a.due > now {
			next = min(next, a.due)
			continue
		}
		delete(m.answers, id)
		a.done(notDurable("%w in %v", ErrJournal, m.cfg.JournalTimeout))
	}
	return next
}

// notDurable is the answer to an operator whose change the journal does not have.
func notDurable(why string, args ...any) error {
	return fmt.Errorf("controller: the change is in force, and a restart may lose it: "+why, args...)
}

// recorded is the journal's answer to the event of an attachment, which may be granted planes from now on. After
// an error too: a history that cannot be written does not stop jobs.
func (m *machine) recorded(a *attachment, err error, now int64) {
	if errors.Is(err, ErrNotLeader) {
		m.retire(err, now)
		return
	}
	a.recorded = true
	m.grant(now)
}
