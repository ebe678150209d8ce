package exec

import "lightpath/collectives/program"

// countParts counts the instructions of each message in t.partsLeft.
func (t *Task) countParts() {
	t.partsLeft = resize(t.partsLeft, len(t.prog.MsgBytes))
	clear(t.partsLeft)
	for i := range t.code {
		if m := messageOf(&t.code[i]); m >= 0 {
			t.partsLeft[m]++
		}
	}
}

// messageOf returns the message of an instruction, or -1 for a local copy.
func messageOf(in *program.Instruction) int32 {
	switch in.Kind {
	case program.Send:
		return in.Src[0].Msg
	case program.Recv:
		return in.Dst[0].Msg
	}
	return -1
}

// isReady reports whether an instruction has no incomplete dependencies and the memory of its message is ready.
func (t *Task) isReady(id program.ID) bool {
	return t.depsLeft[id] == 0 && (t.call.Memory == nil || t.call.Memory.Ready(int(messageOf(&t.code[id]))))
}

// noteMessage calls MessageMemory.Moved after the last instruction of a message.
func (t *Task) noteMessage(id program.ID) {
	m := messageOf(&t.code[id])
	if m < 0 {
		return
	}
	if t.partsLeft[m]--; t.partsLeft[m] == 0 {
		t.call.Memory.Moved(int(m))
	}
}
