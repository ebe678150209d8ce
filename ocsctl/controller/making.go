package controller

import (
	"slices"

	"lightpath/plans/circuit"
)

// Requests for shared planes may name circuits. The controller makes them itself, in one move for all requests that
// have been admitted, and then answers. No post is needed: a rank of a holder has no data on the plane before the
// answer, and a move that the controller makes changes no circuit inside another lease.

// makeCircuits begins the moves that admitted requests wait for, and answers the requests that wait for none. A plane
// that has gone out of service leaves its requests.
func (m *machine) makeCircuits(now int64) {
	if len(m.lease.making) == 0 {
		return
	}
	for _, pl := range m.planes {
		m.advance(pl, now)
	}
	var answered []grant
	var freed uint64
	for i := 0; i < len(m.lease.making); {
		g := &m.lease.making[i]
		if lost := g.granted & m.down(&g.leaseHolder); lost != 0 {
			g.granted &^= lost
			freed |= lost
			m.lease.take(lost, func(h *leaseHolder) bool { return h.is(g.a, g.holder) })
			m.showBad(lost)
		}
		if !m.made(g) {
			i++
			continue
		}
		answered = append(answered, *g)
		m.lease.making = append(m.lease.making[:i], m.lease.making[i+1:]...)
	}
	for i := range answered {
		m.answer(&answered[i], now)
	}
	if freed != 0 {
		m.grant(now) // the planes may be in service for requests behind these
	}
}

// made reports whether a grant has its circuits on all planes, as far as their owners allow.
func (m *machine) made(g *grant) bool {
	for j, pl := range m.planes {
		if g.granted>>j&1 != 0 && m.overlay(pl, pl.m, g) != nil {
			return false
		}
	}
	return true
}

// overlay returns a map of the plane with the circuits of a grant; nil: it has them, or they may not be made. Their
// owners may forbid it. Circuits of a rank that disconnected without a goodbye stay: it may still send.
func (m *machine) overlay(pl *plane, at circuit.Permutation, g *grant) circuit.Permutation {
	to := g.places.Overlay(nil, at, g.circuitsOn(pl.index))
	switch {
	case to.Equal(at), pl.pinned(to) != nil, pl.leaves(to) != nil, pl.keeps(pl.m, to, pl.jobOf(g.a.port)) != nil:
		return nil
	case len(m.lost) > 0 && slices.ContainsFunc(changing(at, to), func(port int) bool { return m.lost[port] != 0 }):
		return nil
	}
	return to
}

// requested returns the map of a plane with the circuits of all grants that wait for them; nil: it has them.
func (m *machine) requested(pl *plane) circuit.Permutation {
	to := pl.m
	for i := range m.lease.making {
		g := &m.lease.making[i]
		if g.granted>>pl.index&1 == 0 {
			continue
		}
		if next := m.overlay(pl, to, g); next != nil {
			to = next
		}
	}
	if same(to, pl.m) {
		return nil
	}
	return to
}
