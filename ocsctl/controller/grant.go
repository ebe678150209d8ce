package controller

import (
	"fmt"
	"slices"
	"time"

	"lightpath/ocsctl"
)

// acquire queues a request for planes, and grants it if they are free. Planes that the holder still has are free: its
// release was lost with a connection or a controller. Without that, the request would wait for its own holder.
func (m *machine) acquire(q leaseRequest, now int64) {
	if m.over != nil || !m.attached(q.a) {
		return
	}
	if m.lease.waiting(q.a) >= maxRequests {
		q.a.sink.Granted(q.id, 0, fmt.Errorf("controller: port %d: %d requests wait already", q.a.port, maxRequests))
		return
	}
	m.freed(q.a, m.lease.release(q.mask, q.a, q.holder), now)
	q.since = now
	m.lease.queue = append(m.lease.queue, q)
	m.grant(now)
}

// grant answers every request that can be answered now.
func (m *machine) grant(now int64) {
	m.obey(now)
	if m.over != nil || m.grace != 0 || len(m.lease.queue)+len(m.lease.making) == 0 {
		return
	}
	for _, g := range m.lease.grants(m.down, m.moving, now) {
		if g.granted != 0 && !m.made(&g) {
			m.lease.making = append(m.lease.making, g)
			continue
		}
		m.answer(&g, now)
	}
	m.makeCircuits(now)
	m.tellHolders()
}

// down returns the planes that are out of service for a holder, and so not granted.
func (m *machine) down(h *leaseHolder) (mask uint64) {
	for j, pl := range m.planes {
		if pl.fault != nil || pl.off != "" || pl.move.order != nil && !pl.forJob() || h.has(pl.out()) {
			mask |= 1 << j
		}
	}
	return mask
}

// moving returns the planes that move at ports of a holder, or move next for a job.
func (m *machine) moving(h *leaseHolder) (mask uint64) {
	for j, pl := range m.planes {
		if pl.movesAt(h) || pl.forJob() {
			mask |= 1 << j
		}
	}
	return mask
}

// movesAt reports whether the plane moves, and the move concerns a port of a holder.
func (pl *plane) movesAt(h *leaseHolder) bool {
	mv := &pl.move
	return mv.on && slices.ContainsFunc(h.places.Ports(), func(p int) bool {
		return mv.epochs == nil || mv.epochs[p] != pl.epochs[p] || mv.to[p] != pl.m[p]
	})
}

// answer answers a request.
func (m *machine) answer(g *grant, now int64) {
	if g.granted == 0 {
		g.a.sink.Granted(g.id, 0, m.noneLeft(g.mask))
		return
	}
	g.a.sink.Granted(g.id, g.granted, nil)
	m.event(now, Event{
		Kind: Granted, Plane: -1, Port: g.a.port, Holder: g.holder, Mask: g.granted, Who: g.a.who,
		Waited: time.Duration(now - g.since),
	})
}

// noneLeft returns the error for a request whose planes are all out of service.
func (m *machine) noneLeft(mask uint64) error {
	for j, pl := range m.planes {
		if mask>>j&1 != 0 {
			reason := pl.reason()
			if reason == "" {
				reason = pl.String() + ": " + pl.badText()
			}
			return fmt.Errorf("no plane of %s is in service, %s: %w", m.names(mask), reason, ocsctl.ErrPlaneDown)
		}
	}
	return ocsctl.ErrPlaneDown
}

// release frees planes and grants them to waiting requests.
func (m *machine) release(a *attachment, mask, holder uint64, now int64) error {
	if m.over != nil {
		return m.over
	}
	freed := m.lease.release(mask, a, holder)
	m.freed(a, freed, now)
	m.grant(now)
	if freed != mask {
		return fmt.Errorf("controller: release: planes %s are not held by holder %s of port %d",
			m.names(mask&^freed), ocsctl.HolderName(holder), a.port)
	}
	return nil
}

// freed records that planes are free again.
func (m *machine) freed(a *attachment, mask uint64, now int64) {
	if mask == 0 {
		return
	}
	m.refuseOthers(mask)
	m.freedBad(mask, now)
	m.event(now, Event{Kind: Released, Plane: -1, Port: a.port, Mask: mask, Who: a.who})
}

// tellHolders tells the holders of planes for which requests or orders wait, and of planes that operators have
// disabled, once per lease. A holder that does not use its planes gives them back then.
func (m *machine) tellHolders() {
	off := uint64(0)
	for j, pl := range m.planes {
		if pl.off != "" || pl.nextOrder() >= 0 {
			off |= 1 << j
		}
	}
	for h, mask := m.lease.wanted(off); h != nil; h, mask = m.lease.wanted(off) {
		h.a.sink.Wanted(h.holder, mask)
	}
}
