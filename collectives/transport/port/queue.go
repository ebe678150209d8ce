package port

import "lightpath/collectives/transport/internal/frames"

// queue holds the frames of one flow that were copied out of the receive ring, oldest first.
type queue struct {
	first, last *frames.Frame
}

func (q *queue) push(f *frames.Frame) {
	f.Next = nil
	if q.first == nil {
		q.first = f
	} else {
		q.last.Next = f
	}
	q.last = f
}

// pop removes and returns the oldest frame. The queue must not be empty.
func (q *queue) pop() *frames.Frame {
	f := q.first
	q.first = f.Next
	return f
}
