package controller

import (
	"errors"
	"fmt"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// order is an order of an operator to set, enable or remap a plane, or to set it for a job.
type order struct {
	target circuit.Permutation
	who    string
	enable bool   // Enable: the device only verifies the circuits
	off    string // Enable: why an operator disabled the plane during the verification
	// job is the job for which part, a map of its ranks, is set; target follows from both when the move begins.
	job     *Job
	part    circuit.Permutation
	durable bool        // the journal has the begin of the job
	done    func(error) // called once, from the core
	trial   *Trial      // of a change that is to be confirmed
	port    int         // to move to another port of the switch, if to is not ""
	to      string
}

// set moves a plane for an operator, from the map that its device has.
func (m *machine) set(plane int, o *order, now int64) {
	pl := m.planes[plane]
	observed, err := m.maySet(pl, o.target)
	if err != nil {
		o.done(fmt.Errorf("controller: %w", err))
		return
	}
	if o.job != nil {
		o.target = circuit.Place(o.job.Ports, m.cfg.Ports).Overlay(nil, observed, o.part)
	}
	if pl.fault == nil && !observed.Equal(pl.m) {
		m.drifted(pl, observed, now) // ranks must not know two maps of one epoch
	}
	pl.barrier.reset()
	pl.passUnread()
	m.install(pl, observed, nil, now)
	pl.move.order = o // out of service from here on
	m.publish(pl)
	n := &proposal{to: o.target}
	if m.intend(pl, n, now); pl.intent.durable {
		m.begin(pl, n, now)
	}
}

// maySet returns the map that the device of a plane has, or why an operator may not give the plane a map now. A nil
// target is that of a job, which changes only its own circuits.
func (m *machine) maySet(pl *plane, target circuit.Permutation) (observed circuit.Permutation, err error) {
	if err := m.operable(pl); err != nil {
		return nil, err
	}
	if observed, err = m.read(pl); err != nil {
		return nil, fmt.Errorf("%s: %w", pl, err)
	}
	if target != nil {
		err = pl.keeps(pl.wanted(), target, nil)
	}
	return observed, err
}

// wanted returns the map that the plane should have.
func (pl *plane) wanted() circuit.Permutation {
	if pl.desired != nil {
		return pl.desired
	}
	return pl.m
}

// operable returns why an operator may not change a plane now; nil: it is allowed.
func (m *machine) operable(pl *plane) error {
	switch held := m.lease.held[pl.index]; {
	case m.over != nil:
		return m.over
	case m.grace != 0:
		return fmt.Errorf("%s: ranks may claim it after the takeover: %w", pl, ErrHeld)
	case len(held) > 0:
		return fmt.Errorf("%s: by holder %s of port %d: %w", pl, ocsctl.HolderName(held[0].holder),
			held[0].a.port, ErrHeld)
	case pl.move.on || pl.move.order != nil:
		return fmt.Errorf("%s: %w", pl, ErrMoving)
	}
	return nil
}

// disable excludes a plane from new grants at once, and calls done when that is in the journal.
func (m *machine) disable(plane int, reason, who string, done func(error), now int64) {
	if m.over != nil {
		done(m.over)
		return
	}
	pl := m.planes[plane]
	pl.off = fmt.Sprintf("disabled by %s: %s", who, reason)
	if pl.move.enables() {
		pl.move.order.off = pl.off
	}
	m.confirm(now, m.commanded(pl, who), done)
	m.grant(now)
	m.tellHolders()
}

// enable puts a plane back into service if its device has the desired map and verifies all circuits. A plane in use
// is not verified: its communicator would notice a wrong circuit.
func (m *machine) enable(plane int, o *order, now int64) {
	pl := m.planes[plane]
	if m.over != nil {
		o.done(m.over)
		return
	}
	busy := m.operable(pl)
	if busy != nil && (pl.fault != nil || len(pl.bad) > 0 || errors.Is(busy, ErrMoving)) {
		o.done(fmt.Errorf("controller: %w", busy))
		return
	}
	if busy != nil {
		m.enabled(pl, nil, o, now)
		return
	}
	if pl.fault != nil && !m.mayRestore(pl, now) {
		o.done(fmt.Errorf("controller: %s: its failure is not in the journal yet: %w", pl, ErrJournal))
		return
	}
	verifier, verifies := m.cfg.Device.(Verifier)
	observed, err := m.sound(pl, !verifies)
	if err == nil && verifies {
		o.enable, o.target = true, observed
		if err = m.leading(); err == nil {
			err = verifier.Verify(plane, m.cfg.Token)
		}
	}
	switch {
	case err != nil:
		o.done(fmt.Errorf("controller: %s: %w", pl, err))
	case verifies:
		due := now + int64(m.cfg.SettleTimeout)
		pl.move = move{proposal: proposal{to: observed}, on: true, began: now, due: due, abandon: due, order: o}
	default:
		m.enabled(pl, observed, o, now)
	}
}

// enabled ends a successful enable. observed is nil if a communicator uses the plane.
func (m *machine) enabled(pl *plane, observed circuit.Permutation, o *order, now int64) {
	if pl.move.order == o { // otherwise the current move belongs to ranks, and continues
		pl.move = move{}
	}
	if o.off != "" {
		o.done(fmt.Errorf("controller: %s: meanwhile %s: %w", pl, o.off, ocsctl.ErrPlaneDown))
		return
	}
	pl.off = ""
	done := o.done
	if observed != nil {
		done = m.enabledPorts(pl, observed, o, now)
	}
	if pl.fault != nil {
		m.restore(pl, observed, now)
	}
	m.confirm(now, m.commanded(pl, o.who), done)
	m.grant(now)
	m.advance(pl, now)
}

// sound returns the map of a plane's device. It returns an error if that is not the desired map or, with health set,
// if the device reports a problem.
func (m *machine) sound(pl *plane, health bool) (circuit.Permutation, error) {
	observed, err := m.read(pl)
	if err == nil && health {
		_, _, err = m.report(pl)
	}
	if err != nil {
		return nil, err
	}
	if pl.desired == nil {
		return observed, nil // no map is desired yet: take the circuits as they are
	}
	if !observed.Equal(pl.desired) {
		return nil, driftOf(observed, pl.desired)
	}
	return observed, nil
}

// forJob reports whether circuits of the plane are being set for a job, or will be when it is free. Requests wait then.
func (pl *plane) forJob() bool {
	return pl.nextOrder() >= 0 || pl.move.order != nil && pl.move.order.job != nil
}

// reason returns why a plane is out of service; "": it is in service.
func (pl *plane) reason() string {
	switch {
	case pl.fault != nil && pl.off != "":
		return fmt.Sprintf("%v; also %s", pl.fault, pl.off)
	case pl.fault != nil:
		return pl.fault.Error()
	case pl.off != "":
		return pl.at() + ": " + pl.off
	case pl.move.enables():
		return pl.at() + ": being verified for " + pl.move.order.who
	case pl.move.order != nil:
		return pl.at() + ": being set by " + pl.move.order.who
	}
	return ""
}
