package session

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
)

// badBuffer returns the error of a call of the group whose buffer the kernel has refused (EFAULT), nil if there is
// none.
func (s *Session) badBuffer(err error) error {
	if !errors.Is(err, syscall.EFAULT) {
		return nil
	}
	for i := range s.Calls {
		call := &s.Calls[i]
		send, recv := call.Extents()
		if bad := BadBuffer(call, uintptr(call.Send), uintptr(send)); bad != nil {
			return bad
		}
		if bad := BadBuffer(call, uintptr(call.Recv), uintptr(recv)); bad != nil {
			return bad
		}
	}
	return nil
}

// BadBuffer returns the error of a call that cannot use some of the memory from an address on, nil if it can or if the
// memory is not in its buffers.
func BadBuffer(call *calls.Call, at, size uintptr) error {
	send, recv := call.Extents()
	var buffer, need string
	switch {
	case at-uintptr(call.Recv) < uintptr(recv):
		buffer, need = "receive", "rw"
	case at-uintptr(call.Send) < uintptr(send):
		buffer, need = "send", "r"
	default:
		return nil
	}
	bad, why := unusable(at, size, need)
	if why == "" {
		return nil
	}
	return fmt.Errorf("shim: rank %d: %v: the %s buffer is %s at %#x: %w",
		call.Comm.Rank, call, buffer, why, bad, errdefs.ErrInvalidArgument)
}

// unusable returns the first address of a range that this process may not access as needed, and why not, "" if there
// is none.
func unusable(at, size uintptr, need string) (bad uintptr, why string) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return at, ""
	}
	defer f.Close()
	end := at + size
	for lines := bufio.NewScanner(f); at < end && lines.Scan(); {
		var from, to uintptr
		var access string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &access); n != 3 || to <= at {
			continue
		}
		switch {
		case from > at:
			return at, "not mapped"
		case access[0] != 'r':
			return at, "not readable"
		case !strings.HasPrefix(access, need):
			return at, "read-only"
		}
		at = to
	}
	if at < end {
		return at, "not mapped"
	}
	return at, ""
}
