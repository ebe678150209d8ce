package rdma

import (
	"fmt"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// The immediate of a write: its kind, and a count modulo 2^30.
const (
	immShift       = 30
	immMask        = 1<<immShift - 1
	immData        = 0 // number of the frame
	immCredit      = 1 // frames that the writer has released
	immBye         = 2 // the writer closes
	creditParts    = 4 // releasing this part of the slots is worth telling
	immCredits     = creditParts
	reservedSends  = 2 // for a flush and a farewell
	recvBit        = 1 << 63
	rankShift      = 48
	requestMask    = 1<<rankShift - 1
	controlRecvs   = immCredits + 1 // credits that may be under way, and a farewell
	maxInlineFrame = 1 << 10        // more is not asked for, whatever the device offers
)

// peer is what a plane knows of another rank.
type peer struct {
	qp     QP
	rank   int
	inline int // frames up to this size need no staging slot to stay
	err    error
	gone   bool // it has said farewell

	// Requests, of any kind, by number from 1: posted, the last that is signalled, and those
	// known to be complete.
	posted, signaled, completed uint64

	// Frames to the peer. Slot i of stage is written to slot i of its ring.
	stage      []byte
	remote     uint64 // address of its ring
	remoteKey  uint32
	sent       uint64   // frames
	released   uint64   // of them, as far as the peer has told
	lastUse    []uint64 // by slot: the request that reads it
	epoch      uint32   // of the last frame
	farewell   bool     // posted
	overCredit bool     // a credit is owed and there was no room for it

	// Frames from the peer: arrived, released, and the count it was last told.
	ring                []byte
	arrived, next, told uint64
	sizes               []uint32 // by slot: bytes that came
	have                bool     // the head frame has been looked at
	hdr                 wire.Header
	data                []byte
	reposts             int    // receives to post again
	seen                uint64 // poll in which the peer was last asked for

	flowCounts // where they travel over the control network
}

func slotSize(payload int) int { return wire.HeaderSize + payload }

// credit is how many frames may be sent, as far as the peer's slots go.
func (q *peer) credit(slots int) int { return int(q.released + uint64(slots) - q.sent) }

// sendRoom is how many requests may be posted.
func (p *plane) sendRoom(q *peer) int { return p.sends - reservedSends - int(q.posted-q.completed) }

// free reports whether the staging slot of a frame may be written: the device may have to read it
// again, even after the peer has released what was in it.
func (p *plane) free(q *peer, number uint64) bool {
	return q.lastUse[int(number)&(p.slots-1)] <= q.completed
}

// frame builds frame q.sent+i of a batch in its slot and request r for it. Payload that is
// granted stays where it is.
// Hot path: no allocation, no logging.
func (p *plane) frame(q *peer, i int, h *wire.Header, payload []byte, g grant, r *SendRequest) bool {
	number := q.sent + uint64(i)
	slot := int(number) & (p.slots - 1)
	if !p.free(q, number) {
		return false
	}
	b := q.stage[slot*p.slot:][:wire.HeaderSize]
	*r = SendRequest{
		Local: uint64(uintptr(unsafe.Pointer(&b[0]))), LKey: p.stageKey,
		Remote: q.remote + uint64(slot*p.slot), RKey: q.remoteKey,
		Imm: immData<<immShift | uint32(number)&immMask, Flags: SendImmediate,
	}
	if g.given {
		r.Data, r.DataKey, r.DataLength = uint64(uintptr(unsafe.Pointer(&payload[0]))), g.key, uint32(len(payload))
	} else {
		b = append(b, payload...) // the slot has room
	}
	wire.Encode(h, b)
	if r.Length = uint32(len(b)); !g.given && len(b) <= q.inline {
		r.Flags |= SendInline
	}
	return true
}

// post posts requests, numbers them and signals every p.every-th, and returns how many were
// posted.
// Hot path: no allocation, no logging.
func (p *plane) post(q *peer, r []SendRequest) (int, error) {
	for i := range r {
		id := q.posted + uint64(i) + 1
		// Where nothing but frames may travel, a flush may not: the last tells of itself.
		if last := p.aside && i == len(r)-1; last || id-q.signaled >= uint64(p.every) {
			r[i].Flags |= SendSignaled
		}
		if r[i].Flags&SendSignaled != 0 {
			q.signaled = id
		}
		r[i].ID = uint64(q.rank)<<rankShift | id&requestMask
	}
	n, err := q.qp.PostSend(r)
	for i := range n {
		if r[i].Flags&SendInline == 0 && r[i].Imm>>immShift == immData && r[i].Flags&SendImmediate != 0 {
			q.lastUse[int(r[i].Imm)&(p.slots-1)] = q.posted + uint64(i) + 1
		}
	}
	q.posted += uint64(n)
	if err != nil && q.err == nil {
		p.fail(q, p.broke(q.epoch, fmt.Errorf("send to rank %d, QP %#x: %w", q.rank, q.qp.Number(), err)))
	}
	return n, err
}

// tell lets the peer know what has been released of its frames.
// Hot path: no allocation, no logging.
func (p *plane) tell(q *peer) {
	if q.err != nil || q.gone {
		return
	}
	if p.aside {
		p.e.tell(q.rank, 0)
		return
	}
	if q.overCredit = p.sendRoom(q) <= 0; q.overCredit {
		return // completions make room, and poll comes back to it
	}
	p.single[0] = SendRequest{Imm: immCredit<<immShift | uint32(q.next)&immMask, Flags: SendImmediate | SendInline}
	if n, _ := p.post(q, p.single[:]); n == 1 {
		q.told = q.next
	}
}

// flush posts a write of no bytes whose completion tells that all before it are complete.
func (p *plane) flush(q *peer) error {
	p.single[0] = SendRequest{Flags: SendSignaled | SendInline}
	_, err := p.post(q, p.single[:])
	return err
}

// bye tells the peer that this rank closes.
func (p *plane) bye(q *peer) {
	if !p.aside && q.err == nil && !q.gone && !q.farewell {
		q.farewell = true
		p.single[0] = SendRequest{Imm: immBye << immShift, Flags: SendImmediate | SendInline | SendSignaled}
		_, _ = p.post(q, p.single[:]) // q.err has it
	}
}

// since returns the count whose low 30 bits are imm's and that is at least base.
func since(base uint64, imm uint32) uint64 {
	return base + uint64((imm-uint32(base))&immMask)
}

// receive acts on a write that has come from q.
// Hot path: no logging.
func (p *plane) receive(q *peer, c *Completion) error {
	q.reposts++
	switch c.Imm >> immShift {
	case immData:
		number := since(q.arrived, c.Imm)
		if number != q.arrived && p.unacknowledged {
			return p.gap(q, number)
		}
		if number != q.arrived {
			return fmt.Errorf("%w: at rank %d, plane %d: frame %d of rank %d where %d was due", transport.ErrCorrupt, p.rank, p.id, number, q.rank, q.arrived)
		}
		if q.arrived-q.next >= uint64(p.slots) {
			return fmt.Errorf("%w: at rank %d, plane %d: frame %d of rank %d without credit", transport.ErrCorrupt, p.rank, p.id, number, q.rank)
		}
		q.sizes[int(number)&(p.slots-1)] = c.Bytes
		q.arrived++
	case immCredit:
		n := since(q.released, c.Imm)
		if n > q.sent {
			return fmt.Errorf("%w: at rank %d, plane %d: rank %d has released %d of %d frames", transport.ErrCorrupt, p.rank, p.id, q.rank, n, q.sent)
		}
		q.released = n
	case immBye:
		q.gone = true
	default:
		return fmt.Errorf("%w: at rank %d, plane %d: immediate %#x of rank %d", transport.ErrCorrupt, p.rank, p.id, c.Imm, q.rank)
	}
	return nil
}

// decode makes the oldest frame that has arrived the head frame.
func (p *plane) decode(q *peer) error {
	slot := int(q.next) & (p.slots - 1)
	size := int(q.sizes[slot])
	if size > p.slot {
		return fmt.Errorf("frame of %d bytes in a slot of %d", size, p.slot)
	}
	b := q.ring[slot*p.slot:][:size]
	if err := wire.Decode(b, &q.hdr); err != nil {
		return err
	}
	q.data = b[wire.HeaderSize:]
	if int(q.hdr.Length) != len(q.data) {
		return fmt.Errorf("frame of %d bytes claims %d", len(q.data), q.hdr.Length)
	}
	if int(q.hdr.Src) != q.rank || int(q.hdr.Dst) != p.rank || int(q.hdr.Plane) != p.id {
		return fmt.Errorf("frame of flow %d to %d on plane %d", q.hdr.Src, q.hdr.Dst, q.hdr.Plane)
	}
	q.have = true
	return nil
}
