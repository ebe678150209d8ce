package rdma

import (
	"fmt"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/wire"
)

// Where counts travel over the control network (package counts), a message says per plane how many
// frames of its receiver have been released and have arrived, and how many frames to its receiver have
// left the sender. Messages may get lost: whoever waits asks, at once where it wants to drain, else
// after a while. A goroutine per endpoint answers, since the rank that is asked may have left its call, and
// may not call again before the one that asks has returned.
const (
	atReleased = iota
	atArrived
	atLeft
	planeCounts
)

const (
	// askFirst is how long a rank waits before it asks, askMost the longest between two questions.
	askFirst, askMost = 2 * time.Millisecond, 64 * time.Millisecond
	// hearBurst bounds the messages that are read under one hold of the lock.
	hearBurst = 64
	// controlID marks the control socket among the events; planes have their numbers.
	controlID = -2
)

// flowCounts are what a rank knows of its flows to and from a peer by messages.
type flowCounts struct {
	left      uint64 // frames to the peer: their requests are complete
	confirmed uint64 // of them, those that the peer says have arrived
	asked     uint64 // frames sent when that was last asked for at once
	announced uint64 // frames from the peer that have left it
	waits     bool   // for the peer to say something
	unsent    doubt  // frames from the peer that have left it and are not here
	unseen    doubt  // frames to the peer that have left and are not there, as it says
}

// doubt is for how long a flow has stood still though there are frames on their way.
type doubt struct {
	arrived uint64
	since   time.Time // zero: there is no doubt
}

// lasts notes how many frames have arrived of how many that have left, and reports whether it has
// been too few, and no more, for so long.
func (d *doubt) lasts(arrived, left uint64, patience time.Duration, now time.Time) bool {
	switch {
	case arrived >= left:
		d.since = time.Time{}
	case d.since.IsZero() || d.arrived != arrived:
		d.arrived, d.since = arrived, now
	default:
		return now.Sub(d.since) > patience
	}
	return false
}

// tell sends a rank all counts that concern it. The caller holds e.mu.
// Hot path: no allocation, no logging.
func (e *Endpoint) tell(rank int, flags uint16) {
	for i, p := range e.planes {
		q := &p.peers[rank]
		q.told = q.next
		e.control.Put(planeCounts*i+atReleased, q.next)
		e.control.Put(planeCounts*i+atArrived, q.arrived)
		e.control.Put(planeCounts*i+atLeft, q.left)
	}
	e.control.Send(rank, flags)
}

// listen takes the messages that have come, and reports whether they have moved anything and
// whether there may be more of them. The caller holds e.mu.
// Hot path: no allocation, no logging.
func (e *Endpoint) listen() (moved, more bool) {
	for range hearBurst {
		src, flags, some := e.control.Receive()
		if !some {
			return moved, false
		}
		if src >= 0 {
			moved = e.hear(src, flags) || moved
		}
	}
	return moved, true
}

// learn takes over what a peer says of a plane, and reports whether anything moves by it. A count that
// cannot be is none.
// Hot path: no allocation, no logging.
func (q *peer) learn(released, arrived, left uint64) (moved bool) {
	if released > q.released && released <= q.sent {
		q.released, moved = released, true
	}
	if arrived > q.confirmed && arrived <= q.sent {
		q.confirmed, moved = arrived, true
	}
	q.announced = max(q.announced, left)
	return moved
}

// hear acts on the message that was received last.
func (e *Endpoint) hear(src int, flags uint16) (moved bool) {
	for i, p := range e.planes {
		q, at := &p.peers[src], planeCounts*i
		if q.learn(e.control.Count(at+atReleased), e.control.Count(at+atArrived), e.control.Count(at+atLeft)) {
			moved = true
		}
		if flags&counts.Closing != 0 && !q.gone {
			q.gone, moved = true, true
		}
		if some, _ := p.take(); some { // an error shows when the driver looks
			moved = true
		}
	}
	if flags&counts.Request != 0 {
		e.tell(src, 0)
	}
	if moved {
		e.askNext = askFirst
	}
	return e.doubtful(src, time.Now()) || moved
}

