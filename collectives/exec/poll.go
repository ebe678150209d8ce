package exec

import (
	"math"

	"lightpath/collectives/program"
)

// burst is the largest number of frames of one chain before poll serves the next one.
const burst = 16

// turn is the largest number of bytes of local work between two polls of the planes, so that no plane becomes idle
// during a copy.
const turn = 256 << 10

// poll advances all lanes and the local work once, and reports whether there was progress. It sends first, so that
// frames travel while this rank copies and receives.
func (t *Task) poll() (bool, error) {
	if t.call.Engine != nil {
		moved, done, err := t.call.Engine.Poll()
		if done {
			t.remaining = 0
		}
		return moved || done, err
	}
	moved := false
	for i := range t.lanes {
		if l := &t.lanes[i]; !l.finished {
			m, err := t.transmit(l)
			if err != nil {
				return moved, err
			}
			moved = moved || m
		}
		if l := &t.lanes[i]; len(l.lent) > 0 {
			m, err := t.collect(l)
			if err != nil {
				return moved, err
			}
			moved = moved || m
		}
	}
	moved = t.work() || moved
	for i := range t.lanes {
		if l := &t.lanes[i]; len(l.rx) > 0 {
			m, err := t.receiveAll(l)
			if err != nil {
				return moved, err
			}
			moved = moved || m
		}
	}
	t.proceed()
	return moved, nil
}

// work runs local operations for one turn, and reports whether there were any.
func (t *Task) work() bool {
	moved := false
	for left := int64(turn); left > 0; moved = true {
		if t.local.id == program.None {
			last := len(t.ready) - 1
			if last < 0 {
				break
			}
			t.local = chain{id: t.ready[last]}
			t.ready = t.ready[:last]
			t.began(t.local.id)
		}
		left -= t.part(&t.local, left)
	}
	return moved
}

// part executes about n bytes of the present segment of a local operation, in whole elements. It returns the number of
// bytes.
func (t *Task) part(c *chain, n int64) int64 {
	op := &t.ops[c.id]
	if c.seg == len(op.Src) {
		t.complete(c.id)
		c.id = program.None
		return 0
	}
	const step = 64 // a multiple of the size of every element
	from, to := &op.Src[c.seg], &op.Dst[c.seg]
	src := t.bytes(from, c.off, max(n&^(step-1), step))
	dst := t.bytes(to, c.off, int64(len(src)))
	switch {
	case op.Kind == program.LocalReduce:
		t.call.Reduce(dst, src)
	case op.Scale:
		t.call.Scale(dst, src, t.call.Factor)
	default:
		copy(dst, src)
	}
	c.advance(from, len(src))
	return int64(len(src))
}

// transmit serves the lane's present stage, and the reconfiguration at its end.
func (t *Task) transmit(l *lane) (bool, error) {
	moved := false
	if l.gated && l.left > 0 {
		if ok, err := t.settled(l); err != nil || !ok {
			return false, err
		}
		moved = true
	}
	if l.steer != nil {
		m, err := t.advance(l)
		if err != nil {
			return moved, err
		}
		moved = moved || m
	}
	if len(l.fwd) > 0 {
		m, err := t.share(l)
		if err != nil || len(l.fwd) > 0 {
			return moved || m, err
		}
		moved = moved || m
	}
	for i := 0; i < len(l.tx); {
		c := &l.tx[i]
		m, err := t.send(l, c)
		if err != nil {
			return moved, err
		}
		moved = moved || m
		if c.id == program.None {
			last := len(l.tx) - 1
			l.tx[i] = l.tx[last]
			l.tx = l.tx[:last]
			continue
		}
		i++
	}
	if l.left == 0 {
		m, err := t.endStage(l)
		return moved || m, err
	}
	return moved, nil
}

// send sends frames to one destination until the plane accepts no more, at most burst.
func (t *Task) send(l *lane, c *txChain) (bool, error) {
	moved := false
	for n := 0; n < burst && c.id != program.None && t.isReady(c.id) && t.ops[c.id].Step <= l.limit; n++ {
		took, err := t.offer(l, c, math.MaxInt)
		if err != nil || took == 0 {
			return moved, err
		}
		moved = true
	}
	return moved, nil
}

// offer offers at most limit bytes of a chain to the plane. It returns the number of bytes that the plane accepted.
func (t *Task) offer(l *lane, c *txChain, limit int) (int, error) {
	op := &t.ops[c.id]
	done := t.moved[c.id]
	if done == 0 {
		t.header(&c.header, op)
	}
	g := &op.Src[c.seg]
	c.header.Offset = uint64(op.Base + done)
	took, err := t.hand(l, c, t.bytes(g, c.off, min(g.Len, int64(limit))))
	if err != nil {
		return 0, t.fail(op, err)
	}
	if took == 0 {
		return 0, nil
	}
	t.began(c.id)
	t.moved[c.id] = done + int64(took)
	c.advance(g, took)
	if t.moved[c.id] == op.Bytes {
		if c.mark == 0 {
			t.complete(c.id)
		} else { // the plane still reads the payload, and dependent operations may write there
			l.lent = append(l.lent, loan{c.id, c.mark})
		}
		l.left--
		*c = txChain{chain: chain{id: t.prog.Next[c.id]}}
	}
	return took, nil
}

// hand passes payload to the plane, which copies it or borrows it.
func (t *Task) hand(l *lane, c *txChain, payload []byte) (int, error) {
	b := t.borrowers[l.id]
	if b == nil {
		return t.planes[l.id].TrySend(&c.header, payload)
	}
	took, mark, err := b.Lend(&c.header, payload)
	c.mark = max(c.mark, mark)
	return took, err
}

// collect completes the sends whose payload the plane has returned. While the lane has more to send, it asks only for
// sends that other operations wait for: a plane may copy payload in order to return it.
func (t *Task) collect(l *lane) (bool, error) {
	moved := false
	for i := 0; i < len(l.lent); {
		loan := &l.lent[i]
		if l.left > 0 && len(t.prog.Successors(loan.id)) == 0 && t.call.Gate == nil {
			i++
			continue
		}
		op := &t.ops[loan.id]
		mark, err := t.borrowers[l.id].Returned(int(op.Peer))
		if err != nil {
			return moved, t.fail(op, err)
		}
		if mark < loan.mark {
			i++
			continue
		}
		t.complete(loan.id)
		moved = true
		last := len(l.lent) - 1
		l.lent[i] = l.lent[last]
		l.lent = l.lent[:last]
	}
	return moved, nil
}
