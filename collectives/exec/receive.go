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

// receive consumes frames of one source. If the operation of a frame has incomplete dependencies, the frame stays in
// the plane, which keeps the frames of a source in order.
func (t *Task) receive(l *lane, c *chain) (bool, error) {
	lander := t.landers[l.id]
	moved := false
	for n := 0; n < burst && c.id != program.None && t.isReady(c.id); n++ {
		op := &t.ops[c.id]
		var took int
		var err error
		if lander != nil && op.Kind == program.Recv {
			took, err = t.land(lander, op, c)
		} else {
			took, err = t.take(t.planes[l.id], op, c)
		}
		if err != nil || took == 0 {
			return moved, err
		}
		moved = true
		if t.bytesDone[c.id] += int64(took); t.bytesDone[c.id] == op.Bytes {
			t.complete(c.id)
			*c = chain{id: t.prog.Next[c.id]}
		}
	}
	return moved, nil
}

// take consumes the next frame of op if it has arrived, and returns its size.
func (t *Task) take(plane transport.Plane, op *program.Op, c *chain) (int, error) {
	h, payload, err := plane.Peek(int(op.Peer))
	if err != nil {
		return 0, t.failOp(op, err)
	}
	if h == nil {
		return 0, nil
	}
	if ours, err := t.checkFrame(op, c.id, h, len(payload)); err != nil || !ours {
		return 0, err
	}
	t.noteBegin(c.id)
	t.place(op, c, payload)
	plane.Release(int(op.Peer))
	return len(payload), nil
}

// land receives the available part of op's next frame directly into its destination, and returns the number of bytes.
// It checks the header before every part.
func (t *Task) land(plane transport.Lander, op *program.Op, c *chain) (int, error) {
	h, err := plane.Head(int(op.Peer))
	if err != nil {
		return 0, t.failOp(op, err)
	}
	if h == nil {
		return 0, nil
	}
	if ours, err := t.checkFrame(op, c.id, h, int(h.Length)); err != nil || !ours {
		return 0, err
	}
	g := &op.Dst[c.seg]
	n, err := plane.Land(int(op.Peer), t.bytes(g, c.off, int64(h.Length)))
	if err != nil {
		return 0, t.failOp(op, err)
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

// place copies or reduces the payload of a frame into the destination of op.
func (t *Task) place(op *program.Op, c *chain, payload []byte) {
	for len(payload) > 0 {
		g := &op.Dst[c.seg]
		dst := t.bytes(g, c.off, int64(len(payload)))
		if op.Kind == program.RecvReduce {
			if op.Init != nil && op.Init[c.seg].Len > 0 {
				copy(dst, t.bytes(&op.Init[c.seg], c.off, int64(len(dst))))
			}
			t.call.Reduce(dst, payload[:len(dst)])
		} else {
			copy(dst, payload)
		}
		payload = payload[len(dst):]
		c.advance(g, len(dst))
	}
}
