package program

import "errors"

// Errors of lowering. The returned errors wrap them and name step, plane and flow.
var (
	// ErrArgs reports an invalid rank, number of planes, count or element size.
	ErrArgs = errors.New("bad lowering arguments")
	// ErrSchedule reports an inconsistent schedule, for example a move whose two ends differ in size.
	ErrSchedule = errors.New("bad schedule")
	// ErrPlan reports a plan that does not carry the schedule, for example a flow without a route.
	ErrPlan = errors.New("plan does not fit the schedule")
	// ErrUnsupported reports a valid plan or schedule that a program cannot express.
	ErrUnsupported = errors.New("not supported by lowering")
	// ErrUnmatched reports a send of a rank to itself without a receive of the same size.
	ErrUnmatched = errors.New("unmatched send or receive to oneself")
)
