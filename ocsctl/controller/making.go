package controller

import (
	"slices"

	"lightpath/plans/circuit"
)

// Requests may name circuits. The controller makes them itself, in one move for all requests that have been admitted,
// and then answers. No post is needed: a rank of a holder has no data on the plane before the answer, and a move that
// the controller makes changes no circuit inside another lease.
//
// The ranks of a holder count epochs together from the grant on. So if their ports are at different epochs, or know
// another map at their epoch, a move comes first, too. It may change no circuit.

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

// made reports whether a grant waits for no move: all its planes have its circuits, as far as their owners allow, and
// its ports are at one epoch.
func (m *machine) made(g *grant) bool {
	for j, pl := range m.planes {
		moves := pl.move.on && slices.Contains(pl.move.holders, g.holder)
		if g.granted>>j&1 != 0 && (moves || m.needsMove(pl, g)) {
			return false
		}
	}
	return true
}

// needsMove reports whether a plane has to move before a grant is answered.
func (m *machine) needsMove(pl *plane, g *grant) bool {
	return !pl.aligned(&g.leaseHolder) || m.withCircuits(pl, g) != nil
}

// aligned reports whether the ports of a lease are at one epoch, and none of their circuits has changed since the epoch
// began at one of them. Otherwise readers at this epoch may know two maps.
func (pl *plane) aligned(h *leaseHolder) bool {
	at, began, changed := pl.epochAt(h), pl.epoch, uint32(0)
	for _, p := range h.places.Ports() {
		if pl.epochs[p] != at {
			return false
		}
		began, changed = min(began, pl.began[p]), max(changed, pl.changed[p])
	}
	return changed <= began
}

// withCircuits returns the plane's map with the circuits of a grant; nil: it has them, or they may not be made. Their
// owners may forbid it. Circuits of a rank that disconnected without a goodbye stay: it may still send.
func (m *machine) withCircuits(pl *plane, g *grant) circuit.Permutation {
	if g.circuits == nil {
		return nil
	}
	to := g.places.Overlay(nil, pl.m, g.circuitsOn(pl.index))
	switch {
	case to.Equal(pl.m), pl.permits(pl.jobOf(g.a.port), to) != nil:
		return nil
	case len(m.lost) > 0 && slices.ContainsFunc(changing(pl.m, to), func(port int) bool { return m.lost[port] != 0 }):
		return nil
	}
	return to
}

// makingOf returns the grant of a lease that waits for a move; nil: it waits for none.
func (l *lease) makingOf(plane int, h *leaseHolder) *grant {
	for i := range l.making {
		if g := &l.making[i]; g.granted>>plane&1 != 0 && g.is(h.a, h.holder) {
			return g
		}
	}
	return nil
}
