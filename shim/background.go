package shim

import (
	"fmt"
	"slices"
	"unsafe"

	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
)

// nonBlocking starts a group whose communicators do not block, and reports errdefs.ErrInProgress; a
// group whose communicators all block is none of its business.
func (s *session) nonBlocking() (background bool, err error) {
	background = s.comms[0].NonBlocking
	for _, c := range s.comms {
		if c.NonBlocking != background {
			return true, fmt.Errorf("shim: a group cannot hold blocking and nonblocking communicators: %w", errdefs.ErrInvalidArgument)
		}
	}
	if !background {
		return false, nil
	}
	for i, c := range s.comms {
		if !c.TryOccupy() {
			for _, begun := range s.comms[:i] {
				begun.Vacate()
			}
			return true, c.Busy()
		}
	}
	// The caller's array, and scalars in it, may be reused when this returns; the buffers are its
	// to keep.
	calls := slices.Clone(s.calls)
	for i := range calls {
		ownScalar(&calls[i])
	}
	go runInBackground(calls, slices.Clone(s.comms))
	return true, errdefs.ErrInProgress
}

// ownScalar copies the element of an operator, which may be the caller's only until it returns.
func ownScalar(c *calls.Call) {
	if c.Scalar != nil {
		own := new([8]byte)
		copy(own[:], memory.Bytes(c.Scalar, int64(c.Type.Size())))
		c.Scalar = unsafe.Pointer(own)
	}
}

func runInBackground(calls []calls.Call, comms []*comm.Core) {
	runUnwatched(calls, comms)
	for _, c := range comms {
		c.Vacate()
	}
}

// runUnwatched runs a group, which has been checked, whose caller has gone on: its communicators have no
// other way to tell of a failure than to fail.
func runUnwatched(calls []calls.Call, comms []*comm.Core) {
	s := sessions.Get().(*session)
	s.calls, s.comms = calls, append(s.comms, comms...)
	runSession(s)
}

// runSession runs a session whose caller has gone on, and gives it back.
func runSession(s *session) {
	if err := s.runAll(); err != nil {
		for _, c := range s.comms {
			c.Spread(err)
		}
	}
	s.reset()
	sessions.Put(s)
}
