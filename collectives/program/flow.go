package program

import (
	"cmp"
	"fmt"
	"slices"

	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
)

// flow is the data that one rank sends another in one step: the concatenation of its transfers.
type flow struct {
	src, dst  int
	transfers []transfer
	elems     int64
}

// transfer is a part of a move: on packet planes one chunk, else all of it.
type transfer struct {
	reduce   bool
	src, dst Segment
}

// cut returns the bytes [from, to) of a transfer.
func (x transfer) cut(from, to int64) transfer {
	x.src.Off, x.dst.Off = x.src.Off+from, x.dst.Off+from
	x.src.Len, x.dst.Len = to-from, to-from
	return x
}

// carried is a piece of a flow of which this rank is the source, the destination or a forwarder.
type carried struct {
	f     *flow
	index int // index of the flow in its step
	piece
}

// flows groups the transfers of a step by flow, in order of first appearance. It omits flows that cannot involve this
// rank. own are this rank's transfers to itself.
func (l *lowering) flows(st *schedule.Step) (flows []*flow, own []schedule.Move, err error) {
	byEnds := make(map[[2]int]*flow)
	for _, m := range st.Transfers {
		if m.Src < 0 || m.Src >= l.s.Ranks || m.Dst < 0 || m.Dst >= l.s.Ranks {
			return nil, nil, fmt.Errorf("move from rank %d to %d: %w", m.Src, m.Dst, ErrSchedule)
		}
		if m.Src == m.Dst {
			if m.Src == l.me {
				own = append(own, m)
			}
			continue
		}
		if l.tl == nil && m.Src != l.me && m.Dst != l.me {
			continue // ranks do not forward on packet planes
		}
		key := [2]int{m.Src, m.Dst}
		f := byEnds[key]
		if f == nil {
			f = &flow{src: m.Src, dst: m.Dst}
			byEnds[key] = f
			flows = append(flows, f)
		}
		if err := l.addMove(f, m); err != nil {
			return nil, nil, err
		}
	}
	return flows, own, nil
}

// addMove adds the transfers of a move to a flow.
func (l *lowering) addMove(f *flow, m schedule.Move) error {
	src, dst, err := l.ends(m)
	if err != nil {
		return err
	}
	f.elems += src.Len / l.args.ElemSize
	whole := transfer{m.Reduce, src, dst}
	if l.tl != nil || len(l.p.Lanes) == 1 {
		f.transfers = append(f.transfers, whole)
		return nil
	}
	for k := range m.Count {
		chunk, err := l.segment(schedule.Ref{Buf: m.From.Buf, Chunk: m.From.Chunk + k}, 1)
		if err != nil {
			return err
		}
		at := chunk.Off - src.Off
		f.transfers = append(f.transfers, whole.cut(at, at+chunk.Len))
	}
	return nil
}

// ends returns the segments that a move reads and writes.
func (l *lowering) ends(m schedule.Move) (src, dst Segment, err error) {
	if m.Count < 1 {
		return src, dst, fmt.Errorf("program: move of %d chunks: %w", m.Count, ErrSchedule)
	}
	if src, err = l.segment(m.From, m.Count); err != nil {
		return src, dst, err
	}
	if dst, err = l.segment(m.To, m.Count); err != nil {
		return src, dst, err
	}
	if src.Len != dst.Len {
		return src, dst, fmt.Errorf("program: move of %d bytes into %d: %w", src.Len, dst.Len, ErrSchedule)
	}
	return src, dst, nil
}

func (l *lowering) segment(ref schedule.Ref, chunks int) (Segment, error) {
	if ref.Buf >= schedule.NumBuffers || ref.Chunk < 0 || ref.Chunk+chunks > l.s.Blocks[ref.Buf]*l.s.Sub {
		return Segment{}, fmt.Errorf("program: chunks %d..%d of buffer %d: %w",
			ref.Chunk, ref.Chunk+chunks, ref.Buf, ErrSchedule)
	}
	lo, _ := l.s.ChunkRange(ref.Chunk, l.args.Count)
	_, hi := l.s.ChunkRange(ref.Chunk+chunks-1, l.args.Count)
	e := l.args.ElemSize
	return Segment{Buf: ref.Buf, Off: lo * e, Len: (hi - lo) * e}, nil
}

// place divides the flows of a step into pieces, in the order of the planes' timelines.
func (l *lowering) place(flows []*flow, step int) ([]carried, error) {
	var out []carried
	var pieces []piece
	for i, f := range flows {
		if f.elems == 0 {
			continue
		}
		var err error
		if pieces, err = l.split.cut(f, step, pieces[:0]); err != nil {
			return nil, fmt.Errorf("flow %d->%d: %w", f.src, f.dst, err)
		}
		for _, p := range pieces {
			if p.lo < p.hi {
				out = append(out, carried{f: f, index: i, piece: p})
			}
		}
	}
	slices.SortFunc(out, func(a, b carried) int {
		return cmp.Or(cmp.Compare(a.plane, b.plane), cmp.Compare(a.entry, b.entry), cmp.Compare(a.index, b.index))
	})
	return out, nil
}

