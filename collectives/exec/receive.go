package exec

import (
	"lightpath/collectives/program"
	"lightpath/collectives/transport"
)

// receiveLane serves every source with incomplete receives on the lane.
func (t *Task) receiveLane(l *lane) (bool, error) {
	moved := false
	for i := 0; i < len(l.rx); {
		c := &l.rx[i]
		m, err := t.receive(l, c)
		if err != nil {
			return moved, err
		}
		moved = moved || m
		if c.id == program.None {
			l.rx = remove(l.rx, i)
			continue
		}
		i++
	}
	if t.measuring && moved {
		t.noteDelivery(l)
	}
	return moved, nil
}

// receive consumes frames of one source. If the instruction of a frame has incomplete dependencies, the frame stays in
// the plane, which keeps the frames of a source in order.
func (t *Task) receive(l *lane, c *chain) (bool, error) {
	plane := &t.planes[l.id]
	moved := false
	for n := 0; n < burst && c.id != program.None && t.isReady(c.id); n++ {
		in := &t.code[c.id]
		var took int
		var err error
		if plane.lander != nil && in.Kind == program.Recv {
			took, err = t.land(plane.lander, in, c)
		} else {
			took, err = t.take(plane.Plane, in, c)
		}
		if err != nil || took == 0 {
			return moved, err
		}
		moved = true
		if t.bytesDone[c.id] += int64(took); t.bytesDone[c.id] == in.Bytes {
			t.complete(c.id)
			*c = chain{id: t.prog.Next[c.id]}
		}
	}
	return moved, nil
}

// take consumes the next frame of an instruction if it has arrived, and returns its size.
func (t *Task) take(plane transport.Plane, in *program.Instruction, c *chain) (int, error) {
	h, payload, err := plane.Peek(int(in.Peer))
	if err != nil {
		return 0, t.failAt(in, err)
	}
	if h == nil {
		return 0, nil
	}
	if ours, err := t.checkFrame(in, c.id, h, len(payload)); err != nil || !ours {
		return 0, err
	}
	t.noteBegin(c.id)
	t.place(in, c, payload)
	plane.Release(int(in.Peer))
	return len(payload), nil
}

// land receives the available part of the next frame of an instruction directly into its destination, and returns the
// number of bytes. It checks the header before every part.
func (t *Task) land(plane transport.Lander, in *program.Instruction, c *chain) (int, error) {
	h, err := plane.Head(int(in.Peer))
	if err != nil {
		return 0, t.failAt(in, err)
	}
	if h == nil {
		return 0, nil
	}
	if ours, err := t.checkFrame(in, c.id, h, int(h.Length)); err != nil || !ours {
		return 0, err
	}
	g := &in.Dst[c.seg]
	n, err := plane.Land(int(in.Peer), t.bytes(g, c.off, int64(h.Length)))
	if err != nil {
		return 0, t.failAt(in, err)
	}
	if n > 0 {
		t.noteBegin(c.id)
		c.advance(g, n)
	}
	return n, nil
}

// advance advances the chain by n bytes of its segment g.
func (c *chain) advance(g *program.Segment, n int) {
	if c.off += int64(n); c.off == g.Len {
		c.seg, c.off = c.seg+1, 0
	}
}

// place copies or reduces the payload of a frame into the destination of the instruction.
func (t *Task) place(in *program.Instruction, c *chain, payload []byte) {
	for len(payload) > 0 {
		g := &in.Dst[c.seg]
		dst := t.bytes(g, c.off, int64(len(payload)))
		if in.Kind == program.RecvReduce {
			if in.Init != nil && in.Init[c.seg].Len > 0 {
				copy(dst, t.bytes(&in.Init[c.seg], c.off, int64(len(dst))))
			}
			t.call.Reduce(dst, payload[:len(dst)])
		} else {
			copy(dst, payload)
		}
		payload = payload[len(dst):]
		c.advance(g, len(dst))
	}
}
