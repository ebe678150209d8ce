package rendezvous

import (
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
)

// The immediate of a write: its kind, and a number modulo 2^30.
const (
	immShift    = 30
	immMask     = 1<<immShift - 1
	immOffer    = 0 // number of the message that is offered memory
	immMessage  = 1 // number of the message that has arrived
	recvBit     = 1 << 63
	rankShift   = 48
	requestMask = 1<<rankShift - 1
)

// pair is what a plane knows of another rank.
type pair struct {
	plane *plane
	peer  int
	qp    rdma.QP
	err   error
	busy  bool // it is in plane.busy

	// Requests by number from 1: posted, the last that is signalled, and those known to be complete.
	posted, signaled, completed uint64
	reposts                     int // receives to post again

	// Messages to the peer: offered is how many it has offered memory for, sent how many have been written.
	sends         queue // that have not
	offered, sent uint64
	wrote         uint64 // bytes of the next one
	flying        queue  // written, or come over a circuit, and not all requests for it are known to be complete
	come          []byte // the peer's offers, by slot

	// Messages from the peer: offers is for how many memory has been offered, received how many have come.
	recvs            queue // that have not
	offers, received uint64
	written          []byte // own offers, by slot
	lastUse          [window]uint64
	remote           uint64 // address of the peer's slots
	remoteKey        uint32
}

// item is a message in a queue.
type item struct {
	at    uint64
	bytes uint64
	key   uint32
	tag   uint32
	last  uint64 // the request that ends it, of those that fly; of one to be received, the offer's

	// Of those that fly:
	send   bool
	number uint64
	group  *Group
}

// lastPart is how many bytes the last write of the message has.
func (it *item) lastPart() uint64 {
	if it.bytes == 0 {
		return 0
	}
	return (it.bytes-1)%largest + 1
}

// queue is a ring. It allocates only when it is longer than ever.
type queue struct {
	all      []item
	first, n int
}

func (q *queue) at(i int) *item { return &q.all[(q.first+i)%len(q.all)] }

func (q *queue) push(it item) {
	if q.n == len(q.all) {
		longer := make([]item, max(2*q.n, 2*window))
		for i := range q.n {
			longer[i] = *q.at(i)
		}
		q.all, q.first = longer, 0
	}
	q.n++
	*q.at(q.n - 1) = it
}

func (q *queue) pop() {
	*q.at(0) = item{}
	q.first = (q.first + 1) % len(q.all)
	q.n--
}

// touch has the pair looked at by the next advance.
func (q *pair) touch() {
	if !q.busy {
		q.busy = true
		q.plane.busy = append(q.plane.busy, q)
	}
}

// advance posts what can be posted.
// Hot path: no allocation, no logging.
func (q *pair) advance() error {
	for q.err == nil && q.offers < q.received+window && q.offers-q.received < uint64(q.recvs.n) && q.room() {
		if !q.offer() {
			break
		}
	}
	for q.err == nil && q.sent < q.offered && q.sends.n > 0 && q.room() {
		q.err = q.write()
	}
	return q.err
}

func (q *pair) room() bool { return q.posted-q.completed < sendRoom }

