package exec

import "errors"

// Errors of a task. The returned errors wrap them, or errors of the transport, the switch or Call.Poison, and name
// rank, plane, step and epoch.
var (
	// ErrCall reports a call that does not match its program.
	ErrCall = errors.New("call does not fit its program")
	// ErrForeignFrame reports a frame of another communicator, or one between two ranks that the program does not
	// connect on that plane.
	ErrForeignFrame = errors.New("frame of a stranger")
	// ErrSequence reports a frame of an earlier operation or of another step.
	ErrSequence = errors.New("frame out of sequence")
	// ErrSignature reports that two ranks have made different calls.
	ErrSignature = errors.New("ranks made different calls")
	// ErrEpoch reports a frame that used a circuit of another epoch.
	ErrEpoch = errors.New("frame of another epoch")
	// ErrOffset reports a frame that is not the next one of its flow, or that has a wrong length.
	ErrOffset = errors.New("frame at another offset")
	// ErrTimeout reports that there was no progress for Options.Timeout.
	ErrTimeout = errors.New("timed out")
	// ErrDeadline reports that the tasks had not finished at Options.Deadline.
	ErrDeadline = errors.New("deadline exceeded")
)
