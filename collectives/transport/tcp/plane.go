package tcp

import (
	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
)

// A copy of at most longCopy bytes is made after this number of urgent calls of Returned. The other rank acknowledges
// the last bytes only when it has a CPU. If both ranks have one, that takes fewer calls; otherwise the caller should
// not wait.
const (
	longCopy = maxPayload
	asks     = 64
)

// plane is a [transport.Lander] and [transport.Borrower] with one connection per peer.
type plane struct {
	e     *endpoint
	id    int
	conns []*conn // by rank; nil for this rank
}

func (p *plane) conn(peer int) (*conn, error) {
	if peer < 0 || peer >= len(p.conns) || p.conns[peer] == nil {
		return nil, transport.NoPeer(p.e.rank, p.id, peer, len(p.conns))
	}
	if p.e.poll.Closed() {
		return nil, transport.ErrClosed
	}
	return p.conns[peer], nil
}

// TrySend implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) TrySend(h *wire.Header, payload []byte) (int, error) {
	n, _, err := p.offer(h, payload, false)
	return n, err
}

// Lend implements [transport.Borrower]. If heartbeats are off, no connection takes over a stream, and the mark is 0.
// Hot path: no allocation, no logging.
func (p *plane) Lend(h *wire.Header, payload []byte) (int, uint64, error) {
	return p.offer(h, payload, len(payload) > copied)
}

// Returned implements [transport.Borrower]. The peer's host has received what is returned, or a copy is here. A copy is
// made if it is short, or if the caller would sleep only until the network has taken more.
func (p *plane) Returned(dst int, urgent bool) (uint64, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	c, err := p.conn(dst)
	if err != nil {
		return 0, err
	}
	if c.txLost != nil {
		return 0, c.txLost
	}
	c.sent.trim(c.received())
	if c.sent.lent > 0 {
		rest := c.sent.end - c.sent.base
		if urgent {
			c.asked++
		}
		waited := p.e.armed || rest <= longCopy && c.asked >= asks
		if rest > copied && (!urgent || !waited) {
			return c.sent.base, nil
		}
		c.sent.own()
	}
	c.asked = 0
	return c.sent.end, nil
}

// Abandon implements [transport.Abandoner].
func (p *plane) Abandon() {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	for _, c := range p.conns {
		if c != nil && c.sent.lent > 0 {
			c.guard.give(c, transport.ErrClosed)
		}
	}
}

// offer sends frames until the kernel accepts no more, at most burst. mark is the position in the stream after lent
// payload, 0 if none was lent.
func (p *plane) offer(h *wire.Header, payload []byte, lend bool) (taken int, mark uint64, err error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	c, err := p.conn(int(h.Dst))
	if err != nil {
		return 0, 0, err
	}
	if c.full {
		if c.txLost != nil {
			return 0, 0, c.txLost
		}
		if p.e.pollReady(&c.txPoll); c.full {
			return 0, 0, nil
		}
	}
	frame := *h
	for range burst {
		if taken == len(payload) {
			break
		}
		n, err := c.send(&frame, payload[taken:], lend)
		taken += n
		frame.Offset += uint64(n)
		if err != nil && taken == 0 {
			return 0, 0, err
		}
		if err != nil || c.full || c.unsent != 0 {
			break
		}
	}
	if lend && c.sent.lent > 0 {
		mark = c.sent.end
	}
	return taken, mark, nil
}

// Peek implements [transport.Plane].
// Hot path: no allocation, no logging.
func (p *plane) Peek(src int) (*wire.Header, []byte, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	c, err := p.parse(src)
	if err != nil {
		return nil, nil, err
	}
	if !c.choosePiece() {
		// Read the rest of this frame and a little of the next, so that a piece is a whole frame if enough has arrived.
		ahead := lookahead
		if c.hasHeader {
			ahead += int(c.hdr.Length) - (c.end - c.start)
		} else {
			ahead = wire.HeaderSize + maxPayload
		}
		if err := p.fill(c, ahead); err != nil || !c.choosePiece() {
			return nil, nil, err
		}
	}
	return &c.shown, c.pieceData(), nil
}

// Head implements [transport.Lander].
// Hot path: no allocation, no logging.
func (p *plane) Head(src int) (*wire.Header, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	c, err := p.parse(src)
	if err == nil && !c.hasHeader {
		err = p.fill(c, c.expected())
	}
	if err != nil || !c.hasHeader {
		return nil, err
	}
	return &c.hdr, nil
}

// Land implements [transport.Lander].
// Hot path: no allocation, no logging.
func (p *plane) Land(src int, dst []byte) (int, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	c, err := p.conn(src)
	if err != nil || !c.hasHeader {
		return 0, err
	}
	if !c.readable && c.start == c.end {
		p.e.pollReady(&c.rxPoll)
	}
	return c.receiveInto(dst)
}

// parse returns the connection from src, and parses the header of its oldest frame if the header is in the buffer.
func (p *plane) parse(src int) (*conn, error) {
	c, err := p.conn(src)
	if err != nil {
		return nil, err
	}
	return c, c.parse(p.e.rank)
}

// fill receives at most ahead bytes into c's buffer if the kernel may have any, then parses again.
func (p *plane) fill(c *conn, ahead int) error {
	if c.rxLost != nil && len(c.backlog) == 0 {
		return c.rxLost
	}
	if !c.readable && (p.e.armed || len(p.e.conns) > fewConns) {
		if p.e.pollReady(&c.rxPoll); !c.readable {
			p.e.idle++
			return nil
		}
	}
	n, err := c.receive(nil, ahead)
	if err != nil {
		return err
	}
	if n == 0 {
		p.e.idle++
	}
	p.e.armed = p.e.armed && n == 0 // after an arrival the rank does not sleep
	err = c.parse(p.e.rank)
	c.expectLess()
	return err
}

// Release implements [transport.Plane].
func (p *plane) Release(src int) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if c, err := p.conn(src); err == nil {
		c.release()
	}
}

// Drained implements [transport.Plane]. The plane is drained when the peers' hosts have acknowledged every byte.
func (p *plane) Drained() (bool, error) {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	for peer, c := range p.conns {
		if c == nil {
			continue
		}
		if _, err := p.conn(peer); err != nil {
			return false, err
		}
		if ok, err := c.drained(); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
