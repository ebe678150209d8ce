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
		if l := &t.lanes[i]; l.steer != nil && l.awaitsCircuits && l.txLeft > 0 {
			return true
		}
	}
	return false
}

// countForwarded completes forwards by the count of forwarded bytes. It sets l.lastStep, the last step of which this
// rank may send.
func (t *Task) countForwarded(l *lane) (bool, error) {
	st := &t.prog.Lanes[l.id].Stages[l.stage]
	moved := false
	for asked, seen := false, int64(0); l.nextForward < len(st.TX); l.nextForward++ {
		id := st.TX[l.nextForward]
		in := &t.code[id]
		if in.Kind != program.Forward {
			continue
		}
		l.lastStep = in.Step
		if !asked {
			var err error
			want := l.forwardDue
			if len(l.tx) > 0 { // enough to raise the limit
				want = l.forwarded + in.Bytes
			}
			if seen, err = l.steer.Transit(t.call.Comm, t.call.Op, want); err != nil {
				return moved, t.failAt(in, err)
			}
			asked = true
		}
		if seen > l.forwarded {
			t.noteBegin(id)
		}
		if t.bytesDone[id] = min(in.Bytes, max(seen-l.forwarded, 0)); t.bytesDone[id] < in.Bytes {
			return moved, nil
		}
		l.forwarded += in.Bytes
		l.txLeft--
		t.complete(id)
		moved = true
	}
	l.lastStep = math.MaxInt32
	return moved, nil
}
