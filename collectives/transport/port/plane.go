package port

import (
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/ocsctl/emulator"
)

// plane is a [transport.Forwarder] over one port.
type plane struct {
	e       *Endpoint
	id      int
	mem     emulator.PortMemory
	health  func(plane int) error
	payload int // most data bytes of a frame

	// The head of the receive ring, once it has been looked at.
	have   bool
	passed bool // PeekTransit has left it to Peek once
	head   wire.Header
	data   []byte

	queues []queue // by source: frames set aside, older than any in the ring
	stash  stash
}

var _ transport.Forwarder = (*plane)(nil)

// Payload implements [transport.Forwarder].
func (p *plane) Payload() int { return p.payload }

// Backlog implements [transport.Forwarder].
func (p *plane) Backlog() int { return p.mem.TX.Pending() }

// TrySend implements [transport.Plane]: a new frame only where two slots are free.
// Hot path: no allocation, no locks, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	if err := p.peer(int(h.Dst)); err != nil {
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

// Peek implements [transport.Plane]. Its views may move when another source is asked for:
// they are valid until then, or Release.
// Hot path: no locks, no logging; the stash allocates as it grows.
func (p *plane) Peek(src int) (*wire.Header, []byte, error) {
	if err := p.peer(src); err != nil {
		return nil, nil, err
	}
	if f := p.queues[src].first; f != nil {
		return &f.hdr, f.data, nil
	}
	for {
		if ok, err := p.look(); !ok || int(p.head.Dst) != p.e.rank {
			return nil, nil, err
		}
		if int(p.head.Src) == src {
			return &p.head, p.data, nil
		}
		if !p.setAside() {
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
		p.stash.put(q.pop())
	} else if p.have && int(p.head.Src) == src && int(p.head.Dst) == p.e.rank {
		p.drop()
	}
}

// PeekTransit implements [transport.Forwarder]. A head for this rank it leaves to Peek, who
// can read it where it is; if it still stands there the next time it is set aside.
// Hot path: no locks, no logging; the stash allocates as it grows.
func (p *plane) PeekTransit() (*wire.Header, []byte, error) {
	if p.e.sleeper.Closed() {
		return nil, nil, transport.ErrClosed
	}
	for {
		if ok, err := p.look(); !ok {
			return nil, nil, err
		}
		if int(p.head.Dst) != p.e.rank {
			return &p.head, p.data, nil
		}
		if !p.passed || !p.setAside() {
			p.passed = true
			return nil, nil, nil
		}
	}
}

// Forward implements [transport.Forwarder]: one free slot is enough.
// Hot path: no allocation, no locks, no logging.
func (p *plane) Forward(epoch uint32) (bool, error) {
	if p.e.sleeper.Closed() {
		return false, transport.ErrClosed
	}
	if !p.have || int(p.head.Dst) == p.e.rank {
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
	p.drop() // and tells the switch
	return true, nil
}

// Drained implements [transport.Plane]: the switch releases a slot when its last byte has
// left the wire.
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

// look makes the head of the receive ring, if there is one, the plane's head.
func (p *plane) look() (bool, error) {
	if p.have {
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
	p.have, p.passed = true, false
	return true, nil
}

func (p *plane) decode(slot []byte, tag uint32) error {
	if err := wire.Decode(slot, &p.head); err != nil {
		return err
	}
	p.data = slot[wire.HeaderSize:]
	h := &p.head
	switch ranks := len(p.queues); {
	case int(h.Length) != len(p.data):
		return fmt.Errorf("frame of %d bytes claims %d", len(p.data), h.Length)
	case len(p.data) > p.payload:
		return fmt.Errorf("frame of %d bytes, more than %d", len(p.data), p.payload)
	case h.Epoch != tag:
		return fmt.Errorf("frame of epoch %d in a slot of epoch %d", h.Epoch, tag)
	case int(h.Src) >= ranks || int(h.Dst) >= ranks || h.Src == h.Dst || int(h.Plane) != p.id:
		return fmt.Errorf("frame of flow %d to %d on plane %d", h.Src, h.Dst, h.Plane)
	case int(h.Src) == p.e.rank:
		return fmt.Errorf("frame to rank %d has come back to its source", h.Dst)
	}
	return nil
}

// setAside moves the head, a frame for this rank, to the queue of its flow. It reports
// false at the bound of the stash.
func (p *plane) setAside() bool {
	f := p.stash.get(p.payload)
	if f == nil {
		return false
	}
	f.hdr = p.head
	f.data = f.buf[:copy(f.buf, p.data)]
	p.queues[f.hdr.Src].push(f)
	p.drop()
	return true
}

// drop releases the head's slot and tells the switch, which may wait for it.
func (p *plane) drop() {
	p.have, p.data = false, nil
	p.mem.RX.Release()
	p.mem.Kick()
}

// peer checks that flows between this rank and another make sense.
func (p *plane) peer(rank int) error {
	if rank < 0 || rank >= len(p.queues) || rank == p.e.rank {
		return transport.NoPeer(p.e.rank, p.id, rank, len(p.queues))
	}
	if p.e.sleeper.Closed() {
		return transport.ErrClosed
	}
	return nil
}
