package ebpf

import (
	"fmt"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
	"lightpath/collectives/transport/internal/frames"
	"lightpath/collectives/wire"
)

const (
	sendFrames = 16 // of one sendmmsg
	recvFrames = 16 // of one recvmmsg
)

// plane is a [transport.Plane] over one socket.
type plane struct {
	e        *Endpoint
	id, fd   int
	payload  int // largest payload of a frame in bytes
	counters Counters
	perByte  float64 // nanoseconds per byte on the wire, 0 if unknown
	peers    []peer  // by rank

	recvWindow uint64 // frames in flight from each rank to this rank

	tx     sendBatch
	txPoll uint64 // see [poller.Set.PollOnce]
	full   bool   // the kernel has no room for frames and will report an event when it has
	epoch  uint32 // of the last frame sent

	rx       recvBatch
	pool     frames.Pool // the windows limit its size
	readable bool

	// The counters of lost frames when the endpoint was connected, and the loss found since.
	dark, misdirected, overflow uint64
	lost                        error

	lastMark   uint64 // see waitForCounter
	queueSent  uint64 // Counters.Sent at the last check for lost frames
	queueStill int    // consecutive checks in which Sent did not move although frames were queued
}

// peer is the state of the flows to and from another rank.
type peer struct {
	addr counts.RawAddr // of its socket

	sent       uint64 // frames
	consumed   uint64 // frames that the peer has consumed, from its credits
	sendWindow uint64 // limit of sent - consumed
	blocked    bool   // a frame waits for a credit

	// Frames from the peer. next is the number of the first unreleased frame, credited the value of next in the last
	// credit sent. ring holds the frames that have arrived, by number modulo its length.
	next, credited uint64
	ring           []*frames.Frame
	have           int    // frames in ring
	rxPoll         uint64 // see [poller.Set.PollOnce]
	gap            int    // consecutive checks in which frame next was missing although later ones had arrived
}

// steered is a plane on which the kernel forwards frames of other ranks.
type steered struct{ *plane }

var (
	_ transport.Plane   = (*plane)(nil)
	_ transport.Steerer = steered{}
)

// peer returns the state of the flows to and from a rank. The caller holds e.mu.
func (p *plane) peer(rank int) (*peer, error) {
	if rank < 0 || rank >= len(p.peers) || rank == p.e.rank {
		return nil, transport.NoPeer(p.e.rank, p.id, rank, len(p.peers))
	}
	if p.e.poll.Closed() {
		return nil, transport.ErrClosed
	}
	return &p.peers[rank], nil
}

// TrySend implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	to, err := p.peer(int(h.Dst))
	if err != nil {
		return 0, err
	}
	p.epoch = h.Epoch
	if err := p.fault(); err != nil {
		return 0, err
	}
	if p.full || to.room() == 0 {
		if p.e.pollReady(&p.txPoll); p.full {
			return 0, nil
		}
	}
	room := min(to.room(), sendFrames)
	if to.blocked = room == 0; to.blocked {
		p.e.wait.needCredit = true
		return 0, nil
	}
	frame, built, taken := *h, 0, 0
	for ; built < room && taken < len(payload); built++ {
		n := min(len(payload)-taken, p.payload)
		frame.Length = uint32(n)
		p.tx.add(built, &to.addr, &frame, uint32(to.sent)+uint32(built), payload[taken:taken+n])
		taken += n
		frame.Offset += uint64(n)
	}
	if built == 0 {
		return 0, nil
	}
	n, errno := p.tx.send(p.fd, built)
	if errno != 0 {
		return 0, p.sendError(errno)
	}
	to.sent += uint64(n)
	if n < built {
		taken = n * p.payload // the last frame, which may be short, was not sent
	}
	return taken, nil
}

// room returns the number of frames that the window allows now.
func (q *peer) room() int { return int(q.consumed + q.sendWindow - q.sent) }

// sendError handles an error of a send. It returns nil if the caller may try again later.
func (p *plane) sendError(errno unix.Errno) error {
	switch errno {
	case unix.EAGAIN:
		return p.e.waitForRoom(p)
	case unix.ENOBUFS, unix.ENOMEM, unix.EINTR, unix.ECONNREFUSED, unix.EHOSTUNREACH:
		p.e.wait.retry = true // no event reports when the send may succeed
		return nil
	}
	return fmt.Errorf("transport: rank %d, plane %d: send: %w", p.e.rank, p.id, errno)
}

// Peek implements [transport.Plane].
// Hot path: no logging; it allocates only when the pool grows.
func (p *plane) Peek(src int) (*wire.Header, []byte, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	from, err := p.peer(src)
	if err != nil {
		return nil, nil, err
	}
	f := from.head()
	if f == nil {
		if !p.readable {
			p.e.pollReady(&from.rxPoll)
		}
		if p.readable {
			if err := p.receive(); err != nil {
				return nil, nil, err
			}
			f = from.head()
		}
		if f == nil {
			return nil, nil, p.fault()
		}
	}
	return &f.Header, f.Data, nil
}

func (q *peer) head() *frames.Frame { return q.ring[q.next&uint64(len(q.ring)-1)] }

