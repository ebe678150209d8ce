package port

import "lightpath/collectives/wire"

// frame is a copy of a frame that has left the receive ring before anybody asked for it.
type frame struct {
	hdr  wire.Header
	data []byte // of buf
	buf  []byte
	next *frame
}

// queue is the frames of one flow that were set aside, oldest first.
type queue struct {
	first, last *frame
}

func (q *queue) push(f *frame) {
	f.next = nil
	if q.first == nil {
		q.first = f
	} else {
		q.last.next = f
	}
	q.last = f
}

// pop takes the oldest frame; there is one.
func (q *queue) pop() *frame {
	f := q.first
	q.first = f.next
	return f
}

// stash is the frames of one plane's queues and those free for them. It grows to what was
// once needed and keeps that, so the steady state does not allocate.
type stash struct {
	free  *frame
	made  int
	limit int
}

// get returns a frame that holds payload bytes, nil at the limit.
func (s *stash) get(payload int) *frame {
	if f := s.free; f != nil {
		s.free = f.next
		return f
	}
	if s.made == s.limit {
		return nil
	}
	s.made++
	return &frame{buf: make([]byte, payload)}
}

func (s *stash) put(f *frame) {
	f.data = nil
	f.next = s.free
	s.free = f
}
