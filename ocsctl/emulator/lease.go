package emulator

import "slices"

// lease is the exclusive use of planes: granted atomically, in the order of asking.
// A request overtakes an earlier one only where they have no plane in common, so nobody
// starves and nobody waits while holding.
type lease struct {
	held  [64]leaseHolder // by plane
	queue []leaseRequest
}

// leaseHolder is who holds a plane; the session's end releases it.
type leaseHolder struct {
	session *session // nil: free
	holder  uint64
}

type leaseRequest struct {
	leaseHolder
	id, mask uint64
}

// grant takes every request out of the queue that can be granted now, in order.
func (l *lease) grant() []leaseRequest {
	var blocked uint64
	for p, h := range l.held {
		if h.session != nil {
			blocked |= 1 << p
		}
	}
	var granted []leaseRequest
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool {
		free := q.mask&blocked == 0
		blocked |= q.mask
		if !free {
			return false
		}
		for p := range l.held {
			if q.mask>>p&1 != 0 {
				l.held[p] = q.leaseHolder
			}
		}
		granted = append(granted, q)
		return true
	})
	return granted
}

// release frees those planes of mask that the holder has; it returns the rest of mask.
func (l *lease) release(mask uint64, who leaseHolder) (notHeld uint64) {
	for p := range l.held {
		if mask>>p&1 == 0 {
			continue
		}
		if l.held[p] != who {
			notHeld |= 1 << p
			continue
		}
		l.held[p] = leaseHolder{}
	}
	return notHeld
}

// drop frees everything a session holds or asks for.
func (l *lease) drop(s *session) {
	for p := range l.held {
		if l.held[p].session == s {
			l.held[p] = leaseHolder{}
		}
	}
	l.queue = slices.DeleteFunc(l.queue, func(q leaseRequest) bool { return q.session == s })
}
