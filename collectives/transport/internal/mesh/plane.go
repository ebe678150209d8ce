package mesh

import (
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/shmring"
)

// burst is the largest number of frames that one TrySend sends, so that a sending rank regularly checks for arrivals.
const burst = 4

// plane is a [transport.Plane] with a ring to and a ring from every other rank.
type plane struct {
	e       *Endpoint
	id      int
	payload int // largest payload of a frame in bytes
	tx      []*shmring.Ring
	rx      []inbox
}

// inbox is the ring from one source. If decoded is set, hdr and data are its oldest frame.
type inbox struct {
	ring    *shmring.Ring
	decoded bool
	hdr     wire.Header
	data    []byte
}

func newPlane(e *Endpoint, mem []byte, g Geometry, id int) (*plane, error) {
	p := &plane{e: e, id: id, payload: g.Payload, tx: make([]*shmring.Ring, g.Ranks), rx: make([]inbox, g.Ranks)}
	for r := range g.Ranks {
		if r == e.rank {
			continue
		}
		var err error
		if p.tx[r], err = shmring.New(mem[g.ring(id, e.rank, r):], g.Slots, wire.HeaderSize+g.Payload); err != nil {
			return nil, err
		}
		if p.rx[r].ring, err = shmring.New(mem[g.ring(id, r, e.rank):], g.Slots, wire.HeaderSize+g.Payload); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// TrySend implements [transport.Plane].
// Hot path: no allocation, no locks, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	dst := int(h.Dst)
	if dst >= len(p.tx) || p.tx[dst] == nil {
		return 0, transport.NoPeer(p.e.rank, p.id, dst, len(p.tx))
	}
	if err := p.closed(dst); err != nil {
		return 0, err
	}
	ring, bell := p.tx[dst], p.e.peers[dst].bell
	frame, taken := *h, 0
	for range burst {
		if taken == len(payload) {
			break
		}
		slot := ring.Reserve()
		if slot == nil && taken == 0 && p.e.armed {
			ring.Want()
			slot = ring.Reserve()
		}
		if slot == nil {
			break
		}
		n := min(len(payload)-taken, p.payload)
		frame.Length = uint32(n)
		wire.Encode(&frame, slot)
		copy(slot[wire.HeaderSize:], payload[taken:taken+n])
		ring.Commit(wire.HeaderSize+n, frame.Epoch)
		bell.Ring()
		taken += n
		frame.Offset += uint64(n)
	}
	return taken, nil
}

// Peek implements [transport.Plane].
// Hot path: no allocation, no locks, no logging.
func (p *plane) Peek(src int) (*wire.Header, []byte, error) {
	if src < 0 || src >= len(p.rx) || p.rx[src].ring == nil {
		return nil, nil, transport.NoPeer(p.e.rank, p.id, src, len(p.rx))
	}
	in := &p.rx[src]
	if in.decoded {
		return &in.hdr, in.data, nil
	}
	slot, _, err := in.ring.Peek()
	if slot == nil && err == nil {
		if err = p.closed(src); err == nil {
			return nil, nil, nil
		}
		// Frames that the peer sent before it closed are still valid.
		if slot, _, _ = in.ring.Peek(); slot == nil {
			return nil, nil, err
		}
		err = nil
	}
	if err == nil {
		err = p.decode(in, slot, src)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: rank %d, plane %d: %w", transport.ErrCorrupt, src, p.id, err)
	}
	return &in.hdr, in.data, nil
}

// decode decodes slot as the oldest frame of in.
func (p *plane) decode(in *inbox, slot []byte, src int) (err error) {
	if in.data, err = wire.DecodeFrame(slot, &in.hdr); err == nil {
		err = in.hdr.CheckFlow(src, p.e.rank, p.id)
	}
	in.decoded = err == nil
	return err
}

// Release implements [transport.Plane].
func (p *plane) Release(src int) {
	in := &p.rx[src]
	if !in.decoded {
		return
	}
	in.decoded, in.data = false, nil
	in.ring.Release()
	if in.ring.Wanted() {
		p.e.peers[src].bell.Ring()
	}
}

// Drained implements [transport.Plane]. The plane is drained when the receivers have released every frame.
func (p *plane) Drained() (bool, error) {
	if p.e.sleeper.Closed() {
		return false, transport.ErrClosed
	}
	for dst, ring := range p.tx {
		if ring == nil || ring.Empty() {
			continue
		}
		err := p.closed(dst) // first: a peer that has closed has released all frames that it will release
		if p.e.armed {
			ring.Want()
		}
		if !ring.Empty() {
			return false, err
		}
	}
	return true, nil
}

// closed returns an error if this rank or the peer has closed its endpoint.
func (p *plane) closed(peer int) error {
	if p.e.sleeper.Closed() {
		return transport.ErrClosed
	}
	if p.e.peers[peer].state.Load() == stateClosed {
		return fmt.Errorf("%w: rank %d has closed plane %d", transport.ErrPeerLost, peer, p.id)
	}
	return nil
}
