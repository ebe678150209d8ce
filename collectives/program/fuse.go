package program

import "lightpath/collectives/schedule"

// loads are the deferred copies of Input at the start of a program. Until an instruction writes to the destination of
// such a copy, instructions can read Input instead.
type loads struct {
	list []loaded
}

// loaded means that the bytes [lo, hi) of a buffer equal Input from offset from on. The field in is the deferred copy.
type loaded struct {
	in     ID
	buf    schedule.Buffer
	lo, hi int64
	from   int64
}

// fuse removes copies of Input at the start of a program. Sends of unchanged copies read Input. The first reduction
// into a copy combines the frame with Input ([Instruction.Init]). Bytes that are overwritten before they are read are
// not copied. Only the other bytes remain copies.
//
// This requires that no instruction writes to Input and that no factor applies. It saves passes over the whole message:
// a third of the time of a collective that is limited by memory bandwidth.
func (l *lowering) fuse() {
	if l.args.InPlace || l.args.Scale {
		return
	}
	for i := range l.p.Code {
		in := &l.p.Code[i]
		if in.Kind == LocalReduce {
			return
		}
		for _, g := range in.Dst {
			if g.Buf == schedule.Input {
				return
			}
		}
	}
	var p loads
	first := 0
	for ; first < len(l.p.Code) && l.p.Code[first].isLoad(); first++ {
		src, dst := l.p.Code[first].Src[0], l.p.Code[first].Dst[0]
		p.drop(dst)
		p.list = append(p.list, loaded{ID(first), dst.Buf, dst.Off, dst.Off + dst.Len, src.Off})
	}
	for i := first; i < len(l.p.Code); i++ {
		p.visit(&l.p.Code[i])
	}
	l.keep(&p, first)
}

// isLoad reports whether an instruction copies Input before the first step.
func (in *Instruction) isLoad() bool {
	return in.Kind == Copy && in.Step < 0 && in.Src[0].Buf == schedule.Input
}

// visit changes the sources of an instruction to Input where possible, and records its writes. Call it in program
// order.
func (p *loads) visit(in *Instruction) {
	switch in.Kind {
	case Send:
		var src []Segment
		for _, g := range in.Src {
			p.cut(g, func(part, from Segment) {
				if from.Len > 0 {
					part = from
				}
				src = extend(src, part)
			})
		}
		in.Src = src
	case Copy:
		var src, dst []Segment
		for i, g := range in.Src {
			to := in.Dst[i]
			p.cut(g, func(part, from Segment) {
				dst = append(dst, Segment{Buf: to.Buf, Off: to.Off + part.Off - g.Off, Len: part.Len})
				if from.Len > 0 {
					part = from
				}
				src = append(src, part)
			})
		}
		in.Src, in.Dst = src, dst
	case RecvReduce:
		p.combine(in)
	}
	for _, g := range in.Dst {
		p.drop(g)
	}
}

// combine sets Init of a RecvReduce.
func (p *loads) combine(in *Instruction) {
	var dst, init []Segment
	loaded := false
	for _, g := range in.Dst {
		p.cut(g, func(part, from Segment) {
			dst, init = append(dst, part), append(init, from)
			loaded = loaded || from.Len > 0
		})
	}
	if loaded {
		in.Dst, in.Init = dst, init
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
			p.list = append(p.list, loaded{d.in, d.buf, hi, d.hi, d.from + hi - d.lo})
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

// keep limits the deferred copies, which are the first instructions, to bytes that no instruction has overwritten. It
// removes copies without such bytes.
func (l *lowering) keep(p *loads, first int) {
	for i := range l.p.Code[:first] {
		in := &l.p.Code[i]
		in.Bytes, in.Src, in.Dst = 0, nil, nil
	}
	for _, d := range p.list {
		if d.buf == schedule.Scratch {
			continue // instructions read Input instead
		}
		in := &l.p.Code[d.in]
		n := d.hi - d.lo
		in.Bytes += n
		in.Src = append(in.Src, Segment{Buf: schedule.Input, Off: d.from, Len: n})
		in.Dst = append(in.Dst, Segment{Buf: d.buf, Off: d.lo, Len: n})
	}
	renamed := make([]ID, len(l.p.Code))
	code, phase := l.p.Code[:0], l.phase[:0]
	for i, in := range l.p.Code {
		renamed[i] = None
		if i >= first || in.Bytes > 0 {
			renamed[i] = ID(len(code))
			code, phase = append(code, in), append(phase, l.phase[i])
		}
	}
	clear(l.p.Code[len(code):])
	l.p.Code, l.phase = code, phase
	rename := func(list []ID) []ID {
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
