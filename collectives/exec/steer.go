package exec

import (
	"math"

	"lightpath/collectives/program"
)

// Where the kernel steers, this rank sees of what it forwards only how many bytes have passed. In
// the order of steps, forwards are complete as the count reaches their sizes. Bytes of a later step,
// or of a stage whose circuits through here are the same, may come early and be counted for an
// earlier one; but nothing that comes through this rank's circuit after a move of it is sent before
// that move, so when a stage ends with one, the count is exactly what had to pass before.

// switching reports whether a plane that steers has to switch before the task can go on with it.
func (t *Task) switching() bool {
	for i := range t.lanes {
		if l := &t.lanes[i]; l.steer != nil && l.gated && l.left > 0 {
			return true
		}
	}
	return false
}

// advance completes the forwards that have passed, and sets the step beyond which this rank sends
// nothing yet: flows of an earlier one still come through.
func (t *Task) advance(l *lane) (bool, error) {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	moved := false
	for asked, seen := false, int64(0); l.next < len(st.TX); l.next++ {
		id := st.TX[l.next]
		op := &t.ops[id]
		if op.Kind != program.Forward {
			continue
		}
		l.limit = op.Step
		if !asked {
			var err error
			want := l.due
			if len(l.tx) > 0 { // what lets them go
				want = l.passed + op.Bytes
			}
			if seen, err = l.steer.Transit(t.call.Comm, t.call.Op, want); err != nil {
				return moved, t.fail(op, err)
			}
			asked = true
		}
		if seen > l.passed {
			t.began(id)
		}
		if t.moved[id] = min(op.Bytes, max(seen-l.passed, 0)); t.moved[id] < op.Bytes {
			return moved, nil
		}
		l.passed += op.Bytes
		l.left--
		t.complete(id)
		moved = true
	}
	l.limit = math.MaxInt32
	return moved, nil
}
