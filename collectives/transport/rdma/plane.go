package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/dma"
	"lightpath/collectives/wire"
)

const (
	// burst is the largest number of frames that one TrySend sends, with one call of PostSend.
	burst = 4
	// maxPolls is the number of polls in a row.
	maxPolls = 4
)

// plane is a [transport.Borrower] with a queue pair per peer and one completion queue.
type plane struct {
	e         *Endpoint
	rank, id  int
	slots     int
	slot      int // size of a slot in bytes
	payload   int // largest payload of a frame in bytes
	batch     int // requests per signal, released frames per credit, and receives that are posted again with one call
	sendDepth int // send requests of a queue pair

	outOfBand      bool // counts use the control network
	unacknowledged bool // queue pairs are UC

	peers []peer

	Queues
	dev     devicePort
	armed   bool   // CQ is armed and has caused no event since
	polls   uint64 // number of pollCQ calls
	traffic Traffic

	failed error // of the first peer whose flows have failed

	wc     [32]Completion
	wrs    [burst]SendRequest
	single [1]SendRequest
}

// newPlane returns plane id of a rank, before its queue pairs are connected.
func newPlane(o *ListenOptions, id int) (*plane, PlaneAddr, error) {
	p := &plane{
		rank: o.Rank, id: id, slots: o.Slots, slot: slotSize(o.Payload), payload: o.Payload,
		batch: max(o.Slots/creditParts, 1), peers: make([]peer, o.Ranks),
		outOfBand: o.Control != "", unacknowledged: o.Unacknowledged,
	}
	p.sendDepth = 2*o.Slots + reservedSends + p.batch
	a, err := p.open(&o.Planes[id])
	if err != nil {
		_ = p.close()
		return nil, a, err
	}
	return p, a, nil
}

// open creates queues and rings, and returns their addresses.
func (p *plane) open(po *PlaneOptions) (PlaneAddr, error) {
	a, err := p.Open(po, p.rank, len(p.peers), p.slots*p.slot, QPOptions{
		Unacknowledged: p.unacknowledged, Sends: p.sendDepth, Recvs: p.slots + controlRecvs + p.batch, Inline: inline,
	})
	if p.Memory != nil {
		runtime.AddCleanup(p, dma.Unmap, p.Memory)
	}
	if err != nil {
		return a, err
	}
	p.dev = devicePort{device: po.Device, port: po.Port, gid: a.GID.As16(), index: po.GIDIndex}
	for r, qp := range p.QPs {
		if qp == nil {
			continue
		}
		q := &p.peers[r]
		*q = peer{
			rank: r, qp: qp, inline: min(qp.MaxInline(), maxInlineFrame),
			lastUse: make([]uint64, p.slots), sizes: make([]uint32, p.slots),
		}
		q.ring, q.stage = p.Rings(r)
	}
	return a, nil
}

// address returns the address of the port. If GIDIndex is -1, it chooses a GID and sets GIDIndex.
func (po *PlaneOptions) address() (a PlaneAddr, err error) {
	info, err := po.Device.Port(po.Port)
	if err != nil {
		return a, err
	}
	if !info.Active {
		return a, fmt.Errorf("port %d is %s", po.Port, info.State)
	}
	if po.GIDIndex < 0 {
		if po.GIDIndex, err = ChooseGID(po.Device, po.Port); err != nil {
			return a, err
		}
	}
	g, err := po.Device.GID(po.Port, po.GIDIndex)
	if err != nil {
		return a, err
	}
	if g.rank(info.Ethernet) == 0 {
		return a, fmt.Errorf("port %d: GID %d is not in use", po.Port, po.GIDIndex)
	}
	return PlaneAddr{
		GID: netip.AddrFrom16(g.GID), LID: info.LID, Ethernet: info.Ethernet, MTU: info.MTU, PSN: randomPSN(),
	}, nil
}

