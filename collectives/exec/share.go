package exec

import (
	"fmt"

	"lightpath/collectives/program"
	"lightpath/collectives/transport"
)

// A circuit that several flows share carries them in equal parts in the cost model, and steps
// one after the other. Ranks that forward must see to both, or flows that happen to be
// upstream starve the others and the slowest flow decides:
//
//   - a frame of this rank's own, then one of each flow that comes through, in turn;
//   - nothing of its own of a later step while flows of an earlier one still come through;
//   - out of turn only where the wire would fall idle.

// idleBacklog is how few frames may be waiting for the wire when a rank sends out of turn: enough
// to keep it busy until the rank runs again, few enough not to stand in the way of transit.
const idleBacklog = 4

// share serves a stage in which this rank sends and forwards, until nothing moves or
// nothing is left to forward.
func (t *Task) share(l *lane) (bool, error) {
	f := t.forwarders[l.id]
	if f == nil {
		return false, fmt.Errorf("exec: rank %d plane %d does not forward: %w", t.prog.Rank, l.id, ErrCall)
	}
	moved := false
	for n := 0; n < burst && len(l.fwd) > 0; n++ {
		if l.owed <= 0 {
			sent, err := t.sendFrame(l, f)
			if err != nil {
				return moved, err
			}
			if sent {
				l.owed, moved = len(l.fwd), true
				continue
			}
		}
		passed, err := t.forwardFrame(l, f)
		if err != nil {
			return moved, err
		}
		if passed {
			l.owed--
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

// sendFrame sends one frame of this rank's own, of the earliest step that may go.
func (t *Task) sendFrame(l *lane, f transport.Forwarder) (bool, error) {
	earliest := t.ops[l.fwd[0]].Step
	for _, id := range l.fwd[1:] {
		earliest = min(earliest, t.ops[id].Step)
	}
	for i := range l.tx {
		c := &l.tx[i]
		if t.waits[c.id] != 0 || t.ops[c.id].Step > earliest {
			continue
		}
		took, err := t.offer(l, c, f.Payload())
		if err != nil {
			return false, err
		}
		if c.id == program.None {
			last := len(l.tx) - 1
			l.tx[i] = l.tx[last]
			l.tx = l.tx[:last]
		}
		if took > 0 {
			return true, nil
		}
		return false, nil // no room for anyone
	}
	return false, nil
}

// forwardFrame passes on the oldest frame that has arrived here for another rank.
func (t *Task) forwardFrame(l *lane, f transport.Forwarder) (bool, error) {
	h, payload, err := f.PeekTransit()
	if err != nil {
		return false, t.fail(&t.ops[l.fwd[0]], err)
	}
	if h == nil {
		return false, nil
	}
	i, err := t.transit(l, h, len(payload))
	if err != nil || i < 0 {
		return false, err
	}
	id := l.fwd[i]
	op := &t.ops[id]
	length := int64(len(payload))
	ok, err := f.Forward(t.epoch(l.id, op.Epoch))
	if err != nil {
		return false, t.fail(op, err)
	}
	if !ok {
		return false, nil
	}
	t.began(id)
	if t.moved[id] += length; t.moved[id] == op.Bytes {
		t.complete(id)
		l.left--
		if next := t.prog.Next[id]; next != program.None {
			l.fwd[i] = next
		} else {
			l.fwd = append(l.fwd[:i], l.fwd[i+1:]...)
		}
	}
	return true, nil
}
