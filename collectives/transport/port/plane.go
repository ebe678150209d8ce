package port

import (
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/internal/frames"
	"lightpath/collectives/wire"
	"lightpath/ocsctl/emulator"
)

// plane is a [transport.Forwarder] over one port.
type plane struct {
	e       *Endpoint
	id      int
	mem     emulator.PortMemory
	health  func(plane int) error
	payload int // largest payload of a frame in bytes

	// The oldest frame of the receive ring, if decoded is set.
	decoded bool
	skipped bool // PeekTransit has left the frame to Peek once
	head    wire.Header
	data    []byte

	queues []queue // by source: frames copied out of the ring, older than all frames in it
	pool   frames.Pool
}

var _ transport.Forwarder = (*plane)(nil)

// Payload implements [transport.Forwarder].
func (p *plane) Payload() int { return p.payload }

// Backlog implements [transport.Forwarder].
func (p *plane) Backlog() int { return p.mem.TX.Pending() }

// TrySend implements [transport.Plane]. A new frame needs two free slots.
// Hot path: no allocation, no locks, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	if err := p.checkPeer(int(h.Dst)); err != nil {
		return 0, err
	}
	frame, taken := *h, 0
	for taken < len(payload) && p.mem.TX.Free() >= 2 {
		slot := p.mem.TX.Reserve()
		n := min(len(payload)-taken, p.payload)
		frame.Length = uint32(n)
		wire.Encode(&frame, slot)
		copy(slot[wire.HeaderSize:], payload[taken:taken+n])
		p.mem.TX.Commit(wire.HeaderSize+n, frame.Epoch)
		taken += n
		frame.Offset += uint64(n)
	}
	if taken > 0 {
		p.mem.Kick()
	}
	return taken, nil
}

// Peek implements [transport.Plane]. The result is valid until Release(src) or Peek of another source.
// Hot path: no locks, no logging; it allocates only when the pool grows.
func (p *plane) Peek(src int) (*wire.Header, []byte, error) {
	if err := p.checkPeer(src); err != nil {
		return nil, nil, err
	}
	if f := p.queues[src].first; f != nil {
		return &f.Header, f.Data, nil
	}
	for {
		if ok, err := p.decodeHead(); !ok || int(p.head.Dst) != p.e.rank {
			return nil, nil, err
		}
		if int(p.head.Src) == src {
			return &p.head, p.data, nil
		}
		if !p.enqueueHead() {
			return nil, nil, nil
		}
	}
}

// Release implements [transport.Plane].
func (p *plane) Release(src int) {
	if src < 0 || src >= len(p.queues) || p.e.sleeper.Closed() {
		return
	}
	if q := &p.queues[src]; q.first != nil {
		p.pool.Put(q.pop())
	} else if p.decoded && int(p.head.Src) == src && int(p.head.Dst) == p.e.rank {
		p.releaseHead()
	}
}

// PeekTransit implements [transport.Forwarder]. It leaves an oldest frame for this rank in the ring once, so that Peek
// can return it without a copy. The next call copies the frame to its queue.
// Hot path: no locks, no logging; it allocates only when the pool grows.
func (p *plane) PeekTransit() (*wire.Header, []byte, error) {
	if p.e.sleeper.Closed() {
		return nil, nil, transport.ErrClosed
	}
	for {
		if ok, err := p.decodeHead(); !ok {
			return nil, nil, err
		}
		if int(p.head.Dst) != p.e.rank {
			return &p.head, p.data, nil
		}
		if !p.skipped || !p.enqueueHead() {
			p.skipped = true
			return nil, nil, nil
		}
	}
}

// Forward implements [transport.Forwarder]. A forwarded frame needs one free slot.
// Hot path: no allocation, no locks, no logging.
func (p *plane) Forward(epoch uint32) (bool, error) {
	if p.e.sleeper.Closed() {
		return false, transport.ErrClosed
	}
	if !p.decoded || int(p.head.Dst) == p.e.rank {
		return false, nil
	}
	slot := p.mem.TX.Reserve()
	if slot == nil {
		return false, nil
	}
	p.head.Epoch = epoch
	wire.Encode(&p.head, slot)
	copy(slot[wire.HeaderSize:], p.data)
	p.mem.TX.Commit(wire.HeaderSize+len(p.data), epoch)
	p.releaseHead() // also notifies the switch of the forwarded frame
	return true, nil
}

// Drained implements [transport.Plane]. The switch releases a slot when its last byte has left the wire.
func (p *plane) Drained() (bool, error) {
	if p.e.sleeper.Closed() {
		return false, transport.ErrClosed
	}
	if !p.mem.TX.Empty() {
		return false, nil
	}
	if p.health != nil {
		if err := p.health(p.id); err != nil {
			return false, fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrDark, p.e.rank, p.id, err)
		}
	}
	return true, nil
}

// decodeHead decodes the oldest frame of the receive ring and reports whether there is one.
func (p *plane) decodeHead() (bool, error) {
	if p.decoded {
		return true, nil
	}
	slot, tag, err := p.mem.RX.Peek()
	if slot == nil && err == nil {
		return false, nil
	}
	if err == nil {
		err = p.decode(slot, tag)
	}
	if err != nil {
		return false, fmt.Errorf("%w: at rank %d, plane %d: %w", transport.ErrCorrupt, p.e.rank, p.id, err)
	}
	p.decoded, p.skipped = true, false
	return true, nil
}

// decode reads a frame into p.head and p.data and checks that it may arrive here. tag is the slot's epoch.
func (p *plane) decode(slot []byte, tag uint32) (err error) {
	h := &p.head
	if p.data, err = wire.DecodeFrame(slot, h); err != nil {
		return err
	}
	switch ranks := len(p.queues); {
	case len(p.data) > p.payload:
		return fmt.Errorf("frame of %d bytes, want at most %d", len(p.data), p.payload)
	case h.Epoch != tag:
		return fmt.Errorf("frame of epoch %d in a slot of epoch %d", h.Epoch, tag)
	case int(h.Src) >= ranks || int(h.Dst) >= ranks || h.Src == h.Dst || int(h.Plane) != p.id:
		return fmt.Errorf("frame from rank %d to rank %d on plane %d, not a flow of plane %d", h.Src, h.Dst, h.Plane, p.id)
	case int(h.Src) == p.e.rank:
		return fmt.Errorf("frame to rank %d has come back to its source", h.Dst)
	}
	return nil
}

// enqueueHead copies the oldest frame of the ring, a frame for this rank, to the queue of its flow. It returns false
// if the pool has reached its limit.
func (p *plane) enqueueHead() bool {
	f := p.pool.Get()
	if f == nil {
		return false
	}
	f.Header = p.head
	f.Data = f.Buf[:copy(f.Buf, p.data)]
	p.queues[f.Header.Src].push(f)
	p.releaseHead()
	return true
}

// releaseHead releases the slot of the oldest frame and notifies the switch, which may wait for a free slot.
func (p *plane) releaseHead() {
	p.decoded, p.data = false, nil
	p.mem.RX.Release()
	p.mem.Kick()
}

// checkPeer returns an error if this rank has no flow to or from the other rank, or if the endpoint is closed.
func (p *plane) checkPeer(rank int) error {
	if rank < 0 || rank >= len(p.queues) || rank == p.e.rank {
		return transport.NoPeer(p.e.rank, p.id, rank, len(p.queues))
	}
	if p.e.sleeper.Closed() {
		return transport.ErrClosed
	}
	return nil
}
