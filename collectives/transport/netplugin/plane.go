package netplugin

import (
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// burst is the largest number of frames that one call sends, so that a sending rank regularly checks for arrivals.
const burst = 4

// plane is a [transport.Borrower] with two connections per peer.
type plane struct {
	e       *Endpoint
	id      int
	payload int // largest payload of a frame in bytes
	peers   []peer
}

// peer is the state of the flows to and from another rank.
type peer struct {
	rank  int
	rings [2][]byte // of rx and tx
	epoch uint32    // of the last frame sent
	tx    sender
	rx    receiver
}

// peer returns the state of the flows to and from a rank. The caller holds e.mu.
func (p *plane) peer(rank int) (*peer, error) {
	if rank < 0 || rank >= len(p.peers) || rank == p.e.rank {
		return nil, transport.NoPeer(p.e.rank, p.id, rank, len(p.peers))
	}
	if p.e.sleeper.Closed() {
		return nil, transport.ErrClosed
	}
	return &p.peers[rank], nil
}

// progressTo advances the sends to q. It returns the error of the flow.
// Hot path: no allocation, no logging.
func (p *plane) progressTo(q *peer) error {
	if q.tx.progress() {
		p.e.ready = true
	}
	switch {
	case q.tx.err != nil:
		return flowError(p.e.rank, p.id, q.epoch, "to", q.rank, q.tx.err)
	case q.tx.done == q.tx.built:
		return nil
	}
	p.progressFrom(q) // the peer may have closed
	return p.left(q)
}

// progressFrom advances the receives from q, and notices a farewell. It reports whether there is an unreleased frame.
// Hot path: no allocation, no logging.
func (p *plane) progressFrom(q *peer) bool {
	rx := &q.rx
	if rx.done == rx.released && rx.progress() {
		p.e.ready = true
	}
	if rx.gone || rx.done == rx.released {
		return false
	}
	rx.gone = !rx.decoded && isFarewell(rx.message())
	return !rx.gone
}

// left returns an error if q has closed its endpoint.
func (p *plane) left(q *peer) error {
	if !q.rx.gone {
		return nil
	}
	return fmt.Errorf("%w: rank %d has closed plane %d", transport.ErrPeerLost, q.rank, p.id)
}

// TrySend implements [transport.Plane]. It accepts bytes when the plugin has sent them, because the caller may not call
// the plane again after that.
// Hot path: no allocation, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (n int, err error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(int(h.Dst))
	if err != nil {
		return 0, err
	}
	if q.tx.trying == 0 {
		q.tx.trying, err = p.send(q, h, payload)
	} else {
		err = p.progressTo(q)
	}
	if err != nil || q.tx.done != q.tx.built {
		return 0, err
	}
	n, q.tx.trying = q.tx.trying, 0
	return n, nil
}

// Lend implements [transport.Borrower].
// Hot path: no allocation, no logging.
func (p *plane) Lend(h *wire.Header, payload []byte) (n int, mark uint64, err error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(int(h.Dst))
	if err != nil {
		return 0, 0, err
	}
	n, err = p.send(q, h, payload)
	return n, q.tx.built, err
}

// send sends as much payload as there is room for, and returns its size.
// Hot path: no allocation, no logging.
func (p *plane) send(q *peer, h *wire.Header, payload []byte) (taken int, err error) {
	q.epoch = h.Epoch
	if q.tx.room() < burst {
		err = p.progressTo(q)
	}
	if err == nil {
		err = p.left(q)
	}
	if err != nil {
		return 0, err
	}
	frame := *h
	for range min(burst, q.tx.room()) {
		if taken == len(payload) {
			break
		}
		n := min(len(payload)-taken, p.payload)
		frame.Length = uint32(n)
		q.tx.build(&frame, payload[taken:taken+n])
		taken += n
		frame.Offset += uint64(n)
	}
	return taken, p.progressTo(q)
}

// Returned implements [transport.Borrower].
// Hot path: no allocation, no logging.
func (p *plane) Returned(dst int, _ bool) (uint64, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(dst)
	if err == nil && q.tx.done != q.tx.built {
		err = p.progressTo(q)
	}
	if err != nil {
		return 0, err
	}
	return q.tx.done, nil
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
	rx := &q.rx
	if !p.progressFrom(q) {
		if rx.err != nil {
			return nil, nil, flowError(p.e.rank, p.id, q.epoch, "from", src, rx.err)
		}
		return nil, nil, p.left(q)
	}
	if !rx.decoded {
		if err := p.decode(q); err != nil {
			return nil, nil, fmt.Errorf("%w: at rank %d, plane %d, from rank %d: %w", transport.ErrCorrupt, p.e.rank, p.id,
				src, err)
		}
	}
	return &rx.hdr, rx.data, nil
}

// decode decodes the oldest message as a frame.
func (p *plane) decode(q *peer) (err error) {
	rx := &q.rx
	if rx.data, err = wire.DecodeFrame(rx.message(), &rx.hdr); err == nil {
		err = rx.hdr.CheckFlow(q.rank, p.e.rank, p.id)
	}
	rx.decoded = err == nil
	return err
}

// Release implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) Release(src int) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	q, err := p.peer(src)
	if err != nil || !q.rx.decoded {
		return
	}
	q.rx.decoded, q.rx.data = false, nil
	q.rx.released++
	p.progressFrom(q)
}

// Drained implements [transport.Plane]. The plane is drained when the plugin has sent all messages.
func (p *plane) Drained() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.e.sleeper.Closed() {
		return false, transport.ErrClosed
	}
	drained := true
	for r := range p.peers {
		q := &p.peers[r]
		if q.tx.done == q.tx.built {
			continue
		}
		if err := p.progressTo(q); err != nil && !q.rx.gone {
			return false, err
		}
		drained = drained && (q.tx.done == q.tx.built || q.rx.gone)
	}
	return drained, nil
}
