package program

import "errors"

// Errors of lowering. They are wrapped with the step, plane and flow concerned.
var (
	// ErrArgs: rank, planes, count or element size make no sense for the schedule.
	ErrArgs = errors.New("bad lowering arguments")
	// ErrSchedule: the schedule contradicts itself, for example a move whose two ends
	// differ in size.
	ErrSchedule = errors.New("bad schedule")
	// ErrPlan: the plan does not carry the schedule, for example a flow without a route.
	ErrPlan = errors.New("plan does not fit the schedule")
	// ErrUnsupported: a legal plan or schedule that lowering cannot express.
	ErrUnsupported = errors.New("not supported by lowering")
	// ErrUnmatched: a send to oneself without its receive, or of another size.
	ErrUnmatched = errors.New("unmatched send or receive to oneself")
)
