package controller

import (
	"fmt"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// proposal is a move of a plane.
type proposal struct {
	holders []uint64 // for which it is; none: for an operator
	to      circuit.Permutation
	epochs  []uint32 // of the ports, after the move; nil: the plane's next one for all
	first   int64    // time of the first post; 0: there is none
}

// advance starts the next move of pl, for all holders that have agreed to one. The journal gets the intent of a move
// before that if posts are there of one holder alone, as is usual.
func (m *machine) advance(pl *plane, now int64) {
	undecided := m.grace != 0 && pl.maybe != nil
	if pl.move.on || pl.move.order != nil || pl.fault != nil || m.over != nil || undecided {
		return
	}
	m.refuseGone(pl)
	var n *proposal
	if pl.intent.holders != nil {
		n = m.propose(pl, pl.intent.holders)
	}
	if n == nil || !pl.intent.is(pl.epoch, n) {
		if n = m.propose(pl, nil); n == nil {
			m.intendEarly(pl, now)
			return
		}
		m.intend(pl, n, now)
	}
	if pl.intent.durable {
		m.begin(pl, n, now)
	}
}

// propose returns the next move of a plane for its holders that have agreed, or, if some are named, for all of these;
// nil: there is none.
func (m *machine) propose(pl *plane, named []uint64) *proposal {
	var ready []*leaseHolder
	for i := range m.lease.held[pl.index] {
		h := &m.lease.held[pl.index][i]
		if named != nil && !slices.Contains(named, h.holder) {
			continue
		}
		if m.agrees(pl, h) {
			ready = append(ready, h)
		}
	}
	if len(ready) == 0 || len(ready) < len(named) {
		return nil
	}
	return m.moveFor(pl, ready)
}

// agrees reports whether a holder has agreed to its next move: all its posts are there, or its grant waits for the
// move.
func (m *machine) agrees(pl *plane, h *leaseHolder) bool {
	if g := m.lease.makingOf(pl.index, h); g != nil {
		return m.needsMove(pl, g)
	}
	r := pl.round(h)
	if r == nil || pl.spoilt(h, r) {
		return false
	}
	missing, gone := m.awaited(pl, h, r)
	return missing < 0 && gone < 0
}

// spoilt reports whether a port has become bad since posts were made that change its circuits.
func (pl *plane) spoilt(h *leaseHolder, r *round) bool {
	return len(pl.bad) > 0 && pl.leaves(h.apply(pl.m, r.target)) != nil
}

// moveFor returns the move of a plane for some holders. It changes their circuits, and ends those between their ports
// and others. The epochs of their ports advance, and those of other ports that lose a circuit and have no lease. During
// the grace time a holder may still claim such a port.
func (m *machine) moveFor(pl *plane, holders []*leaseHolder) *proposal {
	n := &proposal{to: pl.m, epochs: slices.Clone(pl.epochs)}
	for _, h := range holders {
		n.holders = append(n.holders, h.holder)
		if g := m.lease.makingOf(pl.index, h); g != nil {
			if m.withCircuits(pl, g) != nil {
				n.to = g.places.Overlay(nil, n.to, g.circuitsOn(pl.index))
			}
			continue
		}
		r := pl.round(h)
		n.to = h.apply(n.to, r.target)
		if n.first == 0 || r.began < n.first {
			n.first = r.began
		}
	}
	for p := range n.to {
		if n.to[p] != pl.m[p] && m.grace == 0 && m.lease.of(pl.index, p) == nil {
			n.epochs[p]++
		}
	}
	for _, h := range holders {
		var newest uint32
		for _, p := range h.places.Ports() {
			newest = max(newest, pl.epochs[p])
		}
		for _, p := range h.places.Ports() {
			n.epochs[p] = newest + 1
		}
	}
	return n
}

// intendEarly passes a move to the journal that still lacks posts, if one holder alone waits for a move.
func (m *machine) intendEarly(pl *plane, now int64) {
	var alone *leaseHolder
	for h, r := range m.rounds(pl) {
		switch {
		case m.lease.makingOf(pl.index, h) != nil:
		case alone != nil || pl.spoilt(h, r):
			return
		default:
			alone = h
		}
	}
	i := &pl.intent
	if alone == nil || i.to != nil && i.epoch == pl.epoch && slices.Equal(i.holders, []uint64{alone.holder}) {
		return // it is there already
	}
	m.intend(pl, m.moveFor(pl, []*leaseHolder{alone}), now)
}

// intend passes the plane's next move to the journal. The plane moves when its intent is durable.
func (m *machine) intend(pl *plane, n *proposal, now int64) {
	if pl.intent.is(pl.epoch, n) {
		return
	}
	id := pl.intent.id + 1
	pl.intent = intent{proposal: *n, id: id, epoch: pl.epoch, durable: m.cfg.Journal == nil}
	if m.cfg.Journal != nil {
		pl.intent.due = now + int64(m.cfg.JournalTimeout)
		m.cfg.Journal.Intend(Intent{pl.index, pl.epoch, n.to, pl.brief(n.epochs)},
			m.written(func(err error, now int64) { m.intended(pl, id, err, now) }))
	}
}

// brief returns the epochs of ports after a move for the journal: nil if all are the plane's next one.
func (pl *plane) brief(epochs []uint32) []uint32 {
	if slices.ContainsFunc(epochs, func(e uint32) bool { return e != pl.epoch+1 }) {
		return epochs
	}
	return nil
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
		m.begin(pl, &proposal{to: o.target}, now)
		return
	}
	m.advance(pl, now)
}
