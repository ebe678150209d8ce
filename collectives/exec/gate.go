package exec

import "lightpath/collectives/program"

// bindGate counts the operations of each message.
func (t *Task) bindGate() {
	t.parts = resize(t.parts, len(t.prog.MsgBytes))
	clear(t.parts)
	for i := range t.ops {
		if m := messageOf(&t.ops[i]); m >= 0 {
			t.parts[m]++
		}
	}
}

// messageOf is the message that an operation moves, -1 for what a rank copies to itself.
func messageOf(op *program.Op) int32 {
	switch op.Kind {
	case program.Send:
		return op.Src[0].Msg
	case program.Recv:
		return op.Dst[0].Msg
	}
	return -1
}

// isReady reports whether an operation may move bytes.
func (t *Task) isReady(id program.OpID) bool {
	return t.waits[id] == 0 && (t.call.Gate == nil || t.call.Gate.Open(int(messageOf(&t.ops[id]))))
}

// over records that an operation has been done, for the gate.
func (t *Task) over(id program.OpID) {
	m := messageOf(&t.ops[id])
	if m < 0 {
		return
	}
	if t.parts[m]--; t.parts[m] == 0 {
		t.call.Gate.Over(int(m))
	}
}
