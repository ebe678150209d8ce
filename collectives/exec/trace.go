package exec

import (
	"lightpath/collectives/program"
	"lightpath/internal/monotonic"
)

// Event has the times of an instruction's first and last bytes in nanoseconds of CLOCK_MONOTONIC, which all processes
// of a host share.
//
// A reconfiguration starts with this rank's request and ends when its next send may start. End is 0 if no send follows.
// Start is 0 if this rank does not take part.
type Event struct {
	Start, End int64
	Epoch      uint32 // epoch of the plane, as in frames; 0 without a plane
	Plane      int16  // -1 without a plane
	Kind       program.Kind
}

// Observer is told what a task does while it runs, on the goroutine that runs it.
type Observer interface {
	// Transfer reports the first bytes of a send or receive or, if ended is set, its last ones. id counts the
	// instructions of the call from 0, over all sections. The pointer is valid during the call.
	Transfer(id program.ID, in *program.Instruction, ended bool)
	// Hold reports that a plane with something to send waits for its circuits or, if ended is set, has them now. A task
	// that fails may not report the end of a transfer or wait.
	Hold(plane int, ended bool)
}

// Trace turns the recording of events on or off, from the next Bind on.
func (t *Task) Trace(on bool) { t.traced = on }

// Events returns the events of the last run, or nil if tracing is off. There is one event per instruction, in the order
// of the program or of its sections and their repetitions. The slice is valid until the next Bind.
func (t *Task) Events() []Event {
	if !t.tracing {
		return nil
	}
	return t.events
}

// noteBegin records the time of an instruction's first bytes.
func (t *Task) noteBegin(id program.ID) {
	if !t.tracing {
		return
	}
	e, in := &t.events[t.codeBefore+id], &t.code[id]
	if e.Start != 0 {
		return
	}
	e.Start = monotonic.Now()
	if in.Plane >= 0 {
		e.Epoch = t.epoch(int(in.Plane), in.Epoch)
	}
	t.observe(id, false)
}

// noteEnd records the time of an instruction's last bytes.
func (t *Task) noteEnd(id program.ID) {
	t.events[t.codeBefore+id].End = monotonic.Now()
	t.observe(id, true)
}

// observe tells the observer of a transfer.
func (t *Task) observe(id program.ID, ended bool) {
	if in := &t.code[id]; t.call.Observer != nil && in.Kind.Transfers() {
		t.call.Observer.Transfer(t.codeBefore+id, in, ended)
	}
}

// noteHold tells the observer whether a plane waits for its circuits.
func (t *Task) noteHold(l *lane, held bool) {
	if t.call.Observer != nil && l.holdReported != held {
		l.holdReported = held
		t.call.Observer.Hold(l.id, !held)
	}
}
