package controller

import (
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// post is one port's agreement to move a plane.
func (m *machine) post(a *attachment, plane int, k roundKey, target circuit.Permutation, now int64) {
	if m.over != nil || !m.attached(a) {
		return
	}
	pl := m.planes[plane]
	if m.faultFor(pl, a.port) != nil {
		return // the port is told of the fault
	}
	pl.posts++
	late, err := pl.barrier.late(pl.epoch, a.port, k.epoch, target)
	if late && err == nil {
		return
	}
	if err == nil {
		err = m.mayMove(pl, a.port, k.holder, target)
	}
	if err != nil {
		m.refuse(pl, a, k.holder, err)
		return
	}
	switch err = pl.barrier.post(pl.epoch, a.port, k, target, now); {
	case err == nil:
		m.advance(pl, now)
	case errors.Is(err, ocsctl.ErrConflict):
		m.failf(pl, now, "%w", err)
	default:
		m.refuse(pl, a, k.holder, err)
	}
}

// refuse tells the port of a post why the post is void. While the plane is out of service, its fault tells that: a
// refusal stays, and the same holder may get the plane again later.
func (m *machine) refuse(pl *plane, a *attachment, holder uint64, why error) {
	pl.refused++
	if pl.fault != nil {
		return
	}
	a.sink.Refused(pl.index, holder, fmt.Errorf("port %d %s: %w", a.port, pl, why))
}

// round returns the posts for the plane's next move; nil: there are none. After a takeover, a plane does not move
// before its holder has claimed it.
func (m *machine) round(pl *plane) *round {
	h := m.lease.mover(pl.index)
	if h == nil {
		return nil
	}
	r := pl.barrier.rounds[roundKey{pl.epoch, h.holder}]
	if r != nil && pl.leaves(r.target) != nil {
		return nil // a port has become bad since
	}
	return r
}

// advance starts the next move of pl: to the circuits that grants wait for, or else to the target of the posts, if
// every port that the move waits for has posted.
func (m *machine) advance(pl *plane, now int64) {
	if pl.move.on || pl.fault != nil || m.over != nil {
		return
	}
	if to := m.requested(pl); to != nil {
		if m.intend(pl, to, now); pl.intent.durable {
			m.begin(pl, to, 0, now)
		}
		return
	}
	r := m.round(pl)
	if r == nil {
		return
	}
	m.intend(pl, r.target, now)
	switch missing, gone := m.awaited(pl, r); {
	case gone >= 0:
		_, all := m.absent(pl, r)
		m.failf(pl, now, "rank of port %s disconnected: %w", list(all), ocsctl.ErrPortLost)
	case missing < 0 && pl.intent.durable:
		m.begin(pl, r.target, now-r.began, now)
	}
}

// intend passes the plane's next move to the journal. The plane moves when its intent is durable.
func (m *machine) intend(pl *plane, target circuit.Permutation, now int64) {
	if pl.intent.is(pl.epoch, target) {
		return
	}
	id := pl.intent.id + 1
	pl.intent = intent{id: id, epoch: pl.epoch, to: target, durable: m.cfg.Journal == nil}
	if m.cfg.Journal != nil {
		pl.intent.due = now + int64(m.cfg.JournalTimeout)
		m.cfg.Journal.Intend(Intent{pl.index, pl.epoch, target},
			m.written(func(err error, now int64) { m.intended(pl, id, err, now) }))
	}
}

// intended takes the journal's answer to an intent.
func (m *machine) intended(pl *plane, id uint64, err error, now int64) {
	if pl.intent.id != id {
		return // a newer intent has replaced it
	}
	if err != nil {
		pl.intent = intent{id: id}
		if o := pl.move.order; o != nil {
			pl.move = move{}
			o.done(fmt.Errorf("controller: %s: journal: %w", pl, err))
		}
		m.failf(pl, now, "%w: %w: %w", errIntent, err, ocsctl.ErrReconfFailed)
		return
	}
	pl.intent.durable = true
	if o := pl.move.order; o != nil && !pl.move.on {
		m.begin(pl, o.target, 0, now)
		return
	}
	m.advance(pl, now)
}

// lacks reports whether the move to r's target needs the post of a port, and has not got it: the move changes the
// port's circuit, which lies inside the lease.
func (m *machine) lacks(pl *plane, r *round, port int) bool {
	h := m.lease.mover(pl.index)
	return !r.posted[port] && h.circuit(pl.m, port) != h.circuit(r.target, port)
}

// needs reports whether the move to r's target waits for the post of a port (missing), or has lost it with the port's
// rank (gone). A move does not wait for a port without a rank, since no data comes from it. During the grace time it
// does: the rank may not have found this controller yet.
func (m *machine) needs(pl *plane, r *round, port int) (missing, gone bool) {
	if !m.lacks(pl, r, port) {
		return false, false
	}
	gone = m.lost[port] != 0
	return !gone && (m.ports[port] != nil || m.grace != 0), gone
}

// awaited returns a port that the move to r's target waits for (missing), and a port whose rank has died (gone); -1:
// none.
func (m *machine) awaited(pl *plane, r *round) (missing, gone int) {
	missing, gone = -1, -1
	if len(m.lost) > 0 {
		r.from = 0
	}
	for p := r.from; p < len(r.target); p++ {
		switch waits, died := m.needs(pl, r, p); {
		case died:
			return missing, p
		case waits:
			if missing = p; len(m.lost) == 0 {
				r.from = p
				return missing, gone
			}
		}
	}
	return missing, gone
}

// absent returns all ports that awaited looks for.
func (m *machine) absent(pl *plane, r *round) (missing, gone []int) {
	for p := range r.target {
		switch waits, died := m.needs(pl, r, p); {
		case died:
			gone = append(gone, p)
		case waits:
			missing = append(missing, p)
		}
	}
	return missing, gone
}

// begin starts a move: it darkens the circuits that change, and starts the device. waited is the time since the first
// post.
func (m *machine) begin(pl *plane, target circuit.Permutation, waited, now int64) {
	by := pl.move.order // nil: ranks asked for the move
	moves, took := !same(pl.m, target), int64(0)
	if moves {
		took = int64(pl.Reconfig) + int64(pl.ReconfigPerPort)*int64(pl.m.Changes(target))
	}
	pl.desired = target
	pl.move = move{
		on: true, target: target, began: now, due: now + took, abandon: now + took + int64(m.cfg.SettleTimeout),
		waited: waited, order: by,
	}
	// For an operator, a Timed device acts even if the map stays the same: it makes circuits without light again.
	if !m.timed || moves || by != nil {
		err := m.leading()
		if err == nil {
			mv := Move{Epoch: pl.epoch, From: pl.m, To: target, Token: m.cfg.Token, Idle: by != nil,
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
		m.cfg.DataPath.Darken(pl.index, changing(pl.m, target), now)
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
	case !same(observed, mv.target):
		failed = fmt.Errorf("%d circuits are wrong, %s: %w", len(changing(observed, mv.target)),
			mismatch(observed, mv.target), ocsctl.ErrReconfFailed)
	case mv.enables():
		m.enabled(pl, observed, mv.order, now)
	default:
		if o := mv.order; o != nil && o.job == nil {
			m.verifiedPorts(pl, mv.target, o, found, now)
		}
		m.learnPorts(pl, found, now)
		m.settled(pl, verified, now)
	}
	if failed != nil {
		m.install(pl, observed, now)
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
		m.install(pl, mv.target, now) // the plane failed during the move
		m.publish(pl)
		m.grant(now)
		return
	}
	m.install(pl, mv.target, now)
	pl.barrier.done(pl.epoch, mv.target)
	pl.intent.to = nil
	if mv.order != nil {
		pl.barrier.reset()
		pl.fault = nil
	}
	pl.switches++
	m.advanceEpoch(pl, mv.began, now)
	m.publish(pl)
	m.event(now, Event{
		Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: from, To: pl.m, Port: -1,
		Took: time.Duration(now - mv.began), Waited: time.Duration(mv.waited), Verified: verified,
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
	m.install(pl, observed, now)
	m.failf(pl, now, "%w", why)
}
