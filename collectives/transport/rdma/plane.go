package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

const (
	// burst bounds the frames that one TrySend makes, and posts with one call.
	burst = 4
	// batch is how many completions one call takes, and turns how often it is repeated at once.
	batch, turns = 32, 4
)

// plane is a [transport.Plane]: a queue pair per peer, all on one completion queue.
type plane struct {
	e        *Endpoint
	rank, id int
	slots    int
	slot     int // bytes
	payload  int // most data bytes of a frame
	every    int // requests to a signal
	sends    int // requests of a queue pair
	repost   int // receives that are posted again together
	// aside: counts travel over the control network; unacknowledged: and queue pairs are UC.
	aside, unacknowledged bool
	peers                 []peer

	at       attachment
	cq       CQ
	armed    bool // an event of cq is awaited
	polls    uint64
	memory   []byte // rings of all peers, then staging for all
	regions  [2]Region
	stageKey uint32
	traffic  Traffic

	failed error // of the first peer whose queue pair has broken

	wc     [batch]Completion
	wrs    [burst]SendRequest
	single [1]SendRequest
}

// newPlane makes a rank's end of plane id, up to connecting it.
func newPlane(o *ListenOptions, id int) (*plane, PlaneAddr, error) {
	p := &plane{
		rank: o.Rank, id: id, slots: o.Slots, slot: slotSize(o.Payload), payload: o.Payload,
		every: max(o.Slots/creditParts, 1), repost: max(o.Slots/creditParts, 1), peers: make([]peer, o.Ranks),
		aside: o.Control != "", unacknowledged: o.Unacknowledged,
	}
	p.sends = 2*o.Slots + reservedSends + p.every
	a, err := p.open(&o.Planes[id])
	if err != nil {
		_ = p.close()
		return nil, a, err
	}
	return p, a, nil
}

// open makes rings and queue pairs, and says where they are.
func (p *plane) open(po *PlaneOptions) (a PlaneAddr, err error) {
	if a, err = po.Address(); err != nil {
		return a, err
	}
	p.at = attachment{device: po.Device, port: po.Port, gid: a.GID.As16(), index: po.GIDIndex}
	ring := p.slots * p.slot
	half := len(p.peers) * ring
	if p.memory, err = MapMemory(2 * half); err != nil {
		return a, err
	}
	runtime.AddCleanup(p, UnmapMemory, p.memory)
	if err = RegisterHalves(po.Device, p.memory, &p.regions); err != nil {
		return a, err
	}
	_, a.Key = p.regions[0].Keys()
	p.stageKey, _ = p.regions[1].Keys()
	a.Base = uint64(uintptr(unsafe.Pointer(&p.memory[0])))
	recvs := p.slots + controlRecvs + p.repost
	if p.cq, err = po.Device.NewCQ(max(1, (len(p.peers)-1)*(p.sends+recvs))); err != nil {
		return a, fmt.Errorf("completion queue: %w", err)
	}
	a.QPs = make([]uint32, len(p.peers))
	for r := range p.peers {
		if r == p.rank {
			continue
		}
		q := &p.peers[r]
		*q = peer{
			rank: r, ring: p.memory[r*ring:][:ring], stage: p.memory[half+r*ring:][:ring],
			lastUse: make([]uint64, p.slots), sizes: make([]uint32, p.slots),
		}
		q.qp, err = po.Device.NewQP(QPOptions{Unacknowledged: p.unacknowledged, CQ: p.cq, Port: po.Port, Sends: p.sends, Recvs: recvs, Inline: inline})
		if err == nil {
			err = q.qp.PostRecv(uint64(r)<<rankShift|recvBit, recvs)
		}
		if err != nil {
			return a, fmt.Errorf("queue pair to rank %d: %w", r, err)
		}
		q.inline = min(q.qp.MaxInline(), maxInlineFrame)
		a.QPs[r] = q.qp.Number()
	}
	return a, nil
}

// RegisterHalves registers both halves of a plane's memory: the first is what peers write to. What it has made when it
// fails is [CloseQueue]'s.
func RegisterHalves(d Device, mem []byte, regions *[2]Region) (err error) {
	half := len(mem) / 2
	for i, m := range [][]byte{mem[:half], mem[half:]} {
		if regions[i], err = d.Register(m, i == 0); err != nil {
			return fmt.Errorf("register %d bytes (RLIMIT_MEMLOCK?): %w", half, err)
		}
	}
	return nil
}

// CloseQueue gives back what a plane has made of its completion queue and its regions, once its queue pairs are closed.
func CloseQueue(cq *CQ, regions *[2]Region) (err error) {
	if *cq != nil {
		err = (*cq).Close()
		*cq = nil
	}
	for i, r := range regions {
		if r != nil {
			err = errors.Join(err, r.Close())
			regions[i] = nil
		}
	}
	return err
}

// Address says how the port is reached, and settles which of its GIDs is used.
func (po *PlaneOptions) Address() (a PlaneAddr, err error) {
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
	return PlaneAddr{GID: netip.AddrFrom16(g.GID), LID: info.LID, Ethernet: info.Ethernet, MTU: info.MTU, PSN: randomPSN()}, nil
}

// peer checks that flows between this rank and another make sense. The caller holds e.mu.
func (p *plane) peer(rank int) (*peer, error) {
	if rank < 0 || rank >= len(p.peers) || rank == p.rank {
		return nil, transport.NoPeer(p.rank, p.id, rank, len(p.peers))
	}
	if p.e.poll.Closed() {
		return nil, transport.ErrClosed
	}
	return &p.peers[rank], nil
}

