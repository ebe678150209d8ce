package rendezvous

import (
	"errors"
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/messages"
	"lightpath/collectives/transport/rdma"
)

// The immediate of a write is its kind and the number of a message modulo 2^30.
const (
	immShift   = 30
	immMask    = 1<<immShift - 1
	immOffer   = 0 // the write is an offer for the message
	immMessage = 1 // the write is the last of the message
)

// pair is the state of the messages to and from another rank.
type pair struct {
	plane *plane
	peer  int
	qp    rdma.QP
	err   error
	busy  bool // the pair is in plane.busy

	// Numbers of requests from 1: the last posted, the last signalled and the last known to be complete.
	posted, signaled, completed uint64
	toRepost                    int // receives to post again

	// Messages to the peer: offered counts its offers, sent the messages written.
	sends         messages.Queue[item] // not yet written
	offered, sent uint64
	written       uint64               // bytes of the next message
	inFlight      messages.Queue[item] // messages with requests that are not known to be complete
	peerOffers    []byte               // by slot

	// Messages from the peer: offers counts this rank's offers, received the messages that have arrived.
	recvs            messages.Queue[item] // not yet received
	offers, received uint64
	ownOffers        []byte // by slot
	lastUse          [window]uint64
	remote           uint64 // address of the peer's slots
	remoteKey        uint32
}

// item is a message in a queue.
type item struct {
	at    uint64 // address
	bytes uint64
	key   uint32
	tag   uint32
	last  uint64 // the last request of a sent message, or the request of the offer of a received message

	// In pair.inFlight:
	send   bool
	number uint64
	group  *messages.Group
}

// lastPart returns the size of the last write of the message in bytes.
func (it *item) lastPart() uint64 {
	if it.bytes == 0 {
		return 0
	}
	return (it.bytes-1)%maxWrite + 1
}

// schedule adds the pair to plane.busy, so that the next poll advances it.
func (q *pair) schedule() {
	if !q.busy {
		q.busy = true
		q.plane.busy = append(q.plane.busy, q)
	}
}

// advance posts all offers and writes that can be posted.
// Hot path: no allocation, no logging.
func (q *pair) advance() error {
	for q.err == nil && q.offers < q.received+window && q.offers-q.received < uint64(q.recvs.Len()) && q.room() {
		if !q.offer() {
			break
		}
	}
	for q.err == nil && q.sent < q.offered && q.sends.Len() > 0 && q.room() {
		q.err = q.write()
	}
	return q.err
}

func (q *pair) room() bool { return q.posted-q.completed < sendDepth }

// offer sends an offer for the next message. It returns false if the offer's slot is still in use.
func (q *pair) offer() bool {
	slot := int(q.offers % window)
	if q.lastUse[slot] > q.completed {
		return false
	}
	it := q.recvs.At(int(q.offers - q.received))
	b := q.ownOffers[slot*offerSize:][:offerSize]
	o := messages.Offer{Tag: it.tag, Key: it.key, Number: q.offers, At: it.at, Bytes: it.bytes}
	o.Encode(b)
	r := rdma.SendRequest{
		Local: address(b), LKey: q.plane.Key, Length: offerSize, Remote: q.remote + uint64(slot*offerSize), RKey: q.remoteKey,
		Imm: immOffer<<immShift | uint32(q.offers)&immMask, Flags: rdma.SendImmediate,
	}
	if q.qp.MaxInline() >= offerSize {
		r.Flags |= rdma.SendInline
	} else {
		q.lastUse[slot] = q.posted + 1
	}
	q.offers++
	q.post(&r, q.plane.e.o.Circuits)
	it.last = q.posted
	return true
}

