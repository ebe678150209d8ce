package ebpf

import (
	"fmt"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/counts"
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
	payload  int // most data bytes of a frame
	counters Counters
	perByte  float64 // nanoseconds of the wire, 0 if unknown
	peers    []peer  // by rank
	mine     uint64  // window of each rank at this one, in frames

	tx     sendBatch
	txSeen uint64 // sweep of the endpoint in which room was last asked for
	full   bool   // the kernel has no room for frames; the endpoint is told when it has
	epoch  uint32 // of the last frame sent

	rx       recvBatch
	pool     pool
	readable bool

	// What the counters said when the endpoint was made, and the loss found since.
	dark, misdirected, overflow uint64
	lost                        error
	strays                      uint64 // datagrams of nobody's
	progress                    uint64 // of counters, at the last wait for them
	queueSent                   uint64 // what the switch had taken at the last look for lost frames,
	queueStill                  int    // and looks in a row in which it had taken nothing of what was there
}

// peer is what a plane knows of another rank.
type peer struct {
	name counts.RawAddr // of its socket

	sent     uint64 // frames
	consumed uint64 // of them, as far as that rank has told
	window   uint64 // how far sent may be ahead of consumed
	blocked  bool   // a frame is waiting for the window to move

	// Frames from that rank: next is the number of the first that has not been released, told
	// the one it was last told; ring holds what has arrived from next on, by number.
	next, told uint64
	ring       []*frame
	have       int    // frames in ring
	seen       uint64 // sweep in which they were last asked for
	hole       int    // looks in a row in which the next frame was missing
}

// steered is a plane on which the kernel passes traffic of others through this rank.
type steered struct{ *plane }

var (
	_ transport.Plane   = (*plane)(nil)
	_ transport.Steerer = steered{}
)

// peer checks that flows between this rank and another make sense. The caller holds e.mu.
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
		if p.e.ask(&p.txSeen); p.full {
			return 0, nil
		}
	}
	room := min(to.room(), sendFrames)
	if to.blocked = room == 0; to.blocked {
		p.e.pace.starved = true
		return 0, nil
	}
	frame, built, taken := *h, 0, 0
	for ; built < room && taken < len(payload); built++ {
		n := min(len(payload)-taken, p.payload)
		frame.Length = uint32(n)
		p.tx.add(built, &to.name, &frame, uint32(to.sent)+uint32(built), payload[taken:taken+n])
		taken += n
		frame.Offset += uint64(n)
	}
	if built == 0 {
		return 0, nil
	}
	n, errno := p.tx.send(p.fd, built)
	if errno != 0 {
		return 0, p.refused(errno)
	}
	to.sent += uint64(n)
	if n < built {
		taken = n * p.payload // only the last frame may be short, and it was not sent
	}
	return taken, nil
}

// room is how many frames may be sent.
func (q *peer) room() int { return int(q.consumed + q.window - q.sent) }

// refused says what it means that the kernel takes no frame: nil if that passes.
func (p *plane) refused(errno unix.Errno) error {
	switch errno {
	case unix.EAGAIN:
		return p.e.waitForRoom(p)
	case unix.ENOBUFS, unix.ENOMEM, unix.EINTR, unix.ECONNREFUSED, unix.EHOSTUNREACH:
		p.e.hurry() // nobody tells when this is over
		return nil
	}
	return fmt.Errorf("transport: rank %d, plane %d: send: %w", p.e.rank, p.id, errno)
}

// Peek implements [transport.Plane].
// Hot path: no logging; the pool allocates as it grows.
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
			p.e.ask(&from.seen)
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
	return &f.hdr, f.data, nil
}

func (q *peer) head() *frame { return q.ring[q.next&uint64(len(q.ring)-1)] }

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
	from.hole = 0
	p.pool.put(f)
	if from.next-from.told >= max(p.mine/creditParts, 1) {
		p.e.tell(src, 0)
	}
}

// receive takes what the socket has, up to one batch.
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
		kept, err := p.sort(i)
		if err != nil && first == nil {
			first = fmt.Errorf("%w: at rank %d, plane %d: %w", transport.ErrCorrupt, p.e.rank, p.id, err)
		}
		if kept {
			p.rx.use(i, p.pool.get())
		}
	}
	return first
}

// sort puts datagram i of the batch in its place, and reports whether its frame is kept there.
// What comes from nobody's socket is nobody's business; what comes from a rank must be right.
func (p *plane) sort(i int) (bool, error) {
	f := p.rx.frames[i]
	b, whole := p.rx.datagram(i)
	var (
		seq uint32
		err error
	)
	if !whole {
		err = fmt.Errorf("datagram of more than %d bytes", len(f.buf))
	} else {
		seq, f.data, err = decode(b, &f.hdr)
	}
	if err != nil {
		if p.whose(&p.rx.names[i]) < 0 {
			p.strays++
			return false, nil
		}
		return false, err
	}
	h := &f.hdr
	if int(h.Src) >= len(p.peers) || int(h.Src) == p.e.rank || !p.rx.names[i].Equal(&p.peers[h.Src].name) {
		p.strays++
		return false, nil
	}
	if int(h.Dst) != p.e.rank || int(h.Plane) != p.id || len(f.data) > p.payload {
		return false, fmt.Errorf("frame of %d bytes of flow %d to %d on plane %d", len(f.data), h.Src, h.Dst, h.Plane)
	}
	return p.enqueue(f, seq)
}

// enqueue puts a frame where its number says.
func (p *plane) enqueue(f *frame, seq uint32) (bool, error) {
	from := &p.peers[f.hdr.Src]
	ahead := int64(int32(seq - uint32(from.next)))
	if ahead < 0 {
		return false, nil // a copy of one that has been released
	}
	if uint64(ahead) >= p.mine {
		return false, fmt.Errorf("frame %d of rank %d is beyond its window, which begins at %d", seq, f.hdr.Src, uint32(from.next))
	}
	slot := &from.ring[(from.next+uint64(ahead))&uint64(len(from.ring)-1)]
	if *slot != nil {
		return false, nil // a copy
	}
	*slot = f
	from.have++
	return true, nil
}

// whose returns the rank whose socket has this name, or -1.
func (p *plane) whose(n *counts.RawAddr) int {
	for r := range p.peers {
		if r != p.e.rank && p.peers[r].name.Equal(n) {
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
			p.e.watch(p, uint64(queued), float64(queued))
		}
		return queued == 0, p.fault()
	}
	// In this order: what is offered later only makes the answer no.
	sent := p.counters.Sent()
	left := p.counters.Offered() - sent
	if left != 0 {
		p.e.watch(p, sent, float64(left)*float64(p.payload))
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
		p.e.watch(p.plane, word, float64(want-passed))
	}
	return passed, p.fault()
}

// fault returns the loss of frames that has been found on this plane, if any.
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