// Connect connects a queue pair of a rank, whose address on the plane is mine, to a peer at a. It returns an error if
// the addresses do not fit each other.
func (po *PlaneOptions) Connect(q QP, rank int, mine, a *PlaneAddr, s Service) error {
	switch {
	case len(a.QPs) != len(mine.QPs):
		return fmt.Errorf("the peer has %d queue pairs, want %d", len(a.QPs), len(mine.QPs))
	case a.Ethernet != mine.Ethernet:
		return errors.New("the ports are not both on Ethernet or both on InfiniBand")
	case !a.GID.IsValid() || a.MTU < 256:
		return fmt.Errorf("the peer is at GID %v with an MTU of %d bytes", a.GID, a.MTU)
	}
	return q.Connect(&Path{
		Port: po.Port, GIDIndex: po.GIDIndex, Ethernet: a.Ethernet,
		PeerGID: a.GID.As16(), PeerLID: a.LID, PeerQPN: a.QPs[rank], PeerPSN: a.PSN,
		PSN: mine.PSN, MTU: min(a.MTU, mine.MTU), Service: s,
	})
}

// peer returns the state of the flows to and from a rank. The caller holds e.mu.
func (p *plane) peer(rank int) (*peer, error) {
	if rank < 0 || rank >= len(p.peers) || rank == p.rank {
		return nil, transport.NoPeer(p.rank, p.id, rank, len(p.peers))
	}
	if p.e.poll.Closed() {
		return nil, transport.ErrClosed
	}
	return &p.peers[rank], nil
}

// peerError returns the error of the flows to and from q, or nil.
func (p *plane) peerError(q *peer) error {
	if q.err == nil && q.gone && q.arrived >= q.peerSent {
		q.err = fmt.Errorf("%w: rank %d has closed plane %d", transport.ErrPeerLost, q.rank, p.id)
	}
	return q.err
}

// TrySend implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.send(h, payload, localKey{})
}

// send sends as much payload as there is room for. If g is found, the device reads the payload directly; otherwise send
// copies it. The caller holds e.mu.
// Hot path: no allocation, no logging.
func (p *plane) send(h *wire.Header, payload []byte, g localKey) (int, error) {
	q, err := p.peer(int(h.Dst))
	if err != nil {
		return 0, err
	}
	if min(q.credit(p.slots), p.sendRoom(q)) < burst || !p.stageFree(q, q.sent+burst-1) {
		if err := p.progress(); err != nil {
			return 0, err
		}
		if p.outOfBand && q.credit(p.slots) < burst {
			p.e.pollCounts()
			q.waiting = q.credit(p.slots) <= 0
		}
	}
	if err := p.peerError(q); err != nil {
		return 0, err
	}
	room := min(q.credit(p.slots), p.sendRoom(q), burst)
	q.epoch = h.Epoch
	frame, built, taken := *h, 0, 0
	for built < room && taken < len(payload) {
		n := min(len(payload)-taken, p.payload)
		frame.Length = uint32(n)
		if !p.frame(q, built, &frame, payload[taken:taken+n], g, &p.wrs[built]) {
			break
		}
		built++
		taken += n
		frame.Offset += uint64(n)
	}
	if built == 0 {
		return 0, nil
	}
	if g.found { // the caller waits for its completion
		p.wrs[built-1].Flags |= SendSignaled
	}
	n, err := p.post(q, p.wrs[:built])
	q.sent += uint64(n)
	if n < built {
		taken = n * p.payload // the last frame, which may be short, was not posted
	}
	if n == 0 && err != nil {
		return 0, q.err
	}
	if g.found {
		p.traffic.Lent += int64(taken)
	} else {
		p.traffic.Copied += int64(taken)
	}
	return taken, nil
}

// Peek implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) Peek(src int) (*wire.Header, []byte, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(src)
	if err != nil {
		return nil, nil, err
	}
	if q.decoded {
		return &q.hdr, q.data, nil
	}
	if q.arrived == q.next {
		// One poll serves all peers.
		if q.polled == p.polls {
			err = p.progress()
		}
		q.polled = p.polls
		if err != nil {
			return nil, nil, err
		}
		if q.arrived == q.next {
			// Frames that arrived before an error are still valid, so it is returned only now. If the flows of another
			// peer have failed, that peer may have made q stop sending. So this wait fails as well.
			if err := p.peerError(q); err != nil {
				return nil, nil, err
			}
			q.waiting = true
			return nil, nil, p.failed
		}
	}
	if err := p.decode(q); err != nil {
		return nil, nil, p.corrupt(q, err)
	}
	return &q.hdr, q.data, nil
}

