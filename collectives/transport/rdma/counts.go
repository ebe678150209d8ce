package rdma

import (
	"fmt"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/wire"
)

// With out-of-band counts (package counts), a message carries three counts per plane. Two count the receiver's frames:
// the sender of the message has released them, or they have arrived there. The third counts the frames that the sender
// has sent to the receiver. The network may lose messages. So a waiting rank requests counts: at once if it drains,
// otherwise after some time. A goroutine per endpoint answers requests, because the rank itself may have returned from
// its call and may not call again before the requesting rank has returned.
const (
	atReleased = iota
	atArrived
	atLeft
	planeCounts
)

const (
	// A waiting rank requests counts after requestMin, then with exponential backoff up to requestMax.
	requestMin, requestMax = 2 * time.Millisecond, 64 * time.Millisecond
	// countsBurst is the largest number of messages read while holding the lock.
	countsBurst = 64
	// controlID is the event id of the control socket. The event id of a plane is its number.
	controlID = -2
)

// flowCounts are the out-of-band counts of the flows to and from a peer.
type flowCounts struct {
	left         uint64     // frames to the peer whose requests are complete
	confirmed    uint64     // frames to the peer that have arrived, from its messages
	confirmAsked uint64     // value of sent when requestConfirmation last sent a request at once
	peerSent     uint64     // frames from the peer that have left it, from its messages
	waiting      bool       // this rank waits for counts of the peer
	inbound      stallTimer // of frames from the peer
	outbound     stallTimer // of frames to the peer
}

// stallTimer measures the time since the last arrival on a flow with frames in flight.
type stallTimer struct {
	arrived uint64
	since   time.Time // zero if no frame is in flight
}

// exceeds updates the timer with the number of frames that have arrived and left. It reports whether frames are in
// flight and none has arrived for more than timeout.
func (d *stallTimer) exceeds(arrived, left uint64, timeout time.Duration, now time.Time) bool {
	switch {
	case arrived >= left:
		d.since = time.Time{}
	case d.since.IsZero() || d.arrived != arrived:
		d.arrived, d.since = arrived, now
	default:
		return now.Sub(d.since) > timeout
	}
	return false
}

// progress polls all completion queues, so that the counts are those of now. The driving goroutine calls it.
// Hot path: no allocation, no logging.
func (e *Endpoint) progress() {
	for _, p := range e.planes {
		_ = p.progress() // the next call on the plane returns the error
	}
}

// sendCounts sends a rank the counts of its flows. The caller holds e.mu, and has polled the completion queues: a peer
// takes frames for lost that have not arrived by the counts.
// Hot path: no allocation, no logging.
func (e *Endpoint) sendCounts(rank int, flags uint16) {
	for i, p := range e.planes {
		q := &p.peers[rank]
		q.credited = q.next
		e.control.Put(planeCounts*i+atReleased, q.next)
		e.control.Put(planeCounts*i+atArrived, q.arrived)
		e.control.Put(planeCounts*i+atLeft, q.left)
	}
	e.control.Send(rank, flags)
}

// readCounts handles the messages that have arrived. It reports whether the driving goroutine can make progress, and
// whether more messages may have arrived. The caller holds e.mu.
// Hot path: no allocation, no logging.
func (e *Endpoint) readCounts() (moved, more bool) {
	for range countsBurst {
		src, flags, some := e.control.Receive()
		if !some {
			return moved, false
		}
		if src >= 0 {
			moved = e.handleCounts(src, flags) || moved
		}
	}
	return moved, true
}

// update stores the counts of a message and reports whether any has changed. It ignores impossible counts.
// Hot path: no allocation, no logging.
func (q *peer) update(released, arrived, left uint64) (moved bool) {
	if released > q.released && released <= q.sent {
		q.released, moved = released, true
	}
	if arrived > q.confirmed && arrived <= q.sent {
		q.confirmed, moved = arrived, true
	}
	q.peerSent = max(q.peerSent, left)
	return moved
}

// handleCounts handles the message received last. It reports whether the driving goroutine can make progress.
func (e *Endpoint) handleCounts(src int, flags uint16) (moved bool) {
	for i, p := range e.planes {
		q, at := &p.peers[src], planeCounts*i
		if q.update(e.control.Count(at+atReleased), e.control.Count(at+atArrived), e.control.Count(at+atLeft)) {
			moved = true
		}
		if flags&counts.Closing != 0 && !q.gone {
			q.gone, moved = true, true
		}
		if some, _ := p.pollCQ(); some { // the driving goroutine gets an error when it polls
			moved = true
		}
	}
	if flags&counts.Request != 0 {
		e.sendCounts(src, 0)
	}
	if moved {
		e.requestWait = requestMin
	}
	return e.checkLoss(src, time.Now(), true) || moved
}

