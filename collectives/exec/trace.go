package exec

import (
	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
)

// Event is when an operation ran: from its first byte to its end, in nanoseconds of
// CLOCK_MONOTONIC, which all processes of a host share. A reconfiguration starts with this
// rank's request and ends when its next transmission may start; it has no end where
// nothing followed. Start is 0 for a reconfiguration that this rank has no part in.
type Event struct {
	Start, End int64
	Epoch      uint32 // of the plane, as frames carry it; 0 without a plane
	Plane      int16  // -1 without a plane
	Kind       program.Kind
}

// Trace turns the recording of events on or off, from the next Bind.
func (t *Task) Trace(on bool) { t.tracing = on }

// Events returns what the last run recorded, nil where tracing is off: an event for each operation, in the
// order of the program, or of its sections and their repetitions. Valid until the next Bind.
func (t *Task) Events() []Event {
	if !t.tracing {
		return nil
	}
	return t.events
}

// began records when an operation moves its first bytes.
func (t *Task) began(id program.OpID) {
	if !t.tracing {
		return
	}
	e, op := &t.events[t.past+id], &t.ops[id]
	if e.Start != 0 {
		return
	}
	e.Start = monotonic.Now()
	if op.Plane >= 0 {
		e.Epoch = t.epoch(int(op.Plane), op.Epoch)
	}
}