// Release implements [transport.Plane].
func (p *plane) Release(src int) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	from, err := p.peer(src)
	if err != nil {
		return
	}
	at := from.next & uint64(len(from.ring)-1)
	f := from.ring[at]
	if f == nil {
		return
	}
	from.ring[at] = nil
	from.next++
	from.have--
	from.gap = 0
	p.pool.Put(f)
	if from.next-from.credited >= max(p.recvWindow/creditParts, 1) {
		p.e.sendCredits(src, 0)
	}
}

// receive reads one batch of datagrams from the socket.
// Hot path: no logging.
func (p *plane) receive() error {
	n, errno := p.rx.receive(p.fd)
	switch errno {
	case 0:
	case unix.EAGAIN:
		p.readable = false
		return nil
	case unix.EINTR, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENOBUFS, unix.ENOMEM:
		return nil
	default:
		return fmt.Errorf("transport: rank %d, plane %d: receive: %w", p.e.rank, p.id, errno)
	}
	p.readable = n == recvFrames
	p.e.poll.SetReady()
	var first error
	for i := range n {
		kept, err := p.accept(i)
		if err != nil && first == nil {
			first = fmt.Errorf("%w: at rank %d, plane %d: %w", transport.ErrCorrupt, p.e.rank, p.id, err)
		}
		if kept {
			p.rx.use(i, p.pool.Get())
		}
	}
	return first
}

// accept decodes datagram i of the batch and enqueues its frame. It reports whether the frame's buffer is in use. It
// ignores datagrams from unknown sockets, and returns an error for a bad datagram from the socket of a rank.
func (p *plane) accept(i int) (bool, error) {
	f := p.rx.frames[i]
	b, whole := p.rx.datagram(i)
	var (
		seq uint32
		err error
	)
	if !whole {
		err = fmt.Errorf("datagram of more than %d bytes", len(f.Buf))
	} else {
		seq, f.Data, err = decode(b, &f.Header)
	}
	if err != nil {
		if p.rankOf(&p.rx.addrs[i]) < 0 {
			return false, nil
		}
		return false, err
	}
	h := &f.Header
	if int(h.Src) >= len(p.peers) || int(h.Src) == p.e.rank || !p.rx.addrs[i].Equal(&p.peers[h.Src].addr) {
		return false, nil
	}
	if err := h.CheckFlow(int(h.Src), p.e.rank, p.id); err != nil {
		return false, err
	}
	if len(f.Data) > p.payload {
		return false, fmt.Errorf("frame of %d bytes, want at most %d", len(f.Data), p.payload)
	}
	return p.enqueue(f, seq)
}

// enqueue stores a frame at its number. It reports false for a duplicate.
func (p *plane) enqueue(f *frames.Frame, seq uint32) (bool, error) {
	from := &p.peers[f.Header.Src]
	ahead := int64(int32(seq - uint32(from.next)))
	if ahead < 0 {
		return false, nil // a duplicate of a released frame
	}
	if uint64(ahead) >= p.recvWindow {
		return false, fmt.Errorf("frame %d of rank %d is beyond its window of %d frames from %d",
			seq, f.Header.Src, p.recvWindow, uint32(from.next))
	}
	slot := &from.ring[(from.next+uint64(ahead))&uint64(len(from.ring)-1)]
	if *slot != nil {
		return false, nil // a duplicate
	}
	*slot = f
	from.have++
	return true, nil
}

// rankOf returns the rank whose socket has this address, or -1.
func (p *plane) rankOf(a *counts.RawAddr) int {
	for r := range p.peers {
		if r != p.e.rank && p.peers[r].addr.Equal(a) {
			return r
		}
	}
	return -1
}

// Drained implements [transport.Plane].
func (p *plane) Drained() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.e.poll.Closed() {
		return false, transport.ErrClosed
	}
	if p.counters == nil {
		var queued int32
		if errno := outq(p.fd, &queued); errno != 0 {
			return false, fmt.Errorf("transport: rank %d, plane %d: SIOCOUTQ: %w", p.e.rank, p.id, errno)
		}
		if queued != 0 {
			p.e.waitForCounter(p, uint64(queued), float64(queued))
		}
		return queued == 0, p.fault()
	}
	// Sent is read first. A frame offered between the two reads then only delays the answer.
	sent := p.counters.Sent()
	left := p.counters.Offered() - sent
	if left != 0 {
		p.e.waitForCounter(p, sent, float64(left)*float64(p.payload))
	}
	return left == 0, p.fault()
}

// Transit implements [transport.Steerer].
// Hot path: no allocation, no logging.
func (p steered) Transit(comm, op uint64, want int64) (int64, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.e.poll.Closed() {
		return 0, transport.ErrClosed
	}
	word := p.counters.TransitOp()
	passed := int64(0)
	if uint32(word>>transitBits) == tag(comm, op) {
		passed = int64(word & (1<<transitBits - 1))
	}
	if passed < want {
		p.e.waitForCounter(p.plane, word, float64(want-passed))
	}
	return passed, p.fault()
}

// fault returns the error for frames that this plane has lost, or nil.
func (p *plane) fault() error {
	if p.lost != nil || p.counters == nil {
		return p.lost
	}
	dark, misdirected := p.counters.Dropped()
	if dark == p.dark && misdirected == p.misdirected {
		return nil
	}
	p.lost = fmt.Errorf("%w: rank %d, plane %d, epoch %d: %d dark, %d misdirected",
		transport.ErrDark, p.e.rank, p.id, p.epoch, dark-p.dark, misdirected-p.misdirected)
	return p.lost
}