// offer tells the peer where the next message may arrive. False: the slot is still in use.
func (q *pair) offer() bool {
	slot := int(q.offers % window)
	if q.lastUse[slot] > q.completed {
		return false
	}
	it := q.recvs.at(int(q.offers - q.received))
	b := q.written[slot*offerSize:][:offerSize]
	o := offer{tag: it.tag, key: it.key, number: q.offers, at: it.at, bytes: it.bytes}
	o.encode(b)
	r := rdma.SendRequest{
		Local: address(b), LKey: q.plane.key, Length: offerSize, Remote: q.remote + uint64(slot*offerSize), RKey: q.remoteKey,
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

// write writes the next message, or the next part of a large one, to where the peer has offered.
func (q *pair) write() error {
	it := q.sends.at(0)
	var o offer
	slot := int(q.sent % window)
	err := o.decode(q.come[slot*offerSize:][:offerSize])
	switch {
	case err == nil && o.number != q.sent:
		err = fmt.Errorf("it is for message %d", o.number)
	case err == nil && o.tag != it.tag:
		return q.broke(fmt.Errorf("%w: message %d is of another call there (%#x) than here (%#x)", ErrMismatch, q.sent, o.tag, it.tag))
	case err == nil && o.bytes != it.bytes:
		return q.broke(fmt.Errorf("%w: message %d has %d bytes, and rank %d waits for %d", ErrMismatch, q.sent, it.bytes, q.peer, o.bytes))
	}
	if err != nil {
		return q.broke(fmt.Errorf("%w: offer %d: %w", transport.ErrCorrupt, q.sent, err))
	}
	n := min(it.bytes-q.wrote, largest)
	r := rdma.SendRequest{Remote: o.at + q.wrote, RKey: o.key, Length: uint32(n)}
	if n > 0 {
		r.Local, r.LKey = it.at+q.wrote, it.key
	}
	q.wrote += n
	whole := q.wrote == it.bytes
	if whole {
		r.Imm, r.Flags = immMessage<<immShift|uint32(q.sent)&immMask, rdma.SendImmediate
	}
	q.post(&r, whole)
	if whole {
		it.last, it.send, it.number = q.posted, true, q.sent
		q.plane.e.traffic += int64(it.bytes)
		q.flying.push(*it)
		q.sends.pop()
		q.sent, q.wrote = q.sent+1, 0
	}
	return q.err
}

// post posts a request. Whoever waits for it asks for a signal.
func (q *pair) post(r *rdma.SendRequest, signal bool) {
	id := q.posted + 1
	if signal || id-q.signaled >= signalEvery {
		r.Flags |= rdma.SendSignaled
		q.signaled = id
	}
	r.ID = uint64(q.peer)<<rankShift | id&requestMask
	q.plane.wr[0] = *r
	n, err := q.qp.PostSend(q.plane.wr[:])
	q.posted += uint64(n)
	if err != nil && q.err == nil {
		q.err = q.broke(fmt.Errorf("QP %#x: %w", q.qp.Number(), err))
	}
}

// complete acts on one completion.
// Hot path: no allocation, no logging.
func (q *pair) complete(c *rdma.Completion) {
	q.touch()
	switch {
	case c.Status != rdma.Success:
		if q.err == nil {
			q.err = &rdma.QPError{
				Rank: q.plane.e.o.Rank, Peer: q.peer, Plane: q.plane.id, QPN: q.qp.Number(), Status: c.Status, Vendor: c.Vendor, Note: q.plane.note,
			}
		}
	case c.ID&recvBit == 0:
		q.completed += (c.ID - q.completed) & requestMask
		for q.flying.n > 0 && q.flying.at(0).last <= q.completed {
			q.flying.at(0).group.less()
			q.flying.pop()
		}
	default:
		err := q.arrived(c)
		if q.reposts++; err == nil && q.reposts >= repost {
			err = q.qp.PostRecv(uint64(q.peer)<<rankShift|recvBit, q.reposts)
			q.reposts = 0
		}
		if err != nil && q.err == nil {
			q.err = q.broke(err)
		}
	}
}

// arrived acts on a write that has come from the peer.
func (q *pair) arrived(c *rdma.Completion) error {
	number := uint64(c.Imm & immMask)
	switch c.Imm >> immShift {
	case immOffer:
		if number != q.offered&immMask || c.Bytes != offerSize || q.offered-q.sent >= window {
			return fmt.Errorf("%w: offer %d of %d bytes where offer %d was due", transport.ErrCorrupt, number, c.Bytes, q.offered)
		}
		q.offered++
	case immMessage:
		if number != q.received&immMask || q.received == q.offers {
			return fmt.Errorf("%w: message %d where message %d was due", transport.ErrCorrupt, number, q.received)
		}
		it := q.recvs.at(0)
		if uint64(c.Bytes) != it.lastPart() {
			return fmt.Errorf("%w: message %d ends with %d bytes, of %d", transport.ErrCorrupt, number, c.Bytes, it.bytes)
		}
		if q.plane.e.o.Circuits && it.last > q.completed {
			it.number = q.received
			q.flying.push(*it)
		} else {
			it.group.less()
		}
		q.received++
		q.recvs.pop()
	default:
		return fmt.Errorf("%w: immediate %#x", transport.ErrCorrupt, c.Imm)
	}
	return nil
}

// broke says where an error is.
func (q *pair) broke(err error) error {
	return fmt.Errorf("rendezvous: rank %d, plane %d, with rank %d: %w", q.plane.e.o.Rank, q.plane.id, q.peer, err)
}
