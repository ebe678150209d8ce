package controller

import (
	"math/bits"
	"slices"
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
// are down are not waited for, and never granted.
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
		free := want&blocked == 0
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
