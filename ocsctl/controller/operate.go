package controller

import (
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// order is an operator's move.
type order struct {
	target circuit.Permutation
	who    string
	done   func(error) // called once, from the core
}

// set moves a plane for an operator, from wherever its device is.
func (m *machine) set(plane int, o *order, now int64) {
	pl := m.planes[plane]
	if err := m.operable(pl); err != nil {
		o.done(err)
		return
	}
	observed, err := m.read(pl)
	if err != nil {
		o.done(fmt.Errorf("controller: plane %d: %w", plane, err))
		return
	}
	pl.barrier.reset()
	pl.timers, pl.unread = nil, nil
	m.install(pl, observed, now)
	pl.move.order = o // out of service from here on
	m.publish(pl)
	m.ready(pl, o.target) // that the plane is out of service is no reason not to move it
	if m.over == nil && pl.intent.durable {
		m.begin(pl, o.target, 0, o, now)
	}
}

// operable reports why an operator may not touch a plane now.
func (m *machine) operable(pl *plane) error {
	where := fmt.Sprintf("controller: plane %d", pl.index)
	switch h := m.lease.held[pl.index]; {
	case m.over != nil:
		return m.over
	case m.grace != 0:
		return fmt.Errorf("%s: ranks may claim it after the takeover: %w", where, ErrHeld)
	case h.a != nil:
		return fmt.Errorf("%s: by holder %d of port %d: %w", where, h.holder, h.a.port, ErrHeld)
	case pl.move.on || pl.move.order != nil:
		return fmt.Errorf("%s: %w", where, ErrMoving)
	}
	return nil
}

// disable takes a plane out of service for new grants.
func (m *machine) disable(plane int, reason, who string, now int64) error {
	if m.over != nil {
		return m.over
	}
	pl := m.planes[plane]
	pl.off = fmt.Sprintf("disabled by %s: %s", who, reason)
	m.event(now, Event{Kind: Commanded, Plane: plane, Epoch: pl.epoch, Port: -1, Who: who, Err: pl.off})
	m.grant(now)
	return nil
}

// enable puts a plane back into service, if its device is where it should be. A plane that somebody
// still uses shows by itself whether it is.
func (m *machine) enable(plane int, who string, now int64) error {
	pl := m.planes[plane]
	if m.over != nil {
		return m.over
	}
	busy := m.operable(pl)
	if busy != nil && pl.fault != nil {
		return busy
	}
	var observed circuit.Permutation
	if busy == nil {
		var err error
		if observed, err = m.sound(pl); err != nil {
			return fmt.Errorf("controller: plane %d: %w", plane, err)
		}
	}
	m.event(now, Event{Kind: Commanded, Plane: plane, Epoch: pl.epoch, Port: -1, Who: who})
	pl.off = ""
	if pl.fault != nil {
		pl.unread = nil
		m.restore(pl, observed, now)
	}
	m.grant(now)
	return nil
}

// sound returns the map that a plane's device has, or why that or the device's health will not do.
func (m *machine) sound(pl *plane) (circuit.Permutation, error) {
	observed, err := m.read(pl)
	if err == nil && m.reporter != nil {
		_, err = m.reporter.Report(pl.index)
	}
	if err != nil {
		return nil, err
	}
	if wrong := changing(observed, pl.desired); len(wrong) > 0 {
		return nil, fmt.Errorf("drift of %d circuits: %s: %w", len(wrong), mismatch(observed, pl.desired, wrong[0]), ocsctl.ErrPlaneDown)
	}
	return observed, nil
}

// down returns the planes that are not granted.
func (m *machine) down() (mask uint64) {
	for j, pl := range m.planes {
		if pl.fault != nil || pl.off != "" || pl.move.order != nil {
			mask |= 1 << j
		}
	}
	return mask
}

// acquire queues a request for planes and grants what can be granted.
func (m *machine) acquire(a *attachment, id, mask, holder uint64, now int64) {
	if m.over != nil || !m.attached(a) {
		return
	}
	m.lease.queue = append(m.lease.queue, leaseRequest{leaseHolder{a, holder, now}, id, mask})
	m.grant(now)
}

// grant answers every request whose turn has come.
func (m *machine) grant(now int64) {
	if m.over != nil || m.grace != 0 || len(m.lease.queue) == 0 {
		return
	}
	for _, g := range m.lease.grants(m.down(), now) {
		if g.granted == 0 {
			g.a.sink.Granted(g.id, 0, m.noneLeft(g.mask))
			continue
		}
		g.a.sink.Granted(g.id, g.granted, nil)
		m.event(now, Event{Kind: Granted, Plane: -1, Port: g.a.port, Holder: g.holder, Mask: g.granted, Who: g.a.who, Waited: time.Duration(now - g.since)})
	}
}

// noneLeft says why no plane of mask is in service.
func (m *machine) noneLeft(mask uint64) error {
	for j, pl := range m.planes {
		if mask>>j&1 != 0 {
			return fmt.Errorf("no plane of %#x is in service, %s: %w", mask, pl.reason(), ocsctl.ErrPlaneDown)
		}
	}
	return ocsctl.ErrPlaneDown
}

// reason says why a plane is out of service; "" where it is not.
func (pl *plane) reason() string {
	switch {
	case pl.fault != nil:
		return pl.fault.Error()
	case pl.off != "":
		return fmt.Sprintf("plane %d epoch %d: %s", pl.index, pl.epoch, pl.off)
	case pl.move.order != nil:
		return fmt.Sprintf("plane %d epoch %d: being set by %s", pl.index, pl.epoch, pl.move.order.who)
	}
	return ""
}

// release frees planes and grants them to who waits.
func (m *machine) release(a *attachment, mask, holder uint64, now int64) error {
	if m.over != nil {
		return m.over
	}
	freed := m.lease.release(mask, a, holder)
	m.freed(a, freed, now)
	m.grant(now)
	if freed != mask {
		return fmt.Errorf("controller: release: planes %#x are not held by holder %d of port %d", mask&^freed, holder, a.port)
	}
	return nil
}

// freed notes that planes are free again: their scheduled moves are void.
func (m *machine) freed(a *attachment, mask uint64, now int64) {
	if mask == 0 {
		return
	}
	for j, pl := range m.planes {
		if mask>>j&1 != 0 {
			pl.timers = nil
		}
	}
	m.event(now, Event{Kind: Released, Plane: -1, Port: a.port, Mask: mask, Who: a.who})
}
