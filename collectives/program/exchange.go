package program

import (
	"cmp"
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
)

// ExchangeArgs are the arguments of [LowerExchange]. All ranks must pass the same values, except Rank.
type ExchangeArgs struct {
	Rank, Ranks int
	// Plan is a plan for the demand matrix of all sends of all ranks. It has a timeline for each plane of the endpoint;
	// the timelines of unused planes are empty.
	Plan *plans.Plan
	// Current are the present maps of the planes.
	Current []circuit.Permutation
}

// LowerExchange returns one rank's program of an exchange over circuits. All ranks take part, and every send has a
// receive. [BuildP2P] is the counterpart for packet planes.
//
// The messages of a pair of ranks are concatenated to one string of bytes. The string is divided over the holds that
// have the pair's circuit, ordered by plane and hold, in proportion to their durations. It is also cut at the ends of
// messages. Message i of the call's buffers is sends[i], or recvs[i-len(sends)].
//
// Errors: [ErrArgs], [ErrUnmatched], and [ErrPlan] if a pair with data has no circuit.
func LowerExchange(a ExchangeArgs, sends, recvs []Message) (*Program, error) {
	if a.Rank < 0 || a.Rank >= a.Ranks || a.Plan == nil || len(a.Plan.Planes) == 0 ||
		len(a.Current) != len(a.Plan.Planes) {
		return nil, fmt.Errorf("program: exchange of rank %d of %d: %w", a.Rank, a.Ranks, ErrArgs)
	}
	tl, err := holdTimeline(&a)
	if err != nil {
		return nil, err
	}
	p := &Program{}
	p.reset(P2PArgs{Rank: a.Rank, Ranks: a.Ranks, Planes: len(tl.planes)})
	for j := range tl.planes {
		p.Configs = append(p.Configs, tl.planes[j].maps)
	}
	x := exchange{lowering{
		p: p, me: a.Rank, tl: tl, config: make([]int, len(tl.planes)), base: make([]int, len(tl.planes)),
	}}
	out, err := x.strings("send", sends, 0, p.Sends)
	if err != nil {
		return nil, err
	}
	in, err := x.strings("receive", recvs, len(sends), p.Receives)
	if err != nil {
		return nil, err
	}
	if err := x.transmitAll(out); err != nil {
		return nil, err
	}
	if err := x.receiveAll(in); err != nil {
		return nil, err
	}
	if err := p.copySelf(a.Rank, sends, recvs); err != nil {
		return nil, err
	}
	p.index()
	return p, nil
}

// holdTimeline returns the timeline of a plan of holds. The bytes of an entry are its duration in microseconds, which
// is proportional to the bytes that each of its circuits carries.
func holdTimeline(a *ExchangeArgs) (*timeline, error) {
	t := &timeline{planes: make([]planeLine, len(a.Plan.Planes))}
	for j := range t.planes {
		tp := &t.planes[j]
		if err := tp.begin(a.Current[j], a.Ranks); err != nil {
			return nil, fmt.Errorf("program: plane %d: present map %w", j, err)
		}
		for k := range a.Plan.Planes[j] {
			e := &a.Plan.Planes[j][k]
			switch {
			case e.Kind == plans.Reconfigure:
			case e.Kind == plans.Hold && e.EndUS >= e.StartUS:
				if err := tp.move(e.To, a.Ranks); err != nil {
					return nil, fmt.Errorf("program: plane %d: entry %d: %w", j, k, err)
				}
				tp.entries = append(tp.entries, txEntry{config: len(tp.maps) - 1, bytes: e.EndUS - e.StartUS})
			default:
				return nil, fmt.Errorf("program: plane %d: entry %d: %s in a plan of a demand matrix: %w",
					j, k, e.Kind, ErrPlan)
			}
		}
	}
	return t, nil
}

// exchange lowers the messages of one rank.
type exchange struct{ lowering }

// pairString is the concatenation of the messages to or from one rank.
type pairString struct {
	peer  int
	bytes int64
	parts []messagePart
}

// messagePart is a message in a pairString: index of its buffer, its number within the pair, offset and length.
type messagePart struct {
	msg, nth   int32
	at, length int64
}

