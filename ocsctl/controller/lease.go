package controller

import (
	"fmt"
	"math/bits"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// lease grants the use of planes. A lease is exclusive, or shared: its holder posts no move. Several shared leases of
// disjoint ports hold a plane together. A request gets all its planes at once, so no holder waits for more planes.
// Requests that have a plane in common are granted in their order, so every request is granted in the end.
type lease struct {
	held   [MaxPlanes][]leaseHolder // by plane
	queue  []leaseRequest
	making []grant // hold their planes already, and wait for the circuits that they asked for
}

// leaseHolder is a holder of a plane. The lease ends with the attachment at the latest.
type leaseHolder struct {
	a      *attachment
	holder uint64
	places *circuit.Placement // of the holder's ranks; nil: at all ports
	shared bool
	since  int64
	told   bool // that a request waits for the plane, or that it has been disabled
}

// holder returns the holder that a lease has at an attachment.
func (c *Config) holder(a *attachment, l *ocsctl.Lease) leaseHolder {
	h := leaseHolder{a: a, holder: l.Holder, shared: l.Shared}
	if len(l.Ports) > 0 {
		h.places = circuit.Place(l.Ports, c.Ports)
	}
	return h
}

// at reports whether the holder has a rank at a port.
func (h *leaseHolder) at(port int) bool { return h.places == nil || h.places.Has(port) }

// circuit returns where a port's circuit in a map leads, [circuit.Dark] unless both ends are inside the lease. The
// holder has data on no other circuit, and no other communicator has data on the plane.
func (h *leaseHolder) circuit(m circuit.Permutation, port int) int {
	if to := m[port]; to != circuit.Dark && h.at(port) && h.at(to) {
		return to
	}
	return circuit.Dark
}

// beside reports whether a lease may hold a plane together with its present holders.
func (h *leaseHolder) beside(holders []leaseHolder) bool {
	for i := range holders {
		o := &holders[i]
		if !h.shared || !o.shared || h.places == nil || o.places == nil || !h.places.Apart(o.places) {
			return false
		}
	}
	return true
}

// is reports whether a lease is that of a holder at an attachment.
func (h *leaseHolder) is(a *attachment, holder uint64) bool { return h.a == a && h.holder == holder }

// leaseRequest is a pending Acquire.
type leaseRequest struct {
	leaseHolder
	id, mask uint64
	circuits []circuit.Permutation // by plane of mask: a map of the holder's ranks; nil: as they are
}

// maxRequests bounds the requests of one attachment that wait. A correct rank has one for each of its communicators.
const maxRequests = 64

// waiting returns how many requests of an attachment wait.
func (l *lease) waiting(a *attachment) (n int) {
	for i := range l.queue {
		if l.queue[i].a == a {
			n++
		}
	}
	return n
}

// circuitsOn returns the map of the holder's ranks that a request asks for on a plane of its mask.
func (q *leaseRequest) circuitsOn(plane int) circuit.Permutation {
	return q.circuits[bits.OnesCount64(q.mask&(1<<plane-1))]
}

// grant is the answer to a request: the granted planes, or 0 if none is in service.
type grant struct {
	leaseRequest
	granted uint64
}

// grants removes from the queue the requests that can be answered now, and returns the answers in order. A request
// gets no planes that are down for its holder, and does not wait for them. It waits for planes that move: a holder
// counts epochs from its grant, and the move may be the holder's before. An attachment that is not in the journal yet
// gets none.
func (l *lease) grants(down func(*leaseHolder) uint64, moving uint64, now int64) []grant {
	blocked := moving
	var answered []grant
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool {
		want := q.mask &^ down(&q.leaseHolder)
		if want == 0 {
			answered = append(answered, grant{q, 0})
			return true
		}
		free := want&blocked == 0 && q.a.recorded && l.admits(&q.leaseHolder, want)
		if !free {
			blocked |= want
			return false
		}
		h := q.leaseHolder
		h.since = now
		l.give(want, h)
		answered = append(answered, grant{q, want})
		return true
	})
	return answered
}

// admits reports whether a lease may hold planes together with their present holders.
func (l *lease) admits(h *leaseHolder, mask uint64) bool {
	for ; mask != 0; mask &= mask - 1 {
		if !h.beside(l.held[bits.TrailingZeros64(mask)]) {
			return false
		}
	}
	return true
}

// wanted returns a lease that keeps a request waiting, or has a plane of off, unless its holder has been told. It notes
// that the holder is told; nil: there is no such lease.
func (l *lease) wanted(off uint64) (holder *leaseHolder, mask uint64) {
	for p := range l.held {
		for i := range l.held[p] {
			h := &l.held[p][i]
			if h.told || holder != nil && !h.is(holder.a, holder.holder) || off>>p&1 == 0 && !l.inTheWay(p, i) {
				continue
			}
			holder, mask = h, mask|1<<p
			h.told = true
		}
	}
	return holder, mask
}

