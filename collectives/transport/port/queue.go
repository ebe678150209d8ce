package port

import "lightpath/collectives/wire"

// frame is a frame that was copied out of the receive ring.
type frame struct {
	hdr  wire.Header
	data []byte // of buf
	buf  []byte
	next *frame
}

// queue holds the copied frames of one flow, oldest first.
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

// pop removes and returns the oldest frame. The queue must not be empty.
func (q *queue) pop() *frame {
	f := q.first
	q.first = f.next
	return f
}

// pool holds the free frames of one plane. It never shrinks, so the steady state does not allocate.
type pool struct {
	free  *frame
	made  int // frames allocated so far
	limit int
}

// get returns a frame with a buffer of payload bytes, or nil at the limit.
func (p *pool) get(payload int) *frame {
	if f := p.free; f != nil {
		p.free = f.next
		return f
	}
	if p.made == p.limit {
		return nil
	}
	p.made++
	return &frame{buf: make([]byte, payload)}
}

func (p *pool) put(f *frame) {
	f.data = nil
	f.next = p.free
	p.free = f
}