// checkLoss fails the flows to and from a rank that have lost frames, and reports whether there are any. Only a message
// of the rank (heard) shows that frames to it are lost: without one, it may have received them long ago.
func (e *Endpoint) checkLoss(rank int, now time.Time, heard bool) (lost bool) {
	for _, p := range e.planes {
		q := &p.peers[rank]
		if !p.unacknowledged || q.err != nil {
			continue
		}
		switch {
		case q.inbound.exceeds(q.arrived, q.peerSent, e.lossTimeout, now):
			p.fail(q, p.lostError(q.hdr.Epoch, q.arrived, q.peerSent, q.rank, p.rank))
			lost = true
		case q.outbound.exceeds(q.confirmed, q.left, e.lossTimeout, now) && heard && !q.gone:
			p.fail(q, p.lostError(q.epoch, q.confirmed, q.left, p.rank, q.rank))
			lost = true
		}
	}
	return lost
}

// lostError returns the error for lost frames of a flow.
func (p *plane) lostError(epoch uint32, from, to uint64, src, dst int) error {
	return fmt.Errorf("%w: rank %d, plane %d, epoch %d: frames %d to %d of rank %d have not arrived at rank %d",
		transport.ErrDark, p.rank, p.id, epoch, from, to-1, src, dst)
}

// lostBefore returns the error for the frames that are missing before frame number. It takes the epoch from the header
// of that frame if the header is valid.
func (p *plane) lostBefore(q *peer, number uint64) error {
	var h wire.Header
	if wire.Decode(q.ring[int(number)&(p.slots-1)*p.slot:][:p.slot], &h) != nil {
		h.Epoch = q.hdr.Epoch
	}
	return p.lostError(h.Epoch, q.arrived, number, q.rank, p.rank)
}

// unconfirmed reports whether frames to a peer that have left may still be on the wire.
func (p *plane) unconfirmed(q *peer) bool { return p.unacknowledged && q.confirmed != q.sent }

// requestConfirmation requests the peer's count of arrived frames. The caller holds e.mu.
func (e *Endpoint) requestConfirmation(q *peer) {
	if q.left == q.sent && q.confirmAsked != q.sent {
		q.confirmAsked = q.sent
		e.progress()
		e.sendCounts(q.rank, counts.Request)
	}
	q.waiting = true
	e.pollCounts()
	e.checkTimersLocked(time.Now()) // the caller may poll without ever calling Wait
}

// pollCounts reads counts for the driving goroutine.
// Hot path: no allocation, no logging.
func (e *Endpoint) pollCounts() {
	if moved, _ := e.readCounts(); moved {
		e.poll.SetReady()
	}
}

// sleepTime returns the time to sleep before the next request, at most d.
func (e *Endpoint) sleepTime(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return min(d, e.requestWait)
}

// checkTimers locks e.mu and calls checkTimersLocked.
func (e *Endpoint) checkTimers(now time.Time) (lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.checkTimersLocked(now)
}

// checkTimersLocked requests counts, checks for lost frames and reads device events, if it is time. It reports whether
// it found a loss. The caller holds e.mu.
func (e *Endpoint) checkTimersLocked(now time.Time) (lost bool) {
	switch {
	case e.poll.Closed():
		return false
	case e.requestAt.IsZero():
		e.requestAt = now.Add(e.requestWait)
		return false
	case now.Before(e.requestAt):
		return false
	}
	e.requestWait = min(2*e.requestWait, requestMax)
	e.requestAt = now.Add(e.requestWait)
	e.progress()
	for i := range e.devices {
		e.readDeviceEvents(i)
	}
	for rank := range e.planes[0].peers {
		lost = e.checkLoss(rank, now, false) || lost
		asks := false
		for _, p := range e.planes {
			q := &p.peers[rank]
			asks = asks || q.waiting && !q.gone && q.err == nil
			q.waiting = false
		}
		if asks {
			e.sendCounts(rank, counts.Request)
		}
	}
	return lost
}

// answerRequests handles messages until the endpoint is closed.
func (e *Endpoint) answerRequests() {
	defer close(e.answererDone)
	// Read returns an error after Close. After any other error, peers get no answer and wait.
	_ = e.controlConn.Read(func(uintptr) (done bool) {
		for more := true; more; {
			e.mu.Lock()
			if e.poll.Closed() {
				e.mu.Unlock()
				return true
			}
			var moved bool
			moved, more = e.readCounts()
			e.mu.Unlock()
			if moved {
				e.poll.Wake()
			}
		}
		return false
	})
}