// write writes the next message, or the next part of a large message, to the memory that the peer has offered.
func (q *pair) write() error {
	it := q.sends.At(0)
	var o messages.Offer
	slot := int(q.sent % window)
	err := o.Match(q.peerOffers[slot*offerSize:][:offerSize], q.peer, q.sent, it.tag, it.bytes)
	if errors.Is(err, messages.ErrOffer) {
		err = fmt.Errorf("%w: %w", transport.ErrCorrupt, err)
	}
	if err != nil {
		return q.wrapError(err)
	}
	n := min(it.bytes-q.written, maxWrite)
	r := rdma.SendRequest{Remote: o.At + q.written, RKey: o.Key, Length: uint32(n)}
	if n > 0 {
		r.Local, r.LKey = it.at+q.written, it.key
	}
	q.written += n
	whole := q.written == it.bytes
	if whole {
		r.Imm, r.Flags = immMessage<<immShift|uint32(q.sent)&immMask, rdma.SendImmediate
	}
	q.post(&r, whole)
	if whole {
		it.last, it.send, it.number = q.posted, true, q.sent
		q.plane.e.Sent += int64(it.bytes)
		q.inFlight.Push(*it)
		q.sends.Pop()
		q.sent, q.written = q.sent+1, 0
	}
	return q.err
}

// post posts a request. The caller requests a signal if it waits for the completion.
func (q *pair) post(r *rdma.SendRequest, signal bool) {
	id := q.posted + 1
	if signal || id-q.signaled >= signalEvery {
		r.Flags |= rdma.SendSignaled
		q.signaled = id
	}
	r.ID = rdma.SendID(q.peer, id)
	q.plane.wr[0] = *r
	n, err := q.qp.PostSend(q.plane.wr[:])
	q.posted += uint64(n)
	if err != nil && q.err == nil {
		q.err = q.wrapError(fmt.Errorf("QP %#x: %w", q.qp.Number(), err))
	}
}

// complete handles one completion.
// Hot path: no allocation, no logging.
func (q *pair) complete(c *rdma.Completion) {
	q.schedule()
	switch {
	case c.Status != rdma.Success:
		if q.err == nil {
			q.err = &rdma.QPError{
				Rank: q.plane.e.o.Rank, Peer: q.peer, Plane: q.plane.id, QPN: q.qp.Number(),
				Status: c.Status, Vendor: c.Vendor, Note: q.plane.note,
			}
		}
	case !c.Received():
		q.completed = c.Number(q.completed)
		for q.inFlight.Len() > 0 && q.inFlight.At(0).last <= q.completed {
			q.plane.e.Done(q.inFlight.At(0).group)
			q.inFlight.Pop()
		}
	default:
		err := q.arrived(c)
		if q.toRepost++; err == nil && q.toRepost >= repostBatch {
			err = q.qp.PostRecv(rdma.RecvID(q.peer), q.toRepost)
			q.toRepost = 0
		}
		if err != nil && q.err == nil {
			q.err = q.wrapError(err)
		}
	}
}

// arrived handles a write that has arrived from the peer.
func (q *pair) arrived(c *rdma.Completion) error {
	number := uint64(c.Imm & immMask)
	switch c.Imm >> immShift {
	case immOffer:
		if number != q.offered&immMask || c.Bytes != offerSize || q.offered-q.sent >= window {
			return fmt.Errorf("%w: offer %d of %d bytes, want offer %d", transport.ErrCorrupt, number, c.Bytes, q.offered)
		}
		q.offered++
	case immMessage:
		if number != q.received&immMask || q.received == q.offers {
			return fmt.Errorf("%w: message %d, want message %d", transport.ErrCorrupt, number, q.received)
		}
		it := q.recvs.At(0)
		if uint64(c.Bytes) != it.lastPart() {
			return fmt.Errorf("%w: last write of message %d has %d bytes, want %d",
				transport.ErrCorrupt, number, c.Bytes, it.lastPart())
		}
		if q.plane.e.o.Circuits && it.last > q.completed {
			it.number = q.received
			q.inFlight.Push(*it)
		} else {
			q.plane.e.Done(it.group)
		}
		q.received++
		q.recvs.Pop()
	default:
		return fmt.Errorf("%w: immediate %#x", transport.ErrCorrupt, c.Imm)
	}
	return nil
}

// wrapError adds ranks and plane to an error.
func (q *pair) wrapError(err error) error {
	return fmt.Errorf("rendezvous: rank %d, plane %d, with rank %d: %w", q.plane.e.o.Rank, q.plane.id, q.peer, err)
}