// Release implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) Release(src int) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(src)
	if err != nil || !q.decoded {
		return
	}
	q.decoded, q.data = false, nil
	q.next++
	if q.next-q.credited >= uint64(p.batch) {
		p.sendCredit(q)
	}
}

// Drained implements [transport.Plane]. The plane is drained when every request is complete and, without
// acknowledgements, the peers have confirmed every frame.
func (p *plane) Drained() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.e.poll.Closed() {
		return false, transport.ErrClosed
	}
	if err := p.progress(); err != nil {
		return false, err
	}
	drained := true
	for r := range p.peers {
		q := &p.peers[r]
		if q.completed == q.posted && !p.unconfirmed(q) || q.gone && q.err == nil {
			continue
		}
		drained = false
		if q.err != nil {
			return false, q.err
		}
		if p.unconfirmed(q) {
			p.e.requestConfirmation(q)
		}
		if q.signaled < q.posted {
			if err := p.flush(q); err != nil {
				return false, q.err
			}
		}
	}
	return drained, nil
}

// progress polls the completion queue. It stores the errors of a peer in the peer.
// Hot path: no allocation, no logging.
func (p *plane) progress() error {
	some, err := p.pollCQ()
	if some {
		p.e.poll.SetReady()
	}
	return err
}

// pollCQ handles the completions of the completion queue and reports whether there were any. Unlike progress, it does
// not touch the poller, so that answerRequests may call it.
// Hot path: no allocation, no logging.
func (p *plane) pollCQ() (some bool, err error) {
	p.polls++
	for range maxPolls {
		n, err := p.CQ.Poll(p.wc[:])
		if err != nil {
			return some, fmt.Errorf("transport: rank %d, plane %d: completion queue: %w", p.rank, p.id, err)
		}
		some = some || n > 0
		for i := range n {
			p.complete(&p.wc[i])
		}
		if n < len(p.wc) {
			break
		}
	}
	return some, nil
}

// complete handles one completion.
// Hot path: no allocation, no logging.
func (p *plane) complete(c *Completion) {
	q := &p.peers[c.Rank()]
	switch {
	case c.Status != Success:
		if q.err == nil {
			p.fail(q, &QPError{
				Rank: p.rank, Peer: q.rank, Plane: p.id, Epoch: q.epoch, QPN: q.qp.Number(),
				Status: c.Status, Vendor: c.Vendor, Note: p.dev.note,
			})
		}
	case !c.Received():
		if q.completed = c.Number(q.completed); q.completed == q.posted {
			q.left = q.sent
		}
		if q.creditPending {
			p.sendCredit(q)
		}
	default:
		err := p.receive(q, c)
		if err == nil && q.toRepost >= p.batch {
			if err = q.qp.PostRecv(RecvID(q.rank), q.toRepost); err != nil {
				err = p.wrapError(q.epoch, fmt.Errorf("receive from rank %d, QP %#x: %w", q.rank, q.qp.Number(), err))
			}
			q.toRepost = 0
		}
		if err != nil {
			p.fail(q, err)
		}
	}
}

// fail ends the flows to and from a peer. Later calls on the plane return the error.
func (p *plane) fail(q *peer, err error) {
	if q.err != nil {
		return
	}
	q.err = err
	if p.failed == nil && !q.gone {
		p.failed = err
	}
}

// settled reports whether this rank has nothing in flight to q, including the closing message.
func (q *peer) settled() bool {
	return q.qp == nil || q.err != nil || q.gone || q.completed == q.posted
}

// close closes the queues and releases the rings.
func (p *plane) close() error {
	err := p.Close()
	// Another goroutine may be inside a call and must not fault. So close releases the memory but keeps the addresses
	// mapped until the plane is unreachable.
	if p.Memory != nil {
		err = errors.Join(err, unix.Madvise(p.Memory, unix.MADV_DONTNEED))
	}
	return err
}
