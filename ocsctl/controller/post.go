package controller

import (
	"errors"
	"fmt"
	"iter"
	"slices"

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
	late, err := pl.barrier.late(pl.epochs[a.port], a.port, k, target)
	if late && err == nil {
		return
	}
	if err == nil {
		err = m.mayMove(pl, a.port, k.holder, target)
	}
	if err == nil {
		err = pl.barrier.post(pl.epochs[a.port], a.port, k, target, now)
	}
	switch {
	case err == nil:
		m.advance(pl, now)
	case errors.Is(err, ocsctl.ErrConflict):
		m.refuseAll(pl, k.holder, err)
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

// refuseAll tells all ports of a holder that the plane cannot move for it any more. Other holders go on.
func (m *machine) refuseAll(pl *plane, holder uint64, why error) {
	h := m.lease.find(pl.index, holder)
	for port, a := range m.ports {
		if a != nil && (h == nil || h.at(port)) {
			m.refuse(pl, a, holder, fmt.Errorf("epoch %d: %w", pl.epochs[port], why))
		}
	}
}

// round returns the posts for the next move of a holder, nil: there are none. After a takeover, a plane does not move
// for a holder that has not claimed it.
func (pl *plane) round(h *leaseHolder) *round {
	return pl.barrier.rounds[roundKey{pl.epochAt(h), h.holder}]
}

// rounds yields the holders of a plane that have posts for their next move, and these.
func (m *machine) rounds(pl *plane) iter.Seq2[*leaseHolder, *round] {
	return func(yield func(*leaseHolder, *round) bool) {
		for i := range m.lease.held[pl.index] {
			h := &m.lease.held[pl.index][i]
			if r := pl.round(h); r != nil && !yield(h, r) {
				return
			}
		}
	}
}

// epochAt returns the epoch of a lease's ports.
func (pl *plane) epochAt(h *leaseHolder) uint32 {
	return pl.epochs[h.places.Ports()[0]]
}

// lacks reports whether a holder's move to r's target needs the post of a port, and has not got it: the move changes
// the port's circuit, which lies inside the lease.
func (m *machine) lacks(pl *plane, h *leaseHolder, r *round, port int) bool {
	return !r.posted[port] && h.circuit(pl.m, port) != h.circuit(r.target, port)
}

// needs reports whether the move to r's target waits for the post of a port (missing), or has lost it with the port's
// rank (gone). A move does not wait for a port without a rank, since no data comes from it. During the grace time it
// does: the rank may not have found this controller yet.
func (m *machine) needs(pl *plane, h *leaseHolder, r *round, port int) (missing, gone bool) {
	if !m.lacks(pl, h, r, port) {
		return false, false
	}
	gone = m.lost[port] != 0
	return !gone && (m.ports[port] != nil || m.grace != 0), gone
}

// awaited returns a port that the move to r's target waits for (missing), and a port whose rank has died (gone); -1:
// none.
func (m *machine) awaited(pl *plane, h *leaseHolder, r *round) (missing, gone int) {
	missing, gone = -1, -1
	if len(m.lost) > 0 {
		r.from = 0
	}
	for p := r.from; p < len(r.target); p++ {
		switch waits, died := m.needs(pl, h, r, p); {
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
func (m *machine) absent(pl *plane, h *leaseHolder, r *round) (missing, gone []int) {
	for p := range r.target {
		switch waits, died := m.needs(pl, h, r, p); {
		case died:
			gone = append(gone, p)
		case waits:
			missing = append(missing, p)
		}
	}
	return missing, gone
}

// refuseGone refuses the posts of holders whose next move needs the post of a rank that has died, or has not come back
// after a takeover.
func (m *machine) refuseGone(pl *plane) {
	if len(m.lost) == 0 {
		return
	}
	for h, r := range m.rounds(pl) {
		if _, gone := m.absent(pl, h, r); len(gone) > 0 {
			pl.barrier.drop(roundKey{pl.epochAt(h), h.holder})
			m.refuseAll(pl, h.holder, fmt.Errorf("rank of port %s disconnected: %w", list(gone), ocsctl.ErrPortLost))
		}
	}
}

// pending returns the ports that have posted, the other ports that must post before these moves begin, and the map
// after all these moves. The map is nil if no port has posted.
func (m *machine) pending(pl *plane) (posted, missing []int, to circuit.Permutation) {
	for h, r := range m.rounds(pl) {
		for port, has := range r.posted {
			if has {
				posted = append(posted, port)
			}
		}
		waits, _ := m.absent(pl, h, r)
		missing = append(missing, waits...)
		if to == nil {
			to = pl.m
		}
		to = h.apply(to, r.target)
	}
	slices.Sort(posted)
	slices.Sort(missing)
	return posted, missing, to
}