// broken returns why nothing more can pass to q, nil where it can.
func (p *plane) broken(q *peer) error {
	if q.err == nil && q.gone && q.arrived >= q.announced {
		q.err = fmt.Errorf("%w: rank %d has closed plane %d", transport.ErrPeerLost, q.rank, p.id)
	}
	return q.err
}

// TrySend implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.send(h, payload, grant{})
}

// send sends what there is room for: payload from where it is, where that is granted, else copies of it.
// The caller holds e.mu.
// Hot path: no allocation, no logging.
func (p *plane) send(h *wire.Header, payload []byte, g grant) (int, error) {
	q, err := p.peer(int(h.Dst))
	if err != nil {
		return 0, err
	}
	if min(q.credit(p.slots), p.sendRoom(q)) < burst || !p.free(q, q.sent+burst-1) {
		if err := p.progress(); err != nil {
			return 0, err
		}
		if p.aside && q.credit(p.slots) < burst {
			p.e.look()
			q.waits = q.credit(p.slots) <= 0
		}
	}
	if err := p.broken(q); err != nil {
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
	if g.given { // who lends waits for this one
		p.wrs[built-1].Flags |= SendSignaled
	}
	n, err := p.post(q, p.wrs[:built])
	q.sent += uint64(n)
	if n < built {
		taken = n * p.payload // only the last frame may be short, and it was not posted
	}
	if n == 0 && err != nil {
		return 0, q.err
	}
	if g.given {
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
	if q.have {
		return &q.hdr, q.data, nil
	}
	if q.arrived == q.next {
		// One look answers for all peers.
		if q.seen == p.polls {
			err = p.progress()
		}
		q.seen = p.polls
		if err != nil {
			return nil, nil, err
		}
		if q.arrived == q.next {
			// What came before the end is still good. Nobody may be sending any more where frames
			// were lost: whoever waits for anything on this plane hears of it.
			if err := p.broken(q); err != nil {
				return nil, nil, err
			}
			q.waits = true
			return nil, nil, p.failed
		}
	}
	if err := p.decode(q); err != nil {
		return nil, nil, fmt.Errorf("%w: at rank %d, plane %d, from rank %d: %w", transport.ErrCorrupt, p.rank, p.id, src, err)
	}
	return &q.hdr, q.data, nil
}

// Release implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) Release(src int) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(src)
	if err != nil || !q.have {
		return
	}
	q.have, q.data = false, nil
	q.next++
	if q.next-q.told >= uint64(p.every) {
		p.tell(q)
	}
}

// Drained implements [transport.Plane]: true once every request is known to be complete.
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
			p.e.confirm(q)
		}
		if q.signaled < q.posted {
			if err := p.flush(q); err != nil {
				return false, q.err
			}
		}
	}
	return drained, nil
}

// progress takes what the completion queue has. Errors of a peer are kept with it.
// Hot path: no allocation, no logging.
func (p *plane) progress() error {
	some, err := p.take()
	if some {
		p.e.poll.SetReady()
	}
	return err
}

// take is progress, for others than the driving goroutine too: it reports whether there was
// anything.
// Hot path: no allocation, no logging.
func (p *plane) take() (some bool, err error) {
	p.polls++
	for range turns {
		n, err := p.cq.Poll(p.wc[:])
		if err != nil {
			return some, fmt.Errorf("transport: rank %d, plane %d: completion queue: %w", p.rank, p.id, err)
		}
		some = some || n > 0
		for i := range n {
			p.complete(&p.wc[i])
		}
		if n < batch {
			break
		}
	}
	return some, nil
}

// complete acts on one completion.
// Hot path: no allocation, no logging.
func (p *plane) complete(c *Completion) {
	q := &p.peers[int(c.ID&^recvBit>>rankShift)]
	switch {
	case c.Status != Success:
		if q.err == nil {
			p.fail(q, &QPError{Rank: p.rank, Peer: q.rank, Plane: p.id, Epoch: q.epoch, QPN: q.qp.Number(), Status: c.Status, Vendor: c.Vendor, Note: p.at.note})
		}
	case c.ID&recvBit == 0:
		if q.completed += (c.ID - q.completed) & requestMask; q.completed == q.posted {
			q.left = q.sent
		}
		if q.overCredit {
			p.tell(q)
		}
	default:
		err := p.receive(q, c)
		if err == nil && q.reposts >= p.repost {
			err = q.qp.PostRecv(uint64(q.rank)<<rankShift|recvBit, q.reposts)
			q.reposts = 0
		}
		if err != nil {
			p.fail(q, err)
		}
	}
}

// fail ends the flow to and from a peer, and whoever waits on the plane hears of it.
func (p *plane) fail(q *peer, err error) {
	if q.err != nil {
		return
	}
	q.err = err
	if p.failed == nil && !q.gone {
		p.failed = err
	}
}

// settled reports whether nothing that this rank has sent to q, its farewell included, can still
// get there.
func (q *peer) settled() bool {
	return q.qp == nil || q.err != nil || q.gone || q.completed == q.posted
}

// close gives everything back.
func (p *plane) close() error {
	var err error
	for r := range p.peers {
		if q := &p.peers[r]; q.qp != nil {
			err = errors.Join(err, q.qp.Close())
			q.qp = nil
		}
	}
	err = errors.Join(err, CloseQueue(&p.cq, &p.regions))
	// A goroutine that is just inside a call when another closes the endpoint must not fault: the
	// memory goes now, the addresses with the plane.
	if p.memory != nil {
		err = errors.Join(err, unix.Madvise(p.memory, unix.MADV_DONTNEED))
	}
	return err
}