// transmit adds this rank's sends or its forward of c.
func (l *lowering) transmit(c carried, step int) error {
	if l.tl == nil {
		if c.f.src == l.me {
			l.send(c, step, 0, 0, 0)
		}
		return nil
	}
	tp := &l.tl.planes[c.plane]
	config := tp.entries[c.entry].config
	on, err := onRoute(tp.maps[config], c.f.src, c.f.dst, l.me)
	if err != nil {
		return fmt.Errorf("plane %d: %w", c.plane, err)
	}
	if !on || c.f.dst == l.me {
		return nil
	}
	l.reconfigure(c.plane, config)
	base := l.base[c.plane]
	epoch := tp.made[config][l.me] - uint32(base)
	if c.f.src == l.me {
		l.send(c, step, config-base, epoch, tp.route(config, c.f.src, c.f.dst)-uint32(base))
		return nil
	}
	e := l.args.ElemSize
	id := l.add(Instruction{
		Kind: Forward, Plane: int16(c.plane), Step: int32(step), Peer: int32(c.f.src), FlowDst: int32(c.f.dst),
		Base: c.lo * e, Bytes: (c.hi - c.lo) * e, Epoch: epoch,
		InEpoch: tp.entering(config, l.me) - uint32(base),
	})
	lane := &l.p.Lanes[c.plane]
	lane.TX = append(lane.TX, id)
	return nil
}

// send adds the sends of a piece, one for each run.
func (l *lowering) send(c carried, step, config int, epoch, route uint32) {
	lane := &l.p.Lanes[c.plane]
	l.runs(c, func(r run) {
		lane.TX = append(lane.TX, l.add(Instruction{
			Kind: Send, Plane: int16(c.plane), Step: int32(step), Peer: int32(c.f.dst), FlowDst: int32(c.f.dst),
			Base: r.base, Bytes: r.bytes, Src: r.src, Epoch: epoch, Route: route, Config: int32(config),
		}))
	})
}

func (l *lowering) receive(c carried, step int) {
	var config int
	var epoch, route uint32
	if l.tl != nil {
		tp := &l.tl.planes[c.plane]
		at, base := tp.entries[c.entry].config, l.base[c.plane]
		config = at - base
		epoch, route = tp.entering(at, l.me)-uint32(base), tp.route(at, c.f.src, l.me)-uint32(base)
	}
	lane := &l.p.Lanes[c.plane]
	l.runs(c, func(r run) {
		in := Instruction{
			Kind: Recv, Plane: int16(c.plane), Step: int32(step), Peer: int32(c.f.src), FlowDst: int32(l.me),
			Base: r.base, Bytes: r.bytes, Dst: r.dst, Epoch: epoch, Route: route, Config: int32(config),
		}
		if r.reduce {
			in.Kind = RecvReduce
		}
		lane.RX = append(lane.RX, l.add(in))
	})
}

// reconfigure adds reconfigurations until a lane's TX has reached map config.
func (l *lowering) reconfigure(plane, config int) {
	tp := &l.tl.planes[plane]
	lane := &l.p.Lanes[plane]
	for l.config[plane] < config {
		from := l.config[plane]
		l.config[plane]++
		base := l.base[plane]
		lane.TX = append(lane.TX, l.add(Instruction{
			Kind: Reconfigure, Plane: int16(plane), Peer: int32(l.me), FlowDst: int32(l.me),
			Epoch: uint32(from - base), Config: int32(from + 1 - base),
			Moves: tp.maps[from][l.me] != tp.maps[from+1][l.me],
		}))
	}
}

// run is a part of a piece whose moves are all copies or all reductions. Both ends cut pieces into runs, so that no
// frame contains bytes of two instructions.
type run struct {
	reduce      bool
	base, bytes int64
	src, dst    []Segment
}

func (l *lowering) runs(c carried, emit func(run)) {
	e := l.args.ElemSize
	lo, hi := c.lo*e, c.hi*e
	cur := run{base: lo}
	at := int64(0)
	for i := range c.f.transfers {
		x := &c.f.transfers[i]
		from, to := max(lo, at), min(hi, at+x.src.Len)
		if from < to {
			if cur.bytes > 0 && cur.reduce != x.reduce {
				emit(cur)
				cur = run{base: from}
			}
			cur.reduce = x.reduce
			cur.bytes += to - from
			part := x.cut(from-at, to-at)
			cur.src, cur.dst = extend(cur.src, part.src), extend(cur.dst, part.dst)
		}
		at += x.src.Len
	}
	if cur.bytes > 0 {
		emit(cur)
	}
}

// extend appends g to the list, or extends the last segment if g directly follows it.
func extend(list []Segment, g Segment) []Segment {
	if n := len(list); n > 0 && list[n-1].Buf == g.Buf && list[n-1].Off+list[n-1].Len == g.Off {
		list[n-1].Len += g.Len
		return list
	}
	return append(list, g)
}

// onRoute reports whether rank me is the source, the destination or a forwarder of the route src -> dst on a map.
func onRoute(m circuit.Permutation, src, dst, me int) (bool, error) {
	on := src == me
	at := src
	for range m {
		if at = m[at]; at == circuit.Dark {
			break
		}
		on = on || at == me
		if at == dst {
			return on, nil
		}
	}
	return false, fmt.Errorf("no route %d->%d: %w", src, dst, ErrPlan)
}
