package controller

import (
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// post is one port's agreement to move a plane.
func (m *machine) post(a *attachment, plane int, epoch uint32, target circuit.Permutation, now int64) {
	if m.over != nil || !m.attached(a) {
		return
	}
	pl := m.planes[plane]
	if pl.fault != nil {
		return // the port knows, or is about to
	}
	pl.posts++
	if pl.pinned(target) != nil {
		pl.refused++
		a.sink.Refused(plane, pl.epoch, pl.epoch)
		return
	}
	if t := pl.timer(epoch); t != nil {
		if !t.target.Equal(target) {
			m.failf(pl, now, "port %d posted another map than is scheduled: %w", a.port, ocsctl.ErrConflict)
		}
		return
	}
	err := pl.barrier.post(pl.epoch, a.port, epoch, target, now)
	switch {
	case err == nil:
		m.advance(pl, now)
	case errors.Is(err, ocsctl.ErrConflict):
		m.failf(pl, now, "%w", err)
	default:
		pl.refused++
		a.sink.Refused(plane, epoch, pl.epoch)
	}
}

// advance starts the switch of pl if every port that it waits for has posted.
func (m *machine) advance(pl *plane, now int64) {
	if pl.move.on || pl.fault != nil || m.over != nil {
		return
	}
	r := pl.barrier.rounds[pl.epoch]
	if r == nil || pl.timer(pl.epoch) != nil || !m.ready(pl, r.target) {
		return
	}
	switch missing, gone := m.awaited(pl, r); {
	case gone >= 0:
		_, all := m.absent(pl, r)
		m.failf(pl, now, "rank of port %s disconnected: %w", list(all), ocsctl.ErrPortLost)
	case missing < 0 && pl.intent.durable:
		m.begin(pl, r.target, now-r.began, nil, now)
	}
}

// ready has the journal told of the plane's next move, and reports false where that ended this
// controller's rule or the plane's service.
func (m *machine) ready(pl *plane, target circuit.Permutation) bool {
	if pl.intent.is(pl.epoch, target) {
		return true
	}
	id := pl.intent.id + 1
	pl.intent = intent{id: id, epoch: pl.epoch, to: target, durable: m.cfg.Journal == nil}
	if m.cfg.Journal != nil {
		m.cfg.Journal.Intend(Intent{pl.index, pl.epoch, target}, func(err error) {
			m.later(func(now int64) { m.intended(pl, id, err, now) })
		})
	}
	return m.over == nil && pl.fault == nil
}

// intended is the journal's answer.
func (m *machine) intended(pl *plane, id uint64, err error, now int64) {
	if m.over != nil {
		return
	}
	if errors.Is(err, ErrNotLeader) {
		m.retire(err, now)
		return
	}
	if pl.intent.id != id {
		return // overtaken by another
	}
	if err != nil {
		pl.intent = intent{id: id}
		if o := pl.move.order; o != nil {
			pl.move = move{}
			o.done(fmt.Errorf("controller: plane %d: journal: %w", pl.index, err))
		}
		m.failf(pl, now, "the journal did not take the intent: %w: %w", err, ocsctl.ErrReconfFailed)
		return
	}
	pl.intent.durable = true
	if o := pl.move.order; o != nil && !pl.move.on {
		m.begin(pl, o.target, 0, o, now)
		return
	}
	m.advance(pl, now)
	m.runTimers(pl, now)
}

// awaited returns a port that the switch to r's target waits for, and one of those whose rank has
// vanished; -1: none. A port without a rank is not waited for, since nothing can be sent from it,
// unless that rank may have to find this controller first.
func (m *machine) awaited(pl *plane, r *round) (missing, gone int) {
	missing, gone = -1, -1
	if m.vanished > 0 {
		r.from = 0
	}
	for p := r.from; p < len(r.target); p++ {
		if pl.m[p] == r.target[p] || r.posted[p] {
			continue
		}
		switch {
		case m.lost[p] != 0:
			return missing, p
		case m.ports[p] != nil || m.grace != 0:
			if missing = p; m.vanished == 0 {
				r.from = p
				return missing, gone
			}
		}
	}
	return missing, gone
}

// absent lists what awaited finds.
func (m *machine) absent(pl *plane, r *round) (missing, gone []int) {
	for _, p := range changing(pl.m, r.target) {
		switch {
		case r.posted[p]:
		case m.lost[p] != 0:
			gone = append(gone, p)
		case m.ports[p] != nil || m.grace != 0:
			missing = append(missing, p)
		}
	}
	return missing, gone
}

// begin darkens the circuits that change and moves the device.
func (m *machine) begin(pl *plane, target circuit.Permutation, waited int64, by *order, now int64) {
	moves, took := !same(pl.m, target), int64(0)
	if moves {
		took = int64(pl.Reconfig) + int64(pl.ReconfigPerPort)*int64(pl.m.Changes(target))
	}
	pl.desired = target
	pl.move = move{
		on: true, target: target, began: now, due: now + took, abandon: now + took + int64(m.cfg.SettleTimeout),
		waited: waited, order: by,
	}
	// A Timed device may have more to do for an operator than the map shows: circuits without light
	// are made anew.
	if !m.timed || moves || by != nil {
		var err error
		if m.cfg.Leading != nil {
			err = m.cfg.Leading()
		}
		if err == nil {
			err = m.cfg.Device.Switch(pl.index, Move{pl.epoch, pl.m, target, m.cfg.Token})
		}
		if err != nil {
			pl.desired = pl.m // nothing has moved
			m.giveUp(pl, fmt.Errorf("%w: %w", err, ocsctl.ErrReconfFailed), now)
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

// giveUp ends a move that went wrong.
func (m *machine) giveUp(pl *plane, err error, now int64) {
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
		o.done(fmt.Errorf("controller: plane %d epoch %d: %w", pl.index, pl.epoch, err))
	}
	if pl.fault != nil { // before the move, or during it: what is new is where the plane is
		m.publish(pl)
		return
	}
	m.failf(pl, now, "%w", err)
}

// arrive reads back where the device went, and opens the plane if that is the target.
func (m *machine) arrive(pl *plane, now int64) {
	mv := &pl.move
	observed, err := m.read(pl)
	if errors.Is(err, ErrMoving) && now < mv.abandon {
		if mv.due = mv.abandon; !m.timed {
			mv.due = now + min(max(int64(pl.Reconfig)/16, int64(50*time.Microsecond)), int64(10*time.Millisecond))
		}
		return
	}
	verified, unwell := "", error(nil)
	if m.reporter != nil {
		verified, unwell = m.reporter.Report(pl.index)
	}
	switch {
	case errors.Is(err, ErrMoving):
		m.install(pl, circuit.AllDark(m.cfg.Ports), now)
		m.giveUp(pl, fmt.Errorf("not settled after %v: %w", time.Duration(now-mv.began), ocsctl.ErrReconfFailed), now)
	case err != nil:
		m.install(pl, circuit.AllDark(m.cfg.Ports), now)
		m.giveUp(pl, fmt.Errorf("%w: %w", err, ocsctl.ErrUnknownMap), now)
	case unwell != nil:
		m.install(pl, observed, now)
		m.giveUp(pl, fmt.Errorf("%w: %w", unwell, ocsctl.ErrReconfFailed), now)
	case !same(observed, mv.target):
		wrong := changing(observed, mv.target)
		text := mismatch(observed, mv.target, wrong[0])
		m.install(pl, observed, now)
		m.giveUp(pl, fmt.Errorf("%d circuits are wrong, %s: %w", len(wrong), text, ocsctl.ErrReconfFailed), now)
	default:
		m.settled(pl, verified, now)
	}
}

func mismatch(observed, want circuit.Permutation, port int) string {
	return fmt.Sprintf("port %d leads to %s, want %s", port, portName(observed[port]), portName(want[port]))
}

// settled opens a plane at the target of its move.
func (m *machine) settled(pl *plane, verified string, now int64) {
	from, mv := pl.m, pl.move
	pl.move = move{}
	if mv.order == nil && pl.fault != nil {
		m.install(pl, mv.target, now) // failed meanwhile
		m.publish(pl)
		return
	}
	m.install(pl, mv.target, now)
	pl.barrier.done(pl.epoch, mv.target)
	pl.intent.to = nil
	if mv.order != nil {
		pl.barrier.reset()
		pl.fault, pl.off = nil, ""
	}
	pl.verified = verified
	pl.switches++
	m.advanceEpoch(pl, mv.began, now)
	m.publish(pl)
	m.event(now, Event{
		Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: from, To: pl.m, Port: -1,
		Took: time.Duration(now - mv.began), Waited: time.Duration(mv.waited), Verified: verified,
	})
	if mv.order != nil {
		m.event(now, Event{Kind: Commanded, Plane: pl.index, Epoch: pl.epoch, From: from, To: pl.m, Port: -1, Who: mv.order.who})
		mv.order.done(nil)
		m.grant(now)
	}
	m.advance(pl, now)
}

// news is what a Timed device calls: a plane has settled, or what is observed of it has changed.
func (m *machine) news(plane int, now int64) {
	if m.over != nil || plane < 0 || plane >= len(m.planes) {
		return
	}
	switch pl := m.planes[plane]; {
	case pl.unread != nil:
		m.takeOver(pl, now)
	case pl.move.on:
		m.arrive(pl, now)
	case pl.fault == nil:
		m.inspect(pl, now)
	}
}

// inspect takes a plane out of service that is not well, or not where it should be.
func (m *machine) inspect(pl *plane, now int64) {
	if m.reporter != nil {
		switch _, unwell := m.reporter.Report(pl.index); {
		case errors.Is(unwell, ErrNotLeader):
			m.retire(unwell, now)
			return
		case unwell != nil:
			m.failf(pl, now, "%w: %w", unwell, ocsctl.ErrPlaneDown)
			return
		}
	}
	observed, err := m.read(pl)
	switch {
	case errors.Is(err, ErrMoving):
	case err != nil:
		m.failf(pl, now, "%w: %w", err, ocsctl.ErrPlaneDown)
	case !observed.Equal(pl.m):
		wrong := changing(observed, pl.m)[0]
		was := pl.m
		m.install(pl, observed, now)
		m.failf(pl, now, "drift: %s: %w", mismatch(observed, was, wrong), ocsctl.ErrPlaneDown)
	}
}
