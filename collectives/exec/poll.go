package exec

import (
	"math"

	"lightpath/collectives/program"
)

// burst is the largest number of frames of one chain before poll serves the next one.
const burst = 16

// localBytes is the largest number of bytes of local work between two polls of the planes, so that no plane becomes
// idle during a copy.
const localBytes = 256 << 10

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
			m, err := t.sendLane(l)
			if err != nil {
				return moved, err
			}
			moved = moved || m
		}
		if l := &t.lanes[i]; len(l.lent) > 0 {
			m, err := t.collectReturned(l)
			if err != nil {
				return moved, err
			}
			moved = moved || m
		}
	}
	moved = t.runLocal() || moved
	for i := range t.lanes {
		if l := &t.lanes[i]; len(l.rx) > 0 {
			m, err := t.receiveLane(l)
			if err != nil {
				return moved, err
			}
			moved = moved || m
		}
	}
	t.enterNext()
	return moved, nil
}

// runLocal runs about localBytes of local instructions, and reports whether there were any.
func (t *Task) runLocal() bool {
	moved := false
	for left := int64(localBytes); left > 0; moved = true {
		if t.local.id == program.None {
			last := len(t.ready) - 1
			if last < 0 {
				break
			}
			t.local = chain{id: t.ready[last]}
			t.ready = t.ready[:last]
			t.noteBegin(t.local.id)
		}
		left -= t.runPart(&t.local, left)
	}
	return moved
}

// runPart executes about n bytes of the present segment of a local instruction, in whole elements. It returns the
// number of bytes.
func (t *Task) runPart(c *chain, n int64) int64 {
	in := &t.code[c.id]
	if c.seg == len(in.Src) {
		t.complete(c.id)
		c.id = program.None
		return 0
	}
	const step = 64 // a multiple of the size of every element
	from, to := &in.Src[c.seg], &in.Dst[c.seg]
	src := t.bytes(from, c.off, max(n&^(step-1), step))
	dst := t.bytes(to, c.off, int64(len(src)))
	switch {
	case in.Kind == program.LocalReduce:
		t.call.Reduce(dst, src)
	case in.Scale:
		t.call.Scale(dst, src, t.call.Factor)
	default:
		copy(dst, src)
	}
	c.advance(from, len(src))
	return int64(len(src))
}

// sendLane serves the lane's present stage, and the reconfiguration at its end.
func (t *Task) sendLane(l *lane) (bool, error) {
	moved := false
	if l.awaitsCircuits && l.txLeft > 0 {
		if ok, err := t.hasCircuits(l); err != nil || !ok {
			return false, err
		}
		moved = true
	}
	if l.steer != nil {
		m, err := t.countForwarded(l)
		if err != nil {
			return moved, err
		}
		moved = moved || m
	}
	if len(l.fwd) > 0 {
		m, err := t.sendAndForward(l)
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
			l.tx = remove(l.tx, i)
			continue
		}
		i++
	}
	if l.txLeft == 0 {
		m, err := t.endStage(l)
		return moved || m, err
	}
	return moved, nil
}

// send sends frames to one destination until the plane accepts no more, at most burst.
func (t *Task) send(l *lane, c *txChain) (bool, error) {
	moved := false
	for n := 0; n < burst && c.id != program.None && t.isReady(c.id) && t.code[c.id].Step <= l.lastStep; n++ {
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
	in := &t.code[c.id]
	done := t.bytesDone[c.id]
	if done == 0 {
		t.setHeader(&c.header, in)
	}
	g := &in.Src[c.seg]
	c.header.Offset = uint64(in.Base + done)
	payload := t.bytes(g, c.off, min(g.Len, int64(limit)))
	var took int
	var err error
	if p := &t.planes[l.id]; p.borrower != nil {
		var mark uint64
		took, mark, err = p.borrower.Lend(&c.header, payload)
		c.mark = max(c.mark, mark)
	} else {
		took, err = p.TrySend(&c.header, payload)
	}
	if err != nil {
		return 0, t.failAt(in, err)
	}
	if took == 0 {
		return 0, nil
	}
	t.noteBegin(c.id)
	t.bytesDone[c.id] = done + int64(took)
	c.advance(g, took)
	if t.bytesDone[c.id] == in.Bytes {
		if c.mark == 0 {
			t.complete(c.id)
		} else { // the plane still reads the payload, and dependent instructions may write there
			l.lent = append(l.lent, loan{c.id, c.mark})
		}
		l.txLeft--
		*c = txChain{chain: chain{id: t.prog.Next[c.id]}}
	}
	return took, nil
}

// collectReturned completes the sends whose payload the plane has returned. While the lane has more to send, it asks
// only for sends that other instructions wait for: a plane may copy payload in order to return it.
func (t *Task) collectReturned(l *lane) (bool, error) {
	moved, all := false, t.call.Memory != nil || t.onlyLoansLeft()
	for i := 0; i < len(l.lent); {
		loan := &l.lent[i]
		if l.txLeft > 0 && len(t.prog.Successors(loan.id)) == 0 && t.call.Memory == nil {
			i++
			continue
		}
		in := &t.code[loan.id]
		mark, err := t.planes[l.id].borrower.Returned(int(in.Peer), all || t.awaits(loan.id))
		if err != nil {
			return moved, t.failAt(in, err)
		}
		if mark < loan.mark {
			i++
			continue
		}
		t.complete(loan.id)
		moved = true
		l.lent = remove(l.lent, i)
	}
	return moved, nil
}

// onlyLoansLeft reports whether the end of the task waits for sends alone whose payload planes still read.
func (t *Task) onlyLoansLeft() bool {
	lent := 0
	for i := range t.lanes {
		lent += len(t.lanes[i].lent)
	}
	return t.remaining == lent
}

// awaits reports whether the next instruction of a chain, or a local instruction, waits for a send. If none does, and
// the task does not end with such sends, a copy of the send's payload gains nothing.
func (t *Task) awaits(id program.ID) bool {
	for _, s := range t.prog.Successors(id) {
		if t.code[s].Plane < 0 || t.isNext(s) {
			return true
		}
	}
	return false
}

// isNext reports whether an instruction is the next send or receive of its chain.
func (t *Task) isNext(id program.ID) bool {
	l := &t.lanes[t.code[id].Plane]
	for i := range l.rx {
		if l.rx[i].id == id {
			return true
		}
	}
	for i := range l.tx {
		if l.tx[i].id == id {
			return true
		}
	}
	return false
}