// inTheWay reports whether a request waits for holder i of a plane.
func (l *lease) inTheWay(plane, i int) bool {
	return slices.ContainsFunc(l.queue, func(q leaseRequest) bool {
		return q.mask>>plane&1 != 0 && !q.beside(l.held[plane][i:i+1])
	})
}

func (l *lease) give(mask uint64, to leaseHolder) {
	for ; mask != 0; mask &= mask - 1 {
		p := bits.TrailingZeros64(mask)
		l.held[p] = append(l.held[p], to)
	}
}

// mover returns the lease whose holder may move a plane, nil if there is none.
func (l *lease) mover(plane int) *leaseHolder {
	if held := l.held[plane]; len(held) > 0 && !held[0].shared {
		return &held[0]
	}
	return nil
}

// take ends the leases of planes that match, and returns the planes.
func (l *lease) take(mask uint64, matches func(*leaseHolder) bool) (freed uint64) {
	for ; mask != 0; mask &= mask - 1 {
		p := bits.TrailingZeros64(mask)
		before := len(l.held[p])
		l.held[p] = slices.DeleteFunc(l.held[p], func(h leaseHolder) bool { return matches(&h) })
		if len(l.held[p]) < before {
			freed |= 1 << p
		}
	}
	return freed
}

// mayMove returns nil if a port may post a move of a plane for a holder. It depends on the lease of the plane:
//
//	lease        post
//	held         any port that names the holder: the ranks of its communicator know it
//	held, shared no port
//	claimable    any port; the plane does not move before its holder has claimed it
//	free         no port
//
// A plane is claimable if it has no holder during the grace time after a takeover. No port may move a pinned plane, and
// only the ports of a job its circuits.
func (m *machine) mayMove(pl *plane, port int, holder uint64, target circuit.Permutation) error {
	held, h := m.lease.held[pl.index], m.lease.mover(pl.index)
	switch {
	case m.over != nil:
		return m.over
	case len(held) == 0 && m.grace != 0: // the holder may still claim it
	case len(held) == 0:
		return fmt.Errorf("the plane has no holder, and holder %s would move it: %w",
			ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case h == nil:
		return fmt.Errorf("holder %s of port %d shares the plane, and holder %s would move it: %w",
			ocsctl.HolderName(held[0].holder), held[0].a.port, ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case h.holder != holder:
		return fmt.Errorf("holder %s of port %d has the plane, which holder %s would move: %w",
			ocsctl.HolderName(h.holder), h.a.port, ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	}
	if err := pl.pinned(target); err != nil {
		return err
	}
	if err := pl.leaves(target); err != nil {
		return err
	}
	return pl.keeps(pl.m, target, pl.jobOf(port))
}

// refuseOthers refuses, on some planes, the posts that do not name the plane's holder. They came while the plane had
// another holder or, after a takeover, before its holder had claimed it.
func (m *machine) refuseOthers(planes uint64) {
	for j, pl := range m.planes {
		if planes>>j&1 == 0 || len(m.lease.held[j]) == 0 && m.grace != 0 {
			continue
		}
		h := m.lease.mover(j)
		for k, r := range pl.barrier.rounds {
			if h != nil && h.holder == k.holder {
				continue
			}
			posted, target := slices.Clone(r.posted), r.target
			pl.barrier.drop(k)
			for port, has := range posted {
				if a := m.ports[port]; has && a != nil {
					m.refuse(pl, a, k.holder, m.mayMove(pl, port, k.holder, target))
				}
			}
		}
	}
}

// release frees the planes of mask that the holder has, and returns them.
func (l *lease) release(mask uint64, a *attachment, holder uint64) (freed uint64) {
	return l.end(mask, func(h *leaseHolder) bool { return h.is(a, holder) })
}

// drop ends all leases and requests of an attachment, and returns the planes that it held.
func (l *lease) drop(a *attachment) (freed uint64) {
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool { return q.a == a })
	return l.end(1<<len(l.held)-1, func(h *leaseHolder) bool { return h.a == a })
}

// end ends the leases of planes that match. It returns the planes, and forgets grants that wait for circuits.
func (l *lease) end(mask uint64, matches func(*leaseHolder) bool) (freed uint64) {
	l.making = slices.DeleteFunc(l.making, func(g grant) bool { return matches(&g.leaseHolder) })
	return l.take(mask, matches)
}
