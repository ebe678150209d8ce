package rdma

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// The immediate of a write is its kind and a count modulo 2^30.
const (
	immShift       = 30
	immMask        = 1<<immShift - 1
	immData        = 0               // the count is the number of the frame
	immCredit      = 1               // the count is the number of frames that the writer has released
	immClosing     = 2               // the writer closes
	creditParts    = 4               // credit messages per ring
	reservedSends  = 2               // for a flush and a closing message
	controlRecvs   = creditParts + 1 // for credits in flight and a closing message
	maxInlineFrame = 1 << 10         // limit of inlined frames in bytes, also if the device supports more
)

// peer is the state of the flows to and from another rank.
type peer struct {
	qp     QP
	rank   int
	inline int // largest frame in bytes that is inlined, so that its staging slot is free at once
	err    error
	gone   bool // the peer has closed

	// Numbers of requests of any kind, from 1: the last posted, the last signalled and the last known to be complete.
	posted, signaled, completed uint64

	// Frames to the peer. Slot i of stage is written to slot i of the peer's ring.
	stage         []byte
	remote        uint64 // address of the peer's ring
	remoteKey     uint32
	sent          uint64   // frames
	released      uint64   // frames that the peer has released, from its credits
	lastUse       []uint64 // by slot: the last request that reads it
	epoch         uint32   // of the last frame
	closingSent   bool
	creditPending bool // a credit could not be posted yet

	// Frames from the peer: next is the number of released frames, credited its value in the last credit sent.
	ring                    []byte
	arrived, next, credited uint64
	sizes                   []uint32 // by slot: bytes received
	decoded                 bool     // hdr and data are the oldest frame
	hdr                     wire.Header
	data                    []byte
	toRepost                int    // receives to post again
	polled                  uint64 // value of plane.polls at the peer's last Peek without a frame

	flowCounts // only with out-of-band counts
}

func slotSize(payload int) int { return wire.HeaderSize + payload }

// credit returns the number of frames for which the peer has free slots.
func (q *peer) credit(slots int) int { return int(q.released + uint64(slots) - q.sent) }

// sendRoom returns the number of requests that may be posted.
func (p *plane) sendRoom(q *peer) int { return p.sendDepth - reservedSends - int(q.posted-q.completed) }

// stageFree reports whether the staging slot of a frame may be overwritten. The device may read the slot again for a
// retransmission, even after the peer has released the frame.
func (p *plane) stageFree(q *peer, number uint64) bool {
	return q.lastUse[int(number)&(p.slots-1)] <= q.completed
}

// frame builds frame q.sent+i of a batch in its staging slot, and the request r that writes it. If g is found, the
// request reads the payload directly. It returns false if the staging slot is not free.
// Hot path: no allocation, no logging.
func (p *plane) frame(q *peer, i int, h *wire.Header, payload []byte, g localKey, r *SendRequest) bool {
	number := q.sent + uint64(i)
	slot := int(number) & (p.slots - 1)
	if !p.stageFree(q, number) {
		return false
	}
	b := q.stage[slot*p.slot:][:wire.HeaderSize]
	*r = SendRequest{
		Local: uint64(uintptr(unsafe.Pointer(&b[0]))), LKey: p.Key,
		Remote: q.remote + uint64(slot*p.slot), RKey: q.remoteKey,
		Imm: immData<<immShift | uint32(number)&immMask, Flags: SendImmediate,
	}
	if g.found {
		r.Data, r.DataKey, r.DataLength = uint64(uintptr(unsafe.Pointer(&payload[0]))), g.key, uint32(len(payload))
	} else {
		b = append(b, payload...) // the slot has room
	}
	wire.Encode(h, b)
	if r.Length = uint32(len(b)); !g.found && len(b) <= q.inline {
		r.Flags |= SendInline
	}
	return true
}

