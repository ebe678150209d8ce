package controller

import (
	"fmt"
	"math/bits"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// lease grants the use of planes. Leases of disjoint ports hold a plane together, and each moves its own circuits. A
// request gets all its planes at once, so no holder waits for more planes. Requests for a port are granted in their
// order, so every request is granted in the end.
type lease struct {
	held   [MaxPlanes][]leaseHolder // by plane
	queue  []leaseRequest
	making []grant // hold their planes already, and wait for a move; see makeCircuits
}

// leaseHolder is a holder of a plane. The lease ends with the attachment at the latest.
type leaseHolder struct {
	a      *attachment
	holder uint64
	places *circuit.Placement // of the holder's ranks
	since  int64
	told   bool // that a request waits for the plane, or that it has been disabled
}

// holder returns the holder that a lease has at an attachment.
func (c *Config) holder(a *attachment, l *ocsctl.Lease) leaseHolder {
	ports := l.Ports
	if len(ports) == 0 {
		ports = circuit.Shift(c.Ports, 0) // all
	}
	return leaseHolder{a: a, holder: l.Holder, places: circuit.Place(ports, c.Ports)}
}

// at reports whether the holder has a rank at a port.
func (h *leaseHolder) at(port int) bool { return h.places.Has(port) }

// circuit returns where a port's circuit in a map leads, [circuit.Dark] unless both ends are inside the lease. The
// holder has data on no other circuit, and no other holder has data on these.
func (h *leaseHolder) circuit(m circuit.Permutation, port int) int {
	if to := m[port]; to != circuit.Dark && h.at(port) && h.at(to) {
		return to
	}
	return circuit.Dark
}

// apply returns a map of the plane, at, with the holder's circuits of target.
func (h *leaseHolder) apply(at, target circuit.Permutation) circuit.Permutation {
	return h.places.Overlay(nil, at, h.places.Restrict(nil, target))
}

// beside reports whether a lease may hold a plane together with its present holders: they have no port in common.
func (h *leaseHolder) beside(holders []leaseHolder) bool {
	for i := range holders {
		if !h.places.Apart(holders[i].places) {
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
// gets no planes that are down for its holder, and does not wait for them. It waits for planes that move at its ports,
// because the move may be that of an earlier holder, and behind earlier requests that have a port in common with it. An
// attachment that is not in the journal yet gets none.
func (l *lease) grants(down, moving func(*leaseHolder) uint64, now int64) []grant {
	var answered []grant
	var waiting []leaseRequest
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool {
		want := q.mask &^ down(&q.leaseHolder)
		if want == 0 {
			answered = append(answered, grant{q, 0})
			return true
		}
		free := want&moving(&q.leaseHolder) == 0 && q.a.recorded && l.admits(&q.leaseHolder, want)
		for i := range waiting {
			free = free && (waiting[i].mask&want == 0 || q.beside([]leaseHolder{waiting[i].leaseHolder}))
		}
		if !free {
			q.mask = want
			waiting = append(waiting, q)
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

// find returns the lease that a holder has on a plane, nil if it has none.
func (l *lease) find(plane int, holder uint64) *leaseHolder {
	for i := range l.held[plane] {
		if h := &l.held[plane][i]; h.holder == holder {
			return h
		}
	}
	return nil
}

// of returns the lease of a plane that has a port, nil if none has.
func (l *lease) of(plane, port int) *leaseHolder {
	for i := range l.held[plane] {
		if h := &l.held[plane][i]; h.at(port) {
			return h
		}
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

// mayMove returns nil if a port may post a move of a plane for a holder. It depends on the lease that has the port:
//
//	lease      post
//	held       of the holder: the ranks of its communicator know its number
//	claimable  any; the plane does not move for it before its holder has claimed it
//	none       none
//
// A port is claimable if no lease has it during the grace time after a takeover. No port may move a pinned plane, and
// only the ports of a job its circuits.
func (m *machine) mayMove(pl *plane, port int, holder uint64, target circuit.Permutation) error {
	h := m.lease.of(pl.index, port)
	switch {
	case m.over != nil:
		return m.over
	case h == nil && m.grace != 0: // the holder may still claim it, and is checked then
		return nil
	case h == nil:
		return fmt.Errorf("no holder has the plane at this port, and holder %s would move it: %w",
			ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case m.lease.makingOf(pl.index, h) != nil:
		return fmt.Errorf("holder %s of port %d waits for its circuits, and holder %s would move the plane: %w",
			ocsctl.HolderName(h.holder), h.a.port, ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case h.holder != holder:
		return fmt.Errorf("holder %s of port %d has the plane, which holder %s would move: %w",
			ocsctl.HolderName(h.holder), h.a.port, ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case pl.PinnedBy == "" && len(pl.bad) == 0 && pl.owners == nil:
		return nil
	}
	return pl.permits(pl.jobOf(port), h.apply(pl.m, target))
}

// permits returns nil if ranks may move the plane to a map, else the reason; by is their job, or nil.
func (pl *plane) permits(by *Job, to circuit.Permutation) error {
	if err := pl.pinned(to); err != nil {
		return err
	}
	if err := pl.leaves(to); err != nil {
		return err
	}
	return pl.keeps(pl.m, to, by)
}

// refuseOthers refuses, on some planes, the posts by which a port may not move the plane any more: leases have ended,
// or began with a claim after a takeover.
func (m *machine) refuseOthers(planes uint64) {
	for j, pl := range m.planes {
		if planes>>j&1 == 0 {
			continue
		}
		for k, r := range pl.barrier.rounds {
			for port, has := range r.posted {
				if !has {
					continue
				}
				if err := m.mayMove(pl, port, k.holder, r.target); err != nil {
					r.posted[port], r.from = false, 0
					if a := m.ports[port]; a != nil {
						m.refuse(pl, a, k.holder, err)
					}
				}
			}
			if !slices.Contains(r.posted, true) {
				pl.barrier.drop(k)
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
