package controller

import (
	"errors"
	"fmt"
)

// answer is the pending answer to an operator's change; it waits for the journal.
type answer struct {
	due  int64 // when the journal times out
	done func(error)
}

// written returns the callback of a write to the journal. The core calls f with the journal's answer, unless its rule
// has ended or ends with this answer.
func (m *machine) written(f func(err error, now int64)) func(error) {
	return func(err error) {
		m.later(func(now int64) {
			switch {
			case m.over != nil:
			case errors.Is(err, ErrNotLeader):
				m.retire(err, now)
			default:
				f(err, now)
			}
		})
	}
}

// confirm records an event, and calls done with nil when it is durable, or with ErrJournal if the journal fails or
// does not answer in time.
func (m *machine) confirm(now int64, e Event, done func(error)) {
	m.nextAnswer++
	id := m.nextAnswer
	m.answers[id] = answer{now + int64(m.cfg.JournalTimeout), done}
	m.note(now, e, m.written(func(err error, _ int64) { m.confirmed(id, err) }))
}

// confirmed takes the journal's answer to the event of a change.
func (m *machine) confirmed(id uint64, err error) {
	a, waits := m.answers[id]
	if !waits {
		return // timed out
	}
	delete(m.answers, id)
	if err != nil {
		err = notDurable("%w: %w", ErrJournal, err)
	}
	a.done(err)
}

// answerLate answers the operators whose changes have timed out, and returns when the next one will.
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

// notDurable returns the error for a change that is in force but not in the journal.
func notDurable(why string, args ...any) error {
	return fmt.Errorf("controller: the change is in force, and a restart may lose it: "+why, args...)
}
