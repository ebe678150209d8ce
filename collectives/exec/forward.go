package exec

import (
	"fmt"

	"lightpath/collectives/program"
	"lightpath/collectives/transport"
)

// In the cost model, flows on one circuit share it equally, step by step. Without the following rules, upstream flows
// would starve downstream flows, and the slowest flow determines the completion time. A rank that forwards
//
//   - sends one frame of its own, then one of each flow that it forwards;
//   - sends no frame of a later step while it still forwards frames of an earlier step;
//   - breaks these rules only if the circuit would otherwise be idle.

// idleBacklog is the number of queued frames below which a rank breaks the rules. It keeps the circuit busy until the
// rank runs again, and is small enough not to delay forwarded frames.
const idleBacklog = 4

// sendAndForward serves a stage in which this rank sends and forwards. It ends without progress, or after the last
// forward.
func (t *Task) sendAndForward(l *lane) (bool, error) {
	f := t.planes[l.id].forwarder
	if f == nil {
		return false, fmt.Errorf("exec: rank %d plane %d does not forward: %w", t.prog.Rank, l.id, ErrCall)
	}
	moved := false
	for n := 0; n < burst && len(l.fwd) > 0; n++ {
		if l.forwardsOwed <= 0 {
			sent, err := t.sendFrame(l, f)
			if err != nil {
				return moved, err
			}
			if sent {
				l.forwardsOwed, moved = len(l.fwd), true
				continue
			}
		}
		passed, err := t.forwardFrame(l, f)
		if err != nil {
			return moved, err
		}
		if passed {
			l.forwardsOwed--
			moved = true
			continue
		}
		if f.Backlog() >= idleBacklog {
			break
		}
		sent, err := t.sendFrame(l, f)
		if err != nil || !sent {
			return moved, err
		}
		moved = true
	}
	return moved, nil
}

// sendFrame sends one frame of this rank, unless its step is later than that of a forward.
func (t *Task) sendFrame(l *lane, f transport.Forwarder) (bool, error) {
	earliest := t.code[l.fwd[0]].Step
	for _, id := range l.fwd[1:] {
		earliest = min(earliest, t.code[id].Step)
	}
	for i := range l.tx {
		c := &l.tx[i]
		if t.depsLeft[c.id] != 0 || t.code[c.id].Step > earliest {
			continue
		}
		took, err := t.offer(l, c, f.Payload())
		if err != nil {
			return false, err
		}
		if c.id == program.None {
			l.tx = remove(l.tx, i)
		}
		return took > 0, nil // 0: the plane has no free slot
	}
	return false, nil
}

// forwardFrame forwards the oldest frame that has arrived for another rank.
func (t *Task) forwardFrame(l *lane, f transport.Forwarder) (bool, error) {
	h, payload, err := f.PeekTransit()
	if err != nil {
		return false, t.failAt(&t.code[l.fwd[0]], err)
	}
	if h == nil {
		return false, nil
	}
	i, err := t.forwardOf(l, h, len(payload))
	if err != nil || i < 0 {
		return false, err
	}
	id := l.fwd[i]
	in := &t.code[id]
	length := int64(len(payload))
	ok, err := f.Forward(t.epoch(l.id, in.Epoch))
	if err != nil {
		return false, t.failAt(in, err)
	}
	if !ok {
		return false, nil
	}
	t.noteBegin(id)
	if t.bytesDone[id] += length; t.bytesDone[id] == in.Bytes {
		t.complete(id)
		l.txLeft--
		if next := t.prog.Next[id]; next != program.None {
			l.fwd[i] = next
		} else {
			l.fwd = append(l.fwd[:i], l.fwd[i+1:]...)
		}
	}
	return true, nil
}
