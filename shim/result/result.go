// Package result maps errors to the results of the NCCL ABI, and carries errors between ranks.
//
// Layer: a leaf of shim above errdefs and the layers below shim. It knows no communicator.
package result

import (
	"errors"
	"os"
	"syscall"

	"lightpath/collectives/exec"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/netplugin"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/shm"
	"lightpath/internal/brief"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/kernel"
	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/status"
)

// Result is the return value of a call in the NCCL ABI. Its values are those of ncclResult_t.
type Result int32

// The results.
const (
	Success Result = iota
	UnhandledCudaError
	SystemError
	InternalError
	InvalidArgument
	InvalidUsage
	RemoteError
	InProgress
	Timeout
)

// table maps errors to results. The first row that matches counts. Row numbers are part of the control protocol.
var table = []struct {
	is error
	to Result
}{
	{errdefs.ErrInvalidArgument, InvalidArgument},
	{errdefs.ErrDestroyed, InvalidArgument},
	{errdefs.ErrInvalidUsage, InvalidUsage},
	{errdefs.ErrMismatch, InvalidUsage},
	{errdefs.ErrRemote, RemoteError},
	{errdefs.ErrTimeout, Timeout},
	{errdefs.ErrAborted, RemoteError},
	{errdefs.ErrRevoked, InvalidUsage},
	{errdefs.ErrInProgress, InProgress},
	{exec.ErrSignature, InvalidUsage},
	{exec.ErrTimeout, Timeout},
	{exec.ErrDeadline, Timeout},
	{transport.ErrPeerLost, RemoteError},
	{transport.ErrClosed, RemoteError},
	{ocsctl.ErrControlLost, SystemError},
	{ocsctl.ErrReconfFailed, SystemError},
	{ocsctl.ErrConflict, SystemError},
	{ocsctl.ErrStaleEpoch, SystemError},
	{ocsctl.ErrUnknownMap, SystemError},
	{ocsctl.ErrFramesLost, SystemError},
	{ocsctl.ErrPortLost, RemoteError},
	{ocsctl.ErrPlaneDown, SystemError},
	{ocsctl.ErrNotHolder, SystemError},
	{ocsctl.ErrPinned, InvalidUsage},
	{ocsctl.ErrVersion, InvalidUsage},
	{transport.ErrDark, SystemError},
	{rdma.ErrDevice, SystemError},
	{errdefs.ErrInternal, InternalError},
	{device.ErrDriver, UnhandledCudaError},
	{errdefs.ErrLibrary, SystemError},
	{shm.ErrNoSpace, SystemError},
	{shm.ErrNotSegment, SystemError},
	{kernel.ErrNotUp, SystemError},
	{kernel.ErrBusy, InvalidUsage},
	{kernel.ErrChanged, InvalidUsage},
	{kernel.ErrVersion, InvalidUsage},
	{errdefs.ErrSystem, SystemError},
	{controller.ErrPortBusy, InvalidUsage},
	{netplugin.ErrPlugin, SystemError},
}

// Of returns the result of an error: [Success] for nil, [SystemError] for one of the operating system, and
// [InternalError] for an error without a row in the table.
func Of(err error) Result {
	if err == nil {
		return Success
	}
	for _, e := range table {
		if errors.Is(err, e.is) {
			return e.to
		}
	}
	if ofSystem(err) {
		return SystemError
	}
	return InternalError
}

// ofSystem reports whether an error is one of the operating system.
func ofSystem(err error) bool {
	var errno syscall.Errno
	var path *os.PathError
	return errors.As(err, &errno) || errors.As(err, &path)
}

// peerError is an error that happened on another rank.
type peerError struct {
	text string
	is   error
}

func (e *peerError) Error() string { return e.text }
func (e *peerError) Unwrap() error { return e.is }

// Encode returns the row of the table that an error matches, from 1, or 0 for none, and at most 4 KiB of its text. An
// error of the operating system without a row of its own matches that of [errdefs.ErrSystem].
func Encode(err error) (class uint64, text string) {
	for i, e := range table {
		if errors.Is(err, e.is) || errors.Is(e.is, errdefs.ErrSystem) && ofSystem(err) {
			return uint64(i) + 1, brief.Text(err.Error(), 4096)
		}
	}
	return 0, brief.Text(err.Error(), 4096)
}

// Decode returns the error that a message carries. It matches the same kinds as the error that Encode was given.
func Decode(m *control.Message) error {
	is := errdefs.ErrInternal
	if m.Arg >= 1 && m.Arg <= uint64(len(table)) {
		is = table[m.Arg-1].is
	}
	return &peerError{text: string(m.Body) + status.ReportedByPeer, is: is}
}