// doubtful fails the flows to and from a rank of which frames are lost, and reports whether there
// are any.
func (e *Endpoint) doubtful(rank int, now time.Time) (lost bool) {
	for _, p := range e.planes {
		q := &p.peers[rank]
		if !p.unacknowledged || q.err != nil {
			continue
		}
		switch {
		case q.unsent.lasts(q.arrived, q.announced, e.patience, now):
			p.fail(q, p.lost(q.hdr.Epoch, q.arrived, q.announced, q.rank, p.rank))
			lost = true
		case q.unseen.lasts(q.confirmed, q.left, e.patience, now) && !q.gone:
			p.fail(q, p.lost(q.epoch, q.confirmed, q.left, p.rank, q.rank))
			lost = true
		}
	}
	return lost
}

// lost says which frames of a flow are.
func (p *plane) lost(epoch uint32, from, to uint64, src, dst int) error {
	return fmt.Errorf("%w: rank %d, plane %d, epoch %d: frames %d to %d of rank %d have not arrived at rank %d",
		transport.ErrDark, p.rank, p.id, epoch, from, to-1, src, dst)
}

// gap is the loss that the number of a frame shows. Its header says in which epoch, if it is one.
func (p *plane) gap(q *peer, number uint64) error {
	var h wire.Header
	if wire.Decode(q.ring[int(number)&(p.slots-1)*p.slot:][:p.slot], &h) != nil {
		h.Epoch = q.hdr.Epoch
	}
	return p.lost(h.Epoch, q.arrived, number, q.rank, p.rank)
}

// unconfirmed reports whether frames to a peer may still be on the wire although they have left.
func (p *plane) unconfirmed(q *peer) bool { return p.unacknowledged && q.confirmed != q.sent }

// confirm sees to it that the peer says what has arrived. The caller holds e.mu.
func (e *Endpoint) confirm(q *peer) {
	if q.left == q.sent && q.asked != q.sent {
		q.asked = q.sent
		e.tell(q.rank, counts.Request)
	}
	q.waits = true
	e.look()
	e.keep(time.Now()) // some poll and never wait
}

// look takes the messages that have come, for the driving goroutine.
// Hot path: no allocation, no logging.
func (e *Endpoint) look() {
	if moved, _ := e.listen(); moved {
		e.poll.SetReady()
	}
}

// nap is how long to sleep before it may be time to ask.
func (e *Endpoint) nap(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return min(d, e.askNext)
}

// upkeep is keep for who does not hold e.mu.
func (e *Endpoint) upkeep(now time.Time) (lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.keep(now)
}

// keep asks those that are waited for, when it is time, and looks for what is lost and what has befallen
// devices. The caller holds e.mu.
func (e *Endpoint) keep(now time.Time) (lost bool) {
	switch {
	case e.poll.Closed():
		return false
	case e.askAt.IsZero():
		e.askAt = now.Add(e.askNext)
		return false
	case now.Before(e.askAt):
		return false
	}
	e.askNext = min(2*e.askNext, askMost)
	e.askAt = now.Add(e.askNext)
	for i := range e.devices {
		e.events(i)
	}
	for rank := range e.planes[0].peers {
		lost = e.doubtful(rank, now) || lost
		asks := false
		for _, p := range e.planes {
			q := &p.peers[rank]
			asks = asks || q.waits && !q.gone && q.err == nil
			q.waits = false
		}
		if asks {
			e.tell(rank, counts.Request)
		}
	}
	return lost
}

// attend answers until the endpoint is closed.
func (e *Endpoint) attend() {
	defer close(e.attended)
	// An error is the end of the file, or there is nobody to tell: peers that get no answer wait.
	_ = e.attention.Read(func(uintptr) (done bool) {
		for more := true; more; {
			e.mu.Lock()
			if e.poll.Closed() {
				e.mu.Unlock()
				return true
			}
			var moved bool
			moved, more = e.listen()
			e.mu.Unlock()
			if moved {
				e.poll.Wake()
			}
		}
		return false
	})
}