// post numbers and posts requests, and returns the number posted. It signals every p.batch-th request.
// Hot path: no allocation, no logging.
func (p *plane) post(q *peer, r []SendRequest) (int, error) {
	for i := range r {
		id := q.posted + uint64(i) + 1
		// With out-of-band counts a flush, which is not a frame, may not be posted. So the last request is signalled.
		if last := p.outOfBand && i == len(r)-1; last || id-q.signaled >= uint64(p.batch) {
			r[i].Flags |= SendSignaled
		}
		if r[i].Flags&SendSignaled != 0 {
			q.signaled = id
		}
		r[i].ID = SendID(q.rank, id)
	}
	n, err := q.qp.PostSend(r)
	for i := range n {
		if r[i].Flags&SendInline == 0 && r[i].Imm>>immShift == immData && r[i].Flags&SendImmediate != 0 {
			q.lastUse[int(r[i].Imm)&(p.slots-1)] = q.posted + uint64(i) + 1
		}
	}
	q.posted += uint64(n)
	if err != nil && q.err == nil {
		p.fail(q, p.wrapError(q.epoch, fmt.Errorf("send to rank %d, QP %#x: %w", q.rank, q.qp.Number(), err)))
	}
	return n, err
}

// sendCredit sends the peer the number of its frames that this rank has released.
// Hot path: no allocation, no logging.
func (p *plane) sendCredit(q *peer) {
	if q.err != nil || q.gone {
		return
	}
	if p.outOfBand {
		p.e.progress()
		p.e.sendCounts(q.rank, 0)
		return
	}
	if q.creditPending = p.sendRoom(q) <= 0; q.creditPending {
		return // complete sends it when there is room
	}
	p.single[0] = SendRequest{Imm: immCredit<<immShift | uint32(q.next)&immMask, Flags: SendImmediate | SendInline}
	if n, _ := p.post(q, p.single[:]); n == 1 {
		q.credited = q.next
	}
}

// flush posts an empty write. Its completion shows that all requests before it are complete.
func (p *plane) flush(q *peer) error {
	p.single[0] = SendRequest{Flags: SendSignaled | SendInline}
	_, err := p.post(q, p.single[:])
	return err
}

// sendClosing notifies the peer that this rank closes.
func (p *plane) sendClosing(q *peer) {
	if !p.outOfBand && q.err == nil && !q.gone && !q.closingSent {
		q.closingSent = true
		p.single[0] = SendRequest{Imm: immClosing << immShift, Flags: SendImmediate | SendInline | SendSignaled}
		_, _ = p.post(q, p.single[:]) // post stores an error in q.err
	}
}

// expand returns the smallest count that is at least base and has the low 30 bits of imm.
func expand(base uint64, imm uint32) uint64 {
	return base + uint64((imm-uint32(base))&immMask)
}

// receive handles a write that has arrived from q.
// Hot path: no logging.
func (p *plane) receive(q *peer, c *Completion) error {
	q.toRepost++
	switch c.Imm >> immShift {
	case immData:
		number := expand(q.arrived, c.Imm)
		if number != q.arrived && p.unacknowledged {
			return p.lostBefore(q, number)
		}
		if number != q.arrived {
			return p.corrupt(q, fmt.Errorf("frame %d, want %d", number, q.arrived))
		}
		if q.arrived-q.next >= uint64(p.slots) {
			return p.corrupt(q, fmt.Errorf("frame %d without credit", number))
		}
		q.sizes[int(number)&(p.slots-1)] = c.Bytes
		q.arrived++
	case immCredit:
		n := expand(q.released, c.Imm)
		if n > q.sent {
			return p.corrupt(q, fmt.Errorf("credit for %d frames of %d", n, q.sent))
		}
		q.released = n
	case immClosing:
		q.gone = true
	default:
		return p.corrupt(q, fmt.Errorf("immediate %#x", c.Imm))
	}
	return nil
}

// corrupt returns the error for a bad frame or immediate from q.
func (p *plane) corrupt(q *peer, err error) error {
	return fmt.Errorf("%w: at rank %d, plane %d, from rank %d: %w", transport.ErrCorrupt, p.rank, p.id, q.rank, err)
}

// decode decodes the oldest frame that has arrived.
func (p *plane) decode(q *peer) (err error) {
	slot := int(q.next) & (p.slots - 1)
	size := int(q.sizes[slot])
	if size > p.slot {
		return fmt.Errorf("frame of %d bytes in a slot of %d", size, p.slot)
	}
	if q.data, err = wire.DecodeFrame(q.ring[slot*p.slot:][:size], &q.hdr); err == nil {
		err = q.hdr.CheckFlow(q.rank, p.rank, p.id)
	}
	q.decoded = err == nil
	return err
}
