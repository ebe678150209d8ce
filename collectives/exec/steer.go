package exec

import (
	"math"

	"lightpath/collectives/program"
)

// If the kernel forwards, this rank sees only the number of forwarded bytes. Forwards complete in the order of steps
// when the count reaches their sizes. Bytes of a later step, or of a later stage with the same circuits here, may
// arrive early and count for an earlier forward. No frame for this rank's new circuit is sent before its
// reconfiguration. So at the end of a stage that moves the circuit, the count is exact.

// switching reports whether the task waits for a reconfiguration of a plane with kernel forwarding.
func (t *Task) switching() bool {
	for i := range t.lanes {
		if l := &t.lanes[i]; l.steer != nil && l.gated && l.left > 0 {
			return true
		}
	}
	return false
}

// advance completes forwards by the count of forwarded bytes. It sets l.limit, the last step of which this rank may
// send.
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
			if len(l.tx) > 0 { // enough to raise the limit
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
