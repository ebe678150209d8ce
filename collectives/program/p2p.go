package program

import "fmt"

// Message is a send to, or a receive from, a rank.
type Message struct {
	Peer  int
	Bytes int64
	// Whole is the size of the longer message of which this one is a piece, or 0. Sender and receiver must cut it at
	// the same places.
	Whole int64
}

// P2PArgs are the arguments of [BuildP2P]. All ranks must use the same Ranks, Planes and MinPiece.
type P2PArgs struct {
	Rank, Ranks, Planes int
	// MinPiece is the smallest piece of a message that uses a plane of its own, in bytes. 0 means DefaultMinPiece.
	MinPiece int64
}

// BuildP2P sets p to the program of a group of sends and receives on packet planes. The k-th send to a rank matches the
// k-th receive of that rank from this one, counted over the life of the communicator. Messages of the rank to itself
// become copies. Message i of the call's buffers is sends[i], or recvs[i-len(sends)].
//
// BuildP2P overwrites p and reuses its memory. It does not allocate if p has held a group of at least that size. No
// executor may use p meanwhile. After an error, the contents of p are undefined. Errors: [ErrArgs], [ErrUnmatched].
func BuildP2P(p *Program, a P2PArgs, sends, recvs []Message) error {
	if a.Rank < 0 || a.Rank >= a.Ranks || a.Planes < 1 {
		return fmt.Errorf("program: rank %d of %d, %d planes: %w", a.Rank, a.Ranks, a.Planes, ErrArgs)
	}
	if a.MinPiece <= 0 {
		a.MinPiece = DefaultMinPiece
	}
	p.reset(a)
	for i, m := range sends {
		if err := p.message("send", i, m); err != nil {
			return err
		}
		if m.Peer != a.Rank {
			p.transfer(a, Send, int32(i), m, p.Sends[m.Peer])
		}
		p.Sends[m.Peer]++
	}
	for i, m := range recvs {
		if err := p.message("receive", i, m); err != nil {
			return err
		}
		if m.Peer != a.Rank {
			p.transfer(a, Recv, int32(len(sends)+i), m, p.Receives[m.Peer])
		}
		p.Receives[m.Peer]++
	}
	if err := p.copySelf(a.Rank, sends, recvs); err != nil {
		return err
	}
	p.index()
	return nil
}

func (p *Program) reset(a P2PArgs) {
	p.Rank, p.Ranks = a.Rank, a.Ranks
	p.Code, p.Local = p.Code[:0], p.Local[:0]
	p.Lanes = resize(p.Lanes, a.Planes)
	for i := range p.Lanes {
		p.Lanes[i].TX, p.Lanes[i].RX = p.Lanes[i].TX[:0], p.Lanes[i].RX[:0]
	}
	p.Configs, p.ScratchBytes, p.ElemSize, p.Signature, p.P2P = nil, 0, 1, 0, true
	p.Extent = [len(p.Extent)]int64{}
	p.MsgBytes, p.MsgWhole, p.segments = p.MsgBytes[:0], p.MsgWhole[:0], p.segments[:0]
	p.Sends, p.Receives = resize(p.Sends, a.Ranks), resize(p.Receives, a.Ranks)
	clear(p.Sends)
	clear(p.Receives)
}

func (p *Program) message(kind string, i int, m Message) error {
	if m.Peer < 0 || m.Peer >= p.Ranks || m.Bytes < 0 {
		return fmt.Errorf("program: %s %d: %d bytes, rank %d of %d: %w", kind, i, m.Bytes, m.Peer, p.Ranks, ErrArgs)
	}
	p.MsgBytes, p.MsgWhole = append(p.MsgBytes, m.Bytes), append(p.MsgWhole, max(m.Bytes, m.Whole))
	return nil
}

// transfer adds the pieces of message msg. Their planes must not depend on the grouping of messages into calls, which
// may differ between the two ranks.
func (p *Program) transfer(a P2PArgs, kind Kind, msg int32, m Message, nth int32) {
	if m.Bytes == 0 {
		return
	}
	split := packetSplit{planes: a.Planes, minPiece: a.MinPiece, elem: 1}
	var buf [16]piece
	for _, c := range split.spread(a.Rank, m.Peer, m.Bytes, buf[:0]) {
		in := Instruction{
			Kind: kind, Plane: int16(c.plane), Step: nth, Peer: int32(m.Peer), FlowDst: int32(m.Peer),
			Base: c.lo, Bytes: c.hi - c.lo,
		}
		id := ID(len(p.Code))
		lane := &p.Lanes[c.plane]
		seg := p.segment(msg, c.lo, c.hi-c.lo)
		if kind == Send {
			in.Src = seg
			lane.TX = append(lane.TX, id)
		} else {
			in.Dst, in.FlowDst = seg, int32(a.Rank)
			lane.RX = append(lane.RX, id)
		}
		p.Code = append(p.Code, in)
	}
}

func (p *Program) segment(msg int32, off, n int64) []Segment {
	p.segments = append(p.segments, Segment{Buf: Messages, Msg: msg, Off: off, Len: n})
	k := len(p.segments)
	return p.segments[k-1 : k : k]
}

// copySelf matches the sends of the rank to itself with its receives from itself, in order.
func (p *Program) copySelf(rank int, sends, recvs []Message) error {
	r := 0
	for i, s := range sends {
		if s.Peer != rank {
			continue
		}
		for r < len(recvs) && recvs[r].Peer != rank {
			r++
		}
		if r == len(recvs) {
			return fmt.Errorf("program: send %d to itself: %w", i, ErrUnmatched)
		}
		if recvs[r].Bytes != s.Bytes {
			return fmt.Errorf("program: send %d of %d bytes to itself, receive %d of %d: %w",
				i, s.Bytes, r, recvs[r].Bytes, ErrUnmatched)
		}
		if s.Bytes > 0 {
			p.Local = append(p.Local, ID(len(p.Code)))
			p.Code = append(p.Code, Instruction{
				Kind: Copy, Plane: -1, Peer: int32(rank), FlowDst: int32(rank), Bytes: s.Bytes,
				Src: p.segment(int32(i), 0, s.Bytes), Dst: p.segment(int32(len(sends)+r), 0, s.Bytes),
			})
		}
		r++
	}
	for ; r < len(recvs); r++ {
		if recvs[r].Peer == rank {
			return fmt.Errorf("program: receive %d from itself: %w", r, ErrUnmatched)
		}
	}
	return nil
}
