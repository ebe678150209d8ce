package shim

import (
	"errors"
	"os"
	"syscall"

	"lightpath/collectives/exec"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/ocsctl"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/other"
)

// Result is what the NCCL ABI reports for a call; the values are ncclResult_t's.
type Result int32

// The results.
const (
	ResultSuccess Result = iota
	ResultUnhandledCudaError
	ResultSystemError
	ResultInternalError
	ResultInvalidArgument
	ResultInvalidUsage
	ResultRemoteError
	ResultInProgress
	ResultTimeout
)

// The kinds of errors of this package, most of them of package errdefs, which says what they mean. Every error
// that it returns wraps one of them or one of the layers below; [ResultOf] maps all of them.
var (
	ErrInvalidArgument = errdefs.ErrInvalidArgument
	ErrInvalidUsage    = errdefs.ErrInvalidUsage
	ErrMismatch        = errdefs.ErrMismatch
	ErrTimeout         = errdefs.ErrTimeout
	ErrRemote          = errdefs.ErrRemote
	ErrAborted         = errdefs.ErrAborted
	ErrRevoked         = errdefs.ErrRevoked
	ErrInProgress      = errdefs.ErrInProgress
	ErrDestroyed       = errdefs.ErrDestroyed
	ErrInternal        = errdefs.ErrInternal
	// ErrDevice: the driver of the communicator's device refused what a call needs.
	ErrDevice = device.ErrDriver
)

// resultTable maps errors to results, the first match in order.
var resultTable = []struct {
	is error
	to Result
}{
	{ErrInvalidArgument, ResultInvalidArgument},
	{ErrDestroyed, ResultInvalidArgument},
	{ErrInvalidUsage, ResultInvalidUsage},
	{ErrMismatch, ResultInvalidUsage},
	{ErrRemote, ResultRemoteError},
	{ErrTimeout, ResultTimeout},
	{ErrAborted, ResultRemoteError},
	{ErrRevoked, ResultInvalidUsage},
	{ErrInProgress, ResultInProgress},
	{exec.ErrSignature, ResultInvalidUsage},
	{exec.ErrTimeout, ResultTimeout},
	{exec.ErrDeadline, ResultTimeout},
	{exec.ErrLate, ResultSystemError},
	{transport.ErrPeerLost, ResultRemoteError},
	{transport.ErrClosed, ResultRemoteError},
	{ocsctl.ErrControlLost, ResultSystemError},
	{ocsctl.ErrReconfFailed, ResultSystemError},
	{ocsctl.ErrConflict, ResultSystemError},
	{ocsctl.ErrStaleEpoch, ResultSystemError},
	{ocsctl.ErrUnknownMap, ResultSystemError},
	{ocsctl.ErrFramesLost, ResultSystemError},
	{ocsctl.ErrPortLost, ResultRemoteError},
	{ocsctl.ErrPlaneDown, ResultSystemError},
	{ocsctl.ErrNotHolder, ResultSystemError},
	{ocsctl.ErrPinned, ResultInvalidUsage},
	{ocsctl.ErrVersion, ResultInvalidUsage},
	{transport.ErrDark, ResultSystemError},
	{rdma.ErrDevice, ResultSystemError},
	{ErrInternal, ResultInternalError},
	{ErrDevice, ResultUnhandledCudaError},
	{other.ErrLibrary, ResultSystemError},
}

// ResultOf returns the NCCL result of an error: [ResultSuccess] for nil, and
// [ResultInternalError] for an error that nobody classified.
func ResultOf(err error) Result {
	if err == nil {
		return ResultSuccess
	}
	for _, e := range resultTable {
		if errors.Is(err, e.is) {
			return e.to
		}
	}
	var errno syscall.Errno
	var path *os.PathError
	if errors.As(err, &errno) || errors.As(err, &path) {
		return ResultSystemError
	}
	return ResultInternalError
}
