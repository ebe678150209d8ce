package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"lightpath/internal/brief"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc/ocspb"
)

// Errors of this package's own.
var (
	// ErrProtocol: a message that this end does not accept.
	ErrProtocol = errors.New("malformed message")
	// ErrForbidden: the certificate does not allow the call.
	ErrForbidden = errors.New("not allowed")
	// ErrSlow: a reader that fell behind was cut off.
	ErrSlow = errors.New("reader is too slow")
)

// faults is how errors cross the wire: the one place that knows. An error that wraps several
// keeps them all; the status code is that of the first.
var faults = [...]struct {
	code   ocspb.FaultCode
	err    error
	status codes.Code
}{
	{ocspb.FaultCode_FAULT_CODE_NOT_LEADER, controller.ErrNotLeader, codes.Unavailable},
	{ocspb.FaultCode_FAULT_CODE_STOPPED, controller.ErrStopped, codes.Unavailable},
	{ocspb.FaultCode_FAULT_CODE_VERSION, ocsctl.ErrVersion, codes.FailedPrecondition},
	{ocspb.FaultCode_FAULT_CODE_PROTOCOL, ErrProtocol, codes.InvalidArgument},
	{ocspb.FaultCode_FAULT_CODE_FORBIDDEN, ErrForbidden, codes.PermissionDenied},
	{ocspb.FaultCode_FAULT_CODE_SLOW, ErrSlow, codes.ResourceExhausted},
	{ocspb.FaultCode_FAULT_CODE_PORT_BUSY, controller.ErrPortBusy, codes.AlreadyExists},
	{ocspb.FaultCode_FAULT_CODE_PLANE_HELD, controller.ErrHeld, codes.FailedPrecondition},
	{ocspb.FaultCode_FAULT_CODE_CONFLICT, ocsctl.ErrConflict, codes.Aborted},
	{ocspb.FaultCode_FAULT_CODE_RECONFIGURATION_FAILED, ocsctl.ErrReconfFailed, codes.Internal},
	{ocspb.FaultCode_FAULT_CODE_UNKNOWN_MAP, ocsctl.ErrUnknownMap, codes.DataLoss},
	{ocspb.FaultCode_FAULT_CODE_PORT_LOST, ocsctl.ErrPortLost, codes.Aborted},
	{ocspb.FaultCode_FAULT_CODE_PLANE_DOWN, ocsctl.ErrPlaneDown, codes.FailedPrecondition},
	{ocspb.FaultCode_FAULT_CODE_STALE_EPOCH, ocsctl.ErrStaleEpoch, codes.FailedPrecondition},
	{ocspb.FaultCode_FAULT_CODE_FRAMES_LOST, ocsctl.ErrFramesLost, codes.DataLoss},
	{ocspb.FaultCode_FAULT_CODE_NOT_HOLDER, ocsctl.ErrNotHolder, codes.FailedPrecondition},
	{ocspb.FaultCode_FAULT_CODE_PINNED, ocsctl.ErrPinned, codes.FailedPrecondition},
	{ocspb.FaultCode_FAULT_CODE_JOB, controller.ErrJob, codes.AlreadyExists},
	{ocspb.FaultCode_FAULT_CODE_JOURNAL, controller.ErrJournal, codes.Unavailable},
	{ocspb.FaultCode_FAULT_CODE_CONTROL_LOST, ocsctl.ErrControlLost, codes.Unavailable},
}

// toFault writes an error for the wire; nil for nil.
func toFault(err error) *ocspb.Fault {
	if err == nil {
		return nil
	}
	f := &ocspb.Fault{Text: clip(err.Error())}
	for i := range faults {
		if errors.Is(err, faults[i].err) {
			f.Codes = append(f.Codes, faults[i].code)
		}
	}
	return f
}

// remoteError is an error of the other end, or of several: a text, and the errors that it wraps.
type remoteError struct {
	text  string
	wraps []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.wraps }

// fromFault reads an error from the wire. Codes of newer peers are left out.
func fromFault(f *ocspb.Fault) *remoteError {
	e := &remoteError{text: oneLine(f.Text)}
	if e.text == "" {
		e.text = "the controller does not say why"
	}
	for _, code := range f.Codes[:min(len(f.Codes), len(faults))] {
		for i := range faults {
			if faults[i].code == code {
				e.wraps = append(e.wraps, faults[i].err)
			}
		}
	}
	return e
}

// standbyError is the answer of a controller that is not in charge.
type standbyError struct{ name, standby string }

func (e *standbyError) Error() string {
	return fmt.Sprintf("controller %s is %v: %s", e.name, controller.ErrNotLeader, e.standby)
}

func (*standbyError) Unwrap() error { return controller.ErrNotLeader }

// toStatus makes a gRPC status of an error, with its fault as a detail.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	f := toFault(err)
	for i := len(faults) - 1; i >= 0; i-- {
		if errors.Is(err, faults[i].err) {
			code = faults[i].status
		}
	}
	s, detailed := status.New(code, f.Text).WithDetails(f)
	if detailed != nil {
		return status.Error(code, f.Text)
	}
	return s.Err()
}

// fromStatus makes an error of what a call returned: the other end's, where it sent one.
func fromStatus(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	text := oneLine(s.Message())
	e := &remoteError{text: text}
	for _, d := range s.Details() {
		if f, ok := d.(*ocspb.Fault); ok {
			e = fromFault(f)
		}
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		e.wraps = append(e.wraps, context.DeadlineExceeded)
	case codes.Canceled:
		e.wraps = append(e.wraps, context.Canceled)
	case codes.Unavailable:
		if len(s.Details()) == 0 {
			e.wraps = append(e.wraps, ocsctl.ErrControlLost) // the connection has broken
		}
	case codes.Unimplemented:
		e.text, e.wraps = "the controller does not know this call: "+text, append(e.wraps, ocsctl.ErrVersion)
	}
	return e
}

func clip(text string) string { return brief.Text(strings.ToValidUTF8(text, "?"), maxText) }

// oneLine makes a text of a peer fit for an error or a log: short, and in one line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, clip(text))
}
