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

// startInBackground starts a group whose communicators do not block, and returns [errdefs.ErrInProgress]. A group whose
// communicators all block is left alone.
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
	// The caller may reuse its array, and scalars in it, when this returns. It keeps the buffers.
	own := slices.Clone(s.Calls)
	for i := range own {
		copyScalar(&own[i])
	}
	go runInBackground(session.New(own, s.Comms...))
	return true, errdefs.ErrInProgress
}

// copyScalar copies the element of an operator, which may be the caller's only until the call returns.
func copyScalar(c *calls.Call) {
	if c.Scalar != nil {
		own := new([8]byte)
		copy(own[:], memory.Bytes(c.Scalar, int64(c.Type.Size())))
		c.Scalar = unsafe.Pointer(own)
	}
}

// runGuarded is run with guarded buffers.
func runGuarded(s *session.Session) (err error) {
	defer guard(s.Calls, debug.SetPanicOnFault(true), &err)
	return run(s)
}

// runInBackground runs a session whose caller has gone on: its communicators can report a failure only by failing.
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
