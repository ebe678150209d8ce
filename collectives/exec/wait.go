package exec

import (
	"fmt"

	"lightpath/collectives/program"
)

// Wait describes what an unfinished task waits for: the first blocked instruction without incomplete dependencies, by
// plane.
type Wait struct {
	Rank        int    // the waiting rank
	Op          uint64 // number of the communicator's operation
	Kind        program.Kind
	Peer        int // the rank for which it waits; -1 for a Reconfigure
	Plane       int
	Step        int
	Epoch       uint32
	Done, Bytes int64  // bytes moved, bytes of the instruction
	Detail      string // the switch's description of a reconfiguration in progress
}

// String returns w as a phrase, "receive from rank 3 (plane 1, step 2, epoch 7, 0 of 64 bytes)".
func (w Wait) String() string {
	where := fmt.Sprintf("(plane %d, step %d, epoch %d, %d of %d bytes)", w.Plane, w.Step, w.Epoch, w.Done, w.Bytes)
	switch w.Kind {
	case program.Send:
		return fmt.Sprintf("send to rank %d %s", w.Peer, where)
	case program.Recv, program.RecvReduce:
		return fmt.Sprintf("receive from rank %d %s", w.Peer, where)
	case program.Forward:
		return fmt.Sprintf("forward from rank %d %s", w.Peer, where)
	case program.Reconfigure:
		s := fmt.Sprintf("reconfiguration of plane %d from epoch %d", w.Plane, w.Epoch)
		if w.Detail != "" {
			s += ": " + w.Detail
		}
		return s
	}
	return "local instruction"
}

// Waiting returns what t waits for, and false if it waits for nothing. It queries the switch about a reconfiguration in
// progress, which may take some time.
func (t *Task) Waiting() (Wait, bool) {
	w, ok := t.Blocked()
	if ok && w.Kind == program.Reconfigure {
		if d, able := t.call.OCS.(interface{ Waiting(plane int) string }); able {
			w.Detail = d.Waiting(w.Plane)
		}
	}
	return w, ok
}

// Blocked is like Waiting, but does not query the switch.
func (t *Task) Blocked() (Wait, bool) { return t.BlockedBy(func(int) bool { return true }) }

// BlockedBy is like Blocked, but returns only a wait for one of some ranks. The rank of a reconfiguration is -1.
func (t *Task) BlockedBy(some func(rank int) bool) (Wait, bool) {
	if !t.bound || t.remaining == 0 {
		return Wait{}, false
	}
	if t.call.Engine != nil {
		w := t.call.Engine.Waiting()
		return w, some(w.Peer)
	}
	for i := range t.lanes {
		for _, c := range t.lanes[i].rx {
			if t.waitsFor(c.id, some) {
				return t.waitOf(c.id), true
			}
		}
	}
	for i := range t.lanes {
		if w, ok := t.waitOfLane(&t.lanes[i], some); ok {
			return w, true
		}
	}
	return Wait{Rank: t.prog.Rank, Op: t.call.Op, Peer: -1, Plane: -1}, some(-1)
}

// waitsFor reports whether an instruction without incomplete dependencies waits for one of some ranks.
func (t *Task) waitsFor(id program.ID, some func(rank int) bool) bool {
	return t.depsLeft[id] == 0 && some(int(t.code[id].Peer))
}

func (t *Task) waitOfLane(l *lane, some func(rank int) bool) (Wait, bool) {
	if (l.awaitsCircuits && l.txLeft > 0 || !l.finished && l.txLeft == 0) && some(-1) {
		w := Wait{Rank: t.prog.Rank, Op: t.call.Op, Kind: program.Reconfigure, Peer: -1, Plane: l.id, Epoch: l.awaitedEpoch}
		if l.awaitsCircuits && l.txLeft > 0 {
			w.Epoch--
		}
		return w, true
	}
	for _, c := range l.tx {
		if t.waitsFor(c.id, some) {
			return t.waitOf(c.id), true
		}
	}
	for _, id := range l.fwd {
		if some(int(t.code[id].Peer)) {
			return t.waitOf(id), true
		}
	}
	for _, loan := range l.lent {
		if some(int(t.code[loan.id].Peer)) {
			return t.waitOf(loan.id), true
		}
	}
	return Wait{}, false
}

func (t *Task) waitOf(id program.ID) Wait {
	w := t.describe(&t.code[id])
	w.Done = t.bytesDone[id]
	return w
}

func (t *Task) describe(in *program.Instruction) Wait {
	return Wait{
		Rank: t.prog.Rank, Op: t.call.Op, Kind: in.Kind, Peer: int(in.Peer), Plane: int(in.Plane), Step: int(in.Step),
		Epoch: t.epoch(int(in.Plane), in.Epoch), Bytes: in.Bytes,
	}
}
