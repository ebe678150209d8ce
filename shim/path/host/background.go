package host

import (
	"fmt"
	"runtime/debug"
	"slices"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/session"
)

// startInBackground starts a group of nonblocking communicators, and returns [errdefs.ErrInProgress]. It does nothing
// for a group of blocking communicators.
func startInBackground(s *session.Session) (background bool, err error) {
	background = s.Comms[0].NonBlocking
	for _, c := range s.Comms {
		if c.NonBlocking != background {
			return true, fmt.Errorf("shim: a group cannot hold blocking and nonblocking communicators: %w",
				errdefs.ErrInvalidArgument)
		}
	}
	if !background {
		return false, nil
	}
	for i, c := range s.Comms {
		if !c.TryOccupy() {
			for _, begun := range s.Comms[:i] {
				begun.Vacate()
			}
			return true, c.Busy()
		}
	}
	// After the return, the caller may reuse its array and scalars, but not its buffers.
	own := slices.Clone(s.Calls)
	for i := range own {
		copyScalar(&own[i])
	}
	go runInBackground(session.New(own, s.Comms...))
	return true, errdefs.ErrInProgress
}

// copyScalar copies the scalar of an operator, which may be valid only until the call returns.
func copyScalar(c *calls.Call) {
	if c.Scalar != nil {
		own := new([8]byte)
		copy(own[:], memory.Bytes(c.Scalar, int64(c.Type.Size())))
		c.Scalar = unsafe.Pointer(own)
	}
}

// runGuarded is run with [guard].
func runGuarded(s *session.Session) (err error) {
	defer guard(s.Calls, debug.SetPanicOnFault(true), &err)
	return run(s)
}

// runInBackground runs a session whose caller has returned. It reports an error by failing the communicators.
func runInBackground(s *session.Session) {
	err := runGuarded(s)
	for _, c := range s.Comms {
		if err != nil {
			c.Spread(err)
		}
		c.Vacate()
	}
	s.Close()
}
