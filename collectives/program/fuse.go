package program

import "lightpath/collectives/schedule"

// loads are the deferred copies of Input at the start of a program. Until an operation writes to the destination of
// such a copy, operations can read Input instead.
type loads struct {
	list []loaded
}

// loaded means that the bytes [lo, hi) of a buffer equal Input from offset from on. op is the deferred copy.
type loaded struct {
	op     OpID
	buf    schedule.Buffer
	lo, hi int64
	from   int64
}

// fuse removes copies of Input at the start of a program. Sends of unchanged copies read Input. The first reduction
// into a copy combines the frame with Input ([Op.Init]). Bytes that are overwritten before they are read are not
// copied. Only the other bytes remain copies.
//
// This requires that no operation writes to Input and that no factor applies. It saves passes over the whole message: a
// third of the time of a collective that is limited by memory bandwidth.
func (l *lowering) fuse() {
	if l.args.InPlace || l.args.Scale {
		return
	}
	for i := range l.p.Ops {
		op := &l.p.Ops[i]
		if op.Kind == LocalReduce {
			return
		}
		for _, g := range op.Dst {
			if g.Buf == schedule.Input {
				return
			}
		}
	}
	var p loads
	first := 0
	for ; first < len(l.p.Ops) && l.p.Ops[first].isLoad(); first++ {
		src, dst := l.p.Ops[first].Src[0], l.p.Ops[first].Dst[0]
		p.drop(dst)
		p.list = append(p.list, loaded{OpID(first), dst.Buf, dst.Off, dst.Off + dst.Len, src.Off})
	}
	for i := first; i < len(l.p.Ops); i++ {
		p.visit(&l.p.Ops[i])
	}
	l.keep(&p, first)
}

// isLoad reports whether op is a copy of Input before the first step.
func (op *Op) isLoad() bool {
	return op.Kind == Copy && op.Step < 0 && op.Src[0].Buf == schedule.Input
}

// visit changes the sources of op to Input where possible, and records its writes. Call it in program order.
func (p *loads) visit(op *Op) {
	switch op.Kind {
	case Send:
		var src []Segment
		for _, g := range op.Src {
			p.cut(g, func(part, from Segment) {
				if from.Len > 0 {
					part = from
				}
				src = extend(src, part)
			})
		}
		op.Src = src
	case Copy:
		var src, dst []Segment
		for i, g := range op.Src {
			to := op.Dst[i]
			p.cut(g, func(part, from Segment) {
				dst = append(dst, Segment{Buf: to.Buf, Off: to.Off + part.Off - g.Off, Len: part.Len})
				if from.Len > 0 {
					part = from
				}
				src = append(src, part)
			})
		}
		op.Src, op.Dst = src, dst
	case RecvReduce:
		p.combine(op)
	}
	for _, g := range op.Dst {
		p.drop(g)
	}
}

// combine sets Init of a RecvReduce.
func (p *loads) combine(op *Op) {
	var dst, init []Segment
	loaded := false
	for _, g := range op.Dst {
		p.cut(g, func(part, from Segment) {
			dst, init = append(dst, part), append(init, from)
			loaded = loaded || from.Len > 0
		})
	}
	if loaded {
		op.Dst, op.Init = dst, init
	}
}

// cut divides g into parts that are loaded or not, and calls f with each in order. from is the segment of Input of
// which the part is a copy, or empty.
func (p *loads) cut(g Segment, f func(part, from Segment)) {
	for at, end := g.Off, g.Off+g.Len; at < end; {
		stop, from := end, Segment{}
		for _, d := range p.list {
			switch {
			case d.buf != g.Buf || d.hi <= at:
			case d.lo <= at:
				stop = min(end, d.hi)
				from = Segment{Buf: schedule.Input, Off: d.from + at - d.lo, Len: stop - at}
			case from.Len == 0:
				stop = min(stop, d.lo)
			}
		}
		f(Segment{Buf: g.Buf, Off: at, Len: stop - at}, from)
		at = stop
	}
}

// drop removes the bytes of g from the list of loaded bytes.
func (p *loads) drop(g Segment) {
	lo, hi := g.Off, g.Off+g.Len
	for i := 0; i < len(p.list); i++ {
		d := p.list[i]
		if d.buf != g.Buf || d.hi <= lo || hi <= d.lo {
			continue
		}
		if d.lo < lo && hi < d.hi {
			p.list[i].hi = lo
			p.list = append(p.list, loaded{d.op, d.buf, hi, d.hi, d.from + hi - d.lo})
			continue
		}
		switch {
		case d.lo < lo:
			p.list[i].hi = lo
		case hi < d.hi:
			p.list[i].lo, p.list[i].from = hi, d.from+hi-d.lo
		default:
			p.list[i] = p.list[len(p.list)-1]
			p.list = p.list[:len(p.list)-1]
			i--
		}
	}
}

// keep limits the deferred copies, which are the first operations, to bytes that no operation has overwritten. It
// removes copies without such bytes.
func (l *lowering) keep(p *loads, first int) {
	for i := range l.p.Ops[:first] {
		op := &l.p.Ops[i]
		op.Bytes, op.Src, op.Dst = 0, nil, nil
	}
	for _, d := range p.list {
		if d.buf == schedule.Scratch {
			continue // operations read Input instead
		}
		op := &l.p.Ops[d.op]
		n := d.hi - d.lo
		op.Bytes += n
		op.Src = append(op.Src, Segment{Buf: schedule.Input, Off: d.from, Len: n})
		op.Dst = append(op.Dst, Segment{Buf: d.buf, Off: d.lo, Len: n})
	}
	renamed := make([]OpID, len(l.p.Ops))
	ops, phase := l.p.Ops[:0], l.phase[:0]
	for i, op := range l.p.Ops {
		renamed[i] = None
		if i >= first || op.Bytes > 0 {
			renamed[i] = OpID(len(ops))
			ops, phase = append(ops, op), append(phase, l.phase[i])
		}
	}
	clear(l.p.Ops[len(ops):])
	l.p.Ops, l.phase = ops, phase
	rename := func(list []OpID) []OpID {
		kept := list[:0]
		for _, id := range list {
			if renamed[id] != None {
				kept = append(kept, renamed[id])
			}
		}
		return kept
	}
	l.p.Local = rename(l.p.Local)
	for j := range l.p.Lanes {
		lane := &l.p.Lanes[j]
		lane.TX, lane.RX = rename(lane.TX), rename(lane.RX)
	}
}
