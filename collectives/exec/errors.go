package exec

import "errors"

// Errors of a task. Each is wrapped with the rank, plane, step and epoch concerned. Errors
// of the transport, of the switch and of the caller's poison are passed on likewise.
var (
	// ErrCall: the call does not fit its program.
	ErrCall = errors.New("call does not fit its program")
	// ErrForeignFrame: a frame of another communicator, or between ranks that the program
	// does not join on that plane.
	ErrForeignFrame = errors.New("frame of a stranger")
	// ErrSequence: a frame of an operation that is over, or of another step.
	ErrSequence = errors.New("frame out of sequence")
	// ErrSignature: two ranks have made different calls.
	ErrSignature = errors.New("ranks made different calls")
	// ErrEpoch: a frame that travelled a circuit of another epoch.
	ErrEpoch = errors.New("frame of another epoch")
	// ErrOffset: a frame that is not the next of its flow, or does not end where it should.
	ErrOffset = errors.New("frame at another offset")
	// ErrLate: a plane has switched, as the call said it would, before this rank was done with
	// the circuits it had.
	ErrLate = errors.New("late for the switch")
	// ErrTimeout: nothing has moved for the time allowed.
	ErrTimeout = errors.New("timed out")
	// ErrDeadline: the tasks were not done at the time that they had to be.
	ErrDeadline = errors.New("deadline exceeded")
)
