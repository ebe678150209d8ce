package controller

import (
	"fmt"
	"math/bits"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// lease grants the exclusive use of planes. A request gets all its planes at once, so no holder waits for more planes.
// Requests that have a plane in common are granted in their order, so every request is granted in the end.
type lease struct {
	held  [MaxPlanes]leaseHolder // by plane
	queue []leaseRequest
}

// leaseHolder is the holder of a plane. The lease ends with the attachment at the latest.
type leaseHolder struct {
	a      *attachment // nil: free
	holder uint64
	inside []bool // by port: has a rank of the holder; nil: all ports have
	since  int64
	told   bool // that a request waits for the plane, or that it has been disabled
}

// inside returns the ports of a lease, by port; nil: all.
func (c *Config) inside(ports []int) ([]bool, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	inside := make([]bool, c.Ports)
	for _, p := range ports {
		if p < 0 || p >= c.Ports {
			return nil, fmt.Errorf("lease of port %d: there are ports 0..%d", p, c.Ports-1)
		}
		inside[p] = true
	}
	return inside, nil
}

// circuit returns where a port's circuit in a map leads, [circuit.Dark] unless both ends are inside the lease. The
// holder has data on no other circuit, and no other communicator has data on the plane.
func (h *leaseHolder) circuit(m circuit.Permutation, port int) int {
	if to := m[port]; h.inside == nil || to != circuit.Dark && h.inside[port] && h.inside[to] {
		return to
	}
	return circuit.Dark
}

// leaseRequest is a pending Acquire.
type leaseRequest struct {
	leaseHolder
	id, mask uint64
}

// grant is the answer to a request: the granted planes, or 0 if none is in service.
type grant struct {
	leaseRequest
	granted uint64
}

// grants removes from the queue the requests that can be answered now, and returns the answers in order. A request
// gets no planes that are down, and does not wait for them. It waits for planes that move: a holder counts epochs from
// its grant, and the move may be the holder's before. An attachment that is not in the journal yet gets none.
func (l *lease) grants(down, moving uint64, now int64) []grant {
	blocked := moving
	for p := range l.held {
		if l.held[p].a != nil {
			blocked |= 1 << p
		}
	}
	var answered []grant
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool {
		want := q.mask &^ down
		if want == 0 {
			answered = append(answered, grant{q, 0})
			return true
		}
		free := want&blocked == 0 && q.a.recorded
		blocked |= want
		if !free {
			return false
		}
		l.give(want, leaseHolder{a: q.a, holder: q.holder, inside: q.inside, since: now})
		answered = append(answered, grant{q, want})
		return true
	})
	return answered
}

// wanted returns the lease of a plane that a request waits for, or that is in off, unless its holder has been told. It
// notes that the holder is told; nil: there is no such lease.
func (l *lease) wanted(off uint64) (holder *leaseHolder, mask uint64) {
	for _, q := range l.queue {
		off |= q.mask
	}
	for p := range l.held {
		h := &l.held[p]
		if off>>p&1 == 0 || h.a == nil || h.told || holder != nil && (h.a != holder.a || h.holder != holder.holder) {
			continue
		}
		holder, mask = h, mask|1<<p
		h.told = true
	}
	return holder, mask
}

func (l *lease) give(mask uint64, to leaseHolder) {
	for ; mask != 0; mask &= mask - 1 {
		l.held[bits.TrailingZeros64(mask)] = to
	}
}

// mayMove returns nil if a port may post a move of a plane for a holder. It depends on the lease of the plane:
//
//	lease        post
//	held         any port that names the holder: the ranks of its communicator know it
//	claimable    any port; the plane does not move before its holder has claimed it
//	free         no port
//
// A plane is claimable if it has no holder during the grace time after a takeover. No port may move a pinned plane, and
// only the ports of a job its circuits.
func (m *machine) mayMove(pl *plane, port int, holder uint64, target circuit.Permutation) error {
	switch h := m.lease.held[pl.index]; {
	case m.over != nil:
		return m.over
	case h.a == nil && m.grace != 0: // the holder may still claim it
	case h.a == nil:
		return fmt.Errorf("the plane has no holder, and holder %s would move it: %w",
			ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case h.holder != holder:
		return fmt.Errorf("holder %s of port %d has the plane, which holder %s would move: %w",
			ocsctl.HolderName(h.holder), h.a.port, ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	}
	if err := pl.pinned(target); err != nil {
		return err
	}
	return pl.keeps(pl.m, target, pl.jobOf(port))
}

// refuseOthers refuses, on some planes, the posts that do not name the plane's holder. They came while the plane had
// another holder or, after a takeover, before its holder had claimed it.
func (m *machine) refuseOthers(planes uint64) {
	for j, pl := range m.planes {
		h := m.lease.held[j]
		if planes>>j&1 == 0 || h.a == nil && m.grace != 0 {
			continue
		}
		for k, r := range pl.barrier.rounds {
			if h.a != nil && h.holder == k.holder {
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
	for ; mask != 0; mask &= mask - 1 {
		p := bits.TrailingZeros64(mask)
		if h := &l.held[p]; h.a == a && h.holder == holder {
			*h = leaseHolder{}
			freed |= 1 << p
		}
	}
	return freed
}

// drop ends all leases and requests of an attachment, and returns the planes that it held.
func (l *lease) drop(a *attachment) (freed uint64) {
	for p := range l.held {
		if l.held[p].a == a {
			l.held[p] = leaseHolder{}
			freed |= 1 << p
		}
	}
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool { return q.a == a })
	return freed
}
