package exec

import "lightpath/collectives/program"

// countParts counts the operations of each message in t.opsLeft.
func (t *Task) countParts() {
	t.opsLeft = resize(t.opsLeft, len(t.prog.MsgBytes))
	clear(t.opsLeft)
	for i := range t.ops {
		if m := messageOf(&t.ops[i]); m >= 0 {
			t.opsLeft[m]++
		}
	}
}

// messageOf returns the message of an operation, or -1 for a local copy.
func messageOf(op *program.Op) int32 {
	switch op.Kind {
	case program.Send:
		return op.Src[0].Msg
	case program.Recv:
		return op.Dst[0].Msg
	}
	return -1
}

// isReady reports whether an operation has no incomplete dependencies and the memory of its message is ready.
func (t *Task) isReady(id program.OpID) bool {
	return t.depsLeft[id] == 0 && (t.call.Memory == nil || t.call.Memory.Ready(int(messageOf(&t.ops[id]))))
}

// noteMessage calls MessageMemory.Moved after the last operation of a message.
func (t *Task) noteMessage(id program.OpID) {
	m := messageOf(&t.ops[id])
	if m < 0 {
		return
	}
	if t.opsLeft[m]--; t.opsLeft[m] == 0 {
		t.call.Memory.Moved(int(m))
	}
}
