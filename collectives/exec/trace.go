package exec

import "lightpath/collectives/program"

// Event is when an operation ran: from its first byte to its end, in nanoseconds of
// CLOCK_MONOTONIC, which all processes of a host share. A reconfiguration starts with this
// rank's request and ends when its next transmission may start; it has no end where
// nothing followed.
type Event struct {
	Start, End int64
}

// Trace turns the recording of events on or off, from the next Bind.
func (t *Task) Trace(on bool) { t.tracing = on }

// Events returns what the last run recorded, by [program.OpID], nil where tracing is off.
// Valid until the next Bind.
func (t *Task) Events() []Event {
	if !t.tracing {
		return nil
	}
	return t.events
}

// Program returns the program of the last Bind.
func (t *Task) Program() *program.Program { return t.prog }
