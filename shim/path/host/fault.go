package host

import (
	"runtime/debug"

	"lightpath/shim/calls"
	"lightpath/shim/session"
)

// guard ends the guarding of a group's buffers that debug.SetPanicOnFault began, and returned before. A fault in a
// buffer becomes an error that names it, and fails the communicator, since the call is half done. Other faults remain
// panics. guard must be deferred directly.
func guard(group []calls.Call, before bool, err *error) {
	debug.SetPanicOnFault(before)
	p := recover()
	if p == nil {
		return
	}
	if fault, ok := p.(interface{ Addr() uintptr }); ok {
		for i := range group {
			if bad := session.BadBuffer(&group[i], fault.Addr(), 1); bad != nil {
				*err = group[i].Comm.Fail(bad)
				return
			}
		}
	}
	panic(p)
}
