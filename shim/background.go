package shim

import (
	"fmt"
	"slices"
	"unsafe"

	"lightpath/shim/errdefs"
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
		calls[i].ownScalar()
	}
	go runInBackground(calls, slices.Clone(s.comms))
	return true, errdefs.ErrInProgress
}

// ownScalar copies the element of an operator, which may be the caller's only until it returns.
func (c *Call) ownScalar() {
	if c.Scalar != nil {
		own := new([8]byte)
		copy(own[:], bytesOf(c.Scalar, int64(c.Type.Size())))
		c.Scalar = unsafe.Pointer(own)
	}
}

func runInBackground(calls []Call, comms []*Comm) {
	runUnwatched(calls, comms)
	for _, c := range comms {
		c.Vacate()
	}
}

// runUnwatched runs a group, which has been checked, whose caller has gone on: its communicators have no
// other way to tell of a failure than to fail.
func runUnwatched(calls []Call, comms []*Comm) {
	s := sessions.Get().(*session)
	s.calls, s.comms = calls, append(s.comms, comms...)
	err := s.runAll()
	s.reset()
	sessions.Put(s)
	if err != nil {
		for _, c := range comms {
			c.Spread(err)
		}
	}
}
