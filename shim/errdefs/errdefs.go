// Package errdefs has the kinds of errors that communicators and their parts return. Package result maps them to
// results of the NCCL ABI.
package errdefs

import "errors"

// The kinds of errors. Every error wraps one of them, or an error of a lower layer.
var (
	// ErrInvalidArgument: the call had no effect; the message names the argument.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrInvalidUsage: the call is not allowed in the present state.
	ErrInvalidUsage = errors.New("invalid usage")
	// ErrMismatch: ranks of one communicator made calls that do not belong together.
	ErrMismatch = errors.New("ranks made different calls")
	// ErrTimeout: a wait exceeded LIGHTPATH_TIMEOUT; the message names the rank that it waited for.
	ErrTimeout = errors.New("timed out")
	// ErrRemote: a rank exited, or the network to it failed.
	ErrRemote = errors.New("remote process exited or there was a network error")
	// ErrAborted: this rank or another aborted the communicator.
	ErrAborted = errors.New("communicator aborted")
	// ErrRevoked: this rank or another revoked the communicator.
	ErrRevoked = errors.New("communicator revoked")
	// ErrInProgress: no failure; the operation continues in the background.
	ErrInProgress = errors.New("operation in progress")
	// ErrDestroyed: the communicator has been finalized or destroyed.
	ErrDestroyed = errors.New("communicator destroyed")
	// ErrLibrary: another libnccl, which executes calls for this one, has refused a request or failed.
	ErrLibrary = errors.New("the other library")
	// ErrSystem: the operating system refused a request: no more files, memory or space.
	ErrSystem = errors.New("system error")
	// ErrInternal: a defect of Lightpath.
	ErrInternal = errors.New("internal error")
)
