package controller

import (
	"fmt"
	"math/bits"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// lease is the exclusive use of planes: granted atomically, in the order of asking.
// A request overtakes an earlier one only where they have no plane in common, so nobody
// starves and nobody waits while holding.
type lease struct {
	held  [MaxPlanes]leaseHolder // by plane
	queue []leaseRequest
}

// leaseHolder is who holds a plane; the end of the attachment releases it.
type leaseHolder struct {
	a      *attachment // nil: free
	holder uint64
	since  int64
}

// leaseRequest is an Acquire that waits.
type leaseRequest struct {
	leaseHolder
	id, mask uint64
}

// grant is the answer to a request: the planes granted, 0 where none is in service.
type grant struct {
	leaseRequest
	granted uint64
}

// grants takes every request out of the queue that can be answered now, in order. Planes that
// are down are not waited for, and never granted. An attachment that the journal does not have yet is granted
// nothing.
func (l *lease) grants(down uint64, now int64) []grant {
	var blocked uint64
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
		l.give(want, leaseHolder{q.a, q.holder, now})
		answered = append(answered, grant{q, want})
		return true
	})
	return answered
}

func (l *lease) give(mask uint64, to leaseHolder) {
	for ; mask != 0; mask &= mask - 1 {
		l.held[bits.TrailingZeros64(mask)] = to
	}
}

// mayMove says who may ask for a move of a plane, in each state of its lease; it is asked for every post and
// every scheduled move. Nobody may where the plane is pinned.
//
//	state        post                                schedule
//	held         for the holder, by any port:        the port that was granted the plane
//	             the ranks of its communicator know
//	             its number
//	claimable    any: it is kept, and nothing moves  none
//	             before the holder claims the plane
//	free         none                                none
//
// Claimable are planes that no holder has, for the grace time after a takeover.
func (m *machine) mayMove(pl *plane, a *attachment, holder uint64, target circuit.Permutation, scheduled bool) error {
	switch h := m.lease.held[pl.index]; {
	case m.over != nil:
		return m.over
	case h.a == nil && m.grace != 0 && !scheduled: // the holder may come
	case h.a == nil && scheduled:
		return fmt.Errorf("nobody holds the plane: %w", ocsctl.ErrNotHolder)
	case h.a == nil:
		return fmt.Errorf("nobody holds the plane, which holder %s would move: %w", ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case h.holder != holder:
		return fmt.Errorf("holder %s of port %d has the plane, which holder %s would move: %w",
			ocsctl.HolderName(h.holder), h.a.port, ocsctl.HolderName(holder), ocsctl.ErrNotHolder)
	case scheduled && h.a != a:
		return fmt.Errorf("holder %s has the plane, by port %d: %w", ocsctl.HolderName(h.holder), h.a.port, ocsctl.ErrNotHolder)
	}
	return pl.pinned(target)
}

// refuseOthers refuses, on some planes, the posts that are not for the plane's holder: they came when it had
// another or, after a takeover, before its holder had claimed it.
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
					m.refuse(pl, a, k.holder, m.mayMove(pl, a, k.holder, target, false))
				}
			}
		}
	}
}

// release frees those planes of mask that the holder has.
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

// drop frees everything an attachment holds or asks for.
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