// strings groups messages by peer and counts them in count. It omits messages that need no circuit.
func (x *exchange) strings(kind string, list []Message, first int, count []int32) ([]pairString, error) {
	of := make([]pairString, x.p.Ranks)
	for i, m := range list {
		if err := x.p.message(kind, i, m); err != nil {
			return nil, err
		}
		s := &of[m.Peer]
		s.peer = m.Peer
		if m.Bytes > 0 && m.Peer != x.me {
			s.parts = append(s.parts, messagePart{
				msg: int32(first + i), nth: count[m.Peer], at: s.bytes, length: m.Bytes,
			})
			s.bytes += m.Bytes
		}
		count[m.Peer]++
	}
	return slices.DeleteFunc(of, func(s pairString) bool { return s.bytes == 0 }), nil
}

// pairPiece is an interval of a pairString that one hold carries.
type pairPiece struct {
	of *pairString
	piece
}

// place divides the strings over the holds, in the order of the planes. sending is set if this rank sends them.
func (x *exchange) place(list []pairString, sending bool) ([]pairPiece, error) {
	var all []pairPiece
	var pieces []piece
	var weights []float64
	for i := range list {
		s := &list[i]
		src, dst := s.peer, x.me
		if sending {
			src, dst = x.me, s.peer
		}
		pieces, weights = pieces[:0], weights[:0]
		for j := range x.tl.planes {
			tp := &x.tl.planes[j]
			for k, e := range tp.entries {
				if tp.maps[e.config][src] == dst && e.bytes > 0 {
					pieces, weights = append(pieces, piece{plane: j, entry: k}), append(weights, e.bytes)
				}
			}
		}
		if err := divide(pieces, weights, s.bytes); err != nil {
			return nil, fmt.Errorf("program: exchange: %d bytes from rank %d to %d: %w", s.bytes, src, dst, err)
		}
		for _, p := range pieces {
			if p.lo < p.hi {
				all = append(all, pairPiece{s, p})
			}
		}
	}
	slices.SortFunc(all, func(a, b pairPiece) int {
		return cmp.Or(cmp.Compare(a.plane, b.plane), cmp.Compare(a.entry, b.entry))
	})
	return all, nil
}

func (x *exchange) transmitAll(list []pairString) error {
	pieces, err := x.place(list, true)
	if err != nil {
		return err
	}
	for _, c := range pieces {
		tp := &x.tl.planes[c.plane]
		config := tp.entries[c.entry].config
		x.reconfigure(c.plane, config)
		made := tp.made[config][x.me]
		lane := &x.p.Lanes[c.plane]
		x.each(c, func(in Instruction, mem []Segment) {
			in.Kind, in.FlowDst, in.Src, in.Epoch, in.Route = Send, in.Peer, mem, made, made
			lane.TX = append(lane.TX, x.add(in))
		})
	}
	for j := range x.config {
		x.reconfigure(j, len(x.tl.planes[j].maps)-1)
	}
	return nil
}

func (x *exchange) receiveAll(list []pairString) error {
	pieces, err := x.place(list, false)
	if err != nil {
		return err
	}
	for _, c := range pieces {
		tp := &x.tl.planes[c.plane]
		made := tp.made[tp.entries[c.entry].config][c.of.peer]
		lane := &x.p.Lanes[c.plane]
		x.each(c, func(in Instruction, mem []Segment) {
			in.Kind, in.FlowDst, in.Dst, in.Epoch, in.Route = Recv, int32(x.me), mem, made, made
			lane.RX = append(lane.RX, x.add(in))
		})
	}
	return nil
}

// each calls f for each message of a piece, with the part of the message that the piece contains.
func (x *exchange) each(c pairPiece, f func(in Instruction, mem []Segment)) {
	for _, m := range c.of.parts {
		lo, hi := max(c.lo, m.at), min(c.hi, m.at+m.length)
		if lo >= hi {
			continue
		}
		f(Instruction{
			Plane: int16(c.plane), Step: m.nth, Peer: int32(c.of.peer), Base: lo - m.at, Bytes: hi - lo,
		}, x.p.segment(m.msg, lo-m.at, hi-lo))
	}
}
