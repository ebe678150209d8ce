package controller

import (
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// begin starts a move: it darkens the circuits that change, and starts the device.
func (m *machine) begin(pl *plane, n *proposal, now int64) {
	by := pl.move.order // nil: ranks asked for the move
	moves, took := !pl.m.Equal(n.to), int64(0)
	if moves {
		took = int64(pl.Reconfig) + int64(pl.ReconfigPerPort)*int64(pl.m.Changes(n.to))
	}
	pl.desired = n.to
	pl.move = move{proposal: *n, on: true, began: now, due: now + took,
		abandon: now + took + int64(m.cfg.SettleTimeout), order: by}
	// For an operator, a Timed device acts even if the map stays the same: it makes circuits without light again.
	if !m.timed || moves || by != nil {
		err := m.leading()
		if err == nil {
			mv := Move{Epoch: pl.epoch, From: pl.m, To: n.to, Token: m.cfg.Token, Idle: by != nil,
				Leading: m.cfg.Leading, Ports: pl.tableAfter(by)}
			err = m.cfg.Device.Switch(pl.index, mv)
		}
		if err != nil {
			pl.desired = pl.m // nothing has moved
			m.abort(pl, fmt.Errorf("%w: %w", err, ocsctl.ErrReconfFailed), now)
			return
		}
		if m.timed {
			pl.move.due = pl.move.abandon
		}
	}
	if m.cfg.DataPath != nil && moves {
		m.cfg.DataPath.Darken(pl.index, changing(pl.m, n.to), now)
	}
	if pl.move.due <= now {
		m.arrive(pl, now)
	}
}

// leading returns nil while this controller may use the device, else the reason.
func (m *machine) leading() error {
	if m.cfg.Leading == nil {
		return nil
	}
	return m.cfg.Leading()
}

// abort ends a failed move: the plane goes out of service, and the operator who ordered the move is told.
func (m *machine) abort(pl *plane, err error, now int64) {
	o := pl.move.order
	pl.move = move{}
	if errors.Is(err, ErrNotLeader) {
		if o != nil {
			o.done(err)
		}
		m.retire(err, now)
		return
	}
	if o != nil {
		o.done(fmt.Errorf("controller: %s: %w", pl.at(), err))
	}
	if pl.fault != nil { // the plane is out of service already: publish its new map
		if o != nil { // operators look for the reason why their last order failed
			pl.fault = fmt.Errorf("%s: %w", pl.at(), err)
			m.event(now, pl.failure())
		}
		m.publish(pl)
		m.grant(now)
		return
	}
	m.failf(pl, now, "%w", err)
}

// arrive reads the map back after a move, and puts the plane into service if that is the target.
func (m *machine) arrive(pl *plane, now int64) {
	mv := &pl.move
	observed, err := m.read(pl)
	if errors.Is(err, ErrMoving) && now < mv.abandon {
		if mv.due = mv.abandon; !m.timed {
			mv.due = now + min(max(int64(pl.Reconfig)/16, int64(50*time.Microsecond)), int64(10*time.Millisecond))
		}
		return
	}
	verified, found, unwell := m.report(pl)
	var failed error
	switch {
	case errors.Is(err, ErrMoving):
		observed = circuit.AllDark(m.cfg.Ports)
		failed = fmt.Errorf("not settled after %v: %w", time.Duration(now-mv.began), ocsctl.ErrReconfFailed)
	case err != nil:
		observed = circuit.AllDark(m.cfg.Ports)
		failed = fmt.Errorf("%w: %w", err, ocsctl.ErrUnknownMap)
	case unwell != nil && mv.enables():
		failed = fmt.Errorf("%w: %w", unwell, ocsctl.ErrPlaneDown)
	case unwell != nil:
		failed = fmt.Errorf("%w: %w", unwell, ocsctl.ErrReconfFailed)
	case !mv.enables() && len(found.touches(pl.m, observed, mv)) > 0:
		m.missed(pl, observed, found, now)
	case !observed.Equal(mv.to):
		failed = fmt.Errorf("%d circuits are wrong, %s: %w", len(changing(observed, mv.to)),
			mismatch(observed, mv.to), ocsctl.ErrReconfFailed)
	case mv.enables():
		m.enabled(pl, observed, mv.order, now)
	default:
		if o := mv.order; o != nil && o.job == nil {
			m.verifiedPorts(pl, mv.to, o, found, now)
		}
		m.learnPorts(pl, found, now)
		m.settled(pl, verified, now)
	}
	if failed != nil {
		m.install(pl, observed, nil, now)
		m.abort(pl, failed, now)
	}
}

// mismatch names the first port at which two maps differ.
func mismatch(observed, want circuit.Permutation) string {
	port := changing(observed, want)[0]
	return fmt.Sprintf("port %d leads to %s, want %s", port, portName(observed[port]), portName(want[port]))
}

// driftOf returns the error of a plane whose device has another map than it should have.
func driftOf(observed, want circuit.Permutation) error {
	return fmt.Errorf("%w of %d circuits: %s: %w", errDrift, len(changing(observed, want)), mismatch(observed, want),
		ocsctl.ErrPlaneDown)
}

// settled puts a plane into service at the target of its move.
func (m *machine) settled(pl *plane, verified string, now int64) {
	from, mv := pl.m, pl.move
	pl.move = move{}
	if mv.order == nil && pl.fault != nil {
		m.install(pl, mv.to, nil, now) // the plane failed during the move
		m.publish(pl)
		m.grant(now)
		return
	}
	known, waited := pl.brief(mv.epochs), int64(0)
	if mv.first != 0 {
		waited = mv.began - mv.first
	}
	for _, holder := range mv.holders {
		if h := m.lease.find(pl.index, holder); h != nil && m.lease.makingOf(pl.index, h) == nil {
			pl.barrier.done(roundKey{pl.epochAt(h), holder})
		}
	}
	m.install(pl, mv.to, mv.epochs, now)
	pl.intent.to = nil
	if mv.order != nil {
		pl.barrier.reset()
		pl.fault = nil
	}
	pl.switches++
	m.advanceEpoch(pl, mv.epochs, mv.began, now)
	for _, p := range changing(from, pl.m) {
		pl.changed[p] = pl.epoch
	}
	m.publish(pl)
	m.event(now, Event{
		Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: from, To: pl.m, Port: -1, Epochs: known,
		Took: time.Duration(now - mv.began), Waited: time.Duration(waited), Verified: verified,
	})
	if mv.order != nil {
		m.obeyed(pl, mv.order, from, now)
	}
	m.grant(now)
	m.advance(pl, now)
}

// obeyed records an order that set a plane, and answers it.
func (m *machine) obeyed(pl *plane, o *order, from circuit.Permutation, now int64) {
	if o.to != "" {
		moved := Moved{From: pl.Labels[o.port], To: o.to}
		pl.moved[o.port] = moved
		delete(pl.baselines, o.port) // the light takes another path
		delete(pl.dim, o.port)
		m.confirm(now, Event{Kind: Remapped, Plane: pl.index, Epoch: pl.epoch, Port: o.port, Who: o.who,
			Moved: &moved}, o.done)
		return
	}
	pl.trial = o.trial
	e := m.commanded(pl, o.who)
	e.From, e.To = from, pl.m
	m.confirm(now, e, o.done)
}

// news takes the call of a Timed device: a plane has settled, or its observed map or health has changed.
func (m *machine) news(plane int, now int64) {
	if m.over != nil || plane < 0 || plane >= len(m.planes) {
		return
	}
	pl := m.planes[plane]
	switch {
	case pl.unread != nil:
		m.takeOver(pl, now)
	case pl.move.on:
		m.arrive(pl, now)
	default:
		m.inspect(pl, now)
	}
	if m.over == nil && pl.fault == nil && !pl.move.on {
		m.measure(pl, now)
	}
}

// report returns the device's report on a plane; without a [Reporter], a good one. bad is a problem of some ports,
// unwell any other one.
func (m *machine) report(pl *plane) (verified string, bad *BadPorts, unwell error) {
	if m.reporter == nil {
		return "", nil, nil
	}
	verified, unwell = m.reporter.Report(pl.index)
	if b, ok := errors.AsType[*BadPorts](unwell); ok {
		return verified, b, nil
	}
	return verified, nil, unwell
}

// inspect takes a plane out of service if its device reports a problem, or another map than the one in force.
func (m *machine) inspect(pl *plane, now int64) {
	_, bad, unwell := m.report(pl)
	switch {
	case errors.Is(unwell, ErrNotLeader): // also if the plane is out of service: this controller cannot bring it back
		m.retire(unwell, now)
		return
	case pl.fault != nil:
		return
	case unwell != nil:
		m.failf(pl, now, "%w: %w", unwell, ocsctl.ErrPlaneDown)
		return
	}
	observed, err := m.read(pl)
	switch {
	case errors.Is(err, ErrMoving):
	case err != nil:
		m.failf(pl, now, "%w: %w", err, ocsctl.ErrPlaneDown)
	case !observed.Equal(pl.m):
		m.drifted(pl, observed, now)
	default:
		m.renew(pl, bad, now)
	}
}

// drifted takes a plane out of service whose device has another map than the one in force.
func (m *machine) drifted(pl *plane, observed circuit.Permutation, now int64) {
	why := driftOf(observed, pl.m)
	m.install(pl, observed, nil, now)
	m.failf(pl, now, "%w", why)
}
