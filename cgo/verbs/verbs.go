package verbs

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra -Wno-unused-parameter
// #cgo LDFLAGS: -ldl
// #cgo noescape lpv_poll
// #cgo nocallback lpv_poll
// #cgo noescape lpv_post_send
// #cgo nocallback lpv_post_send
// #cgo nocallback lpv_post_recv
// #cgo noescape lpv_event
// #cgo nocallback lpv_event
// #include <stdlib.h>
// #include "verbs.h"
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"lightpath/collectives/transport/rdma"
)

// ErrLibrary is wrapped by errors if libibverbs cannot be used.
var ErrLibrary = errors.New("verbs: no libibverbs")

// Library is [rdma.Verbs] over libibverbs. The zero value is ready to use. The first call loads the library.
type Library struct{}

var _ rdma.Verbs = Library{}

func load() error {
	if why := C.lpv_load(); why != nil {
		return fmt.Errorf("%w: %s", ErrLibrary, C.GoString(why))
	}
	return nil
}

// wrap returns the error of a function's result, nil for 0.
func wrap(rc C.int, format string, args ...any) error {
	if rc == 0 {
		return nil
	}
	err := fmt.Errorf("verbs: %s: %w", fmt.Sprintf(format, args...), syscall.Errno(rc))
	if rc == C.int(syscall.ENOSYS) {
		return fmt.Errorf("%w (the kernel has no RDMA: is ib_uverbs loaded?)", err)
	}
	return err
}

// Names implements [rdma.Verbs].
func (Library) Names() ([]string, error) {
	if err := load(); err != nil {
		return nil, err
	}
	var names []string
	for {
		var b [64]C.char
		switch rc := C.lpv_name(C.int(len(names)), &b[0], C.size_t(len(b))); rc {
		case 0:
			names = append(names, C.GoString(&b[0]))
		case C.int(syscall.ENOENT):
			return names, nil
		default:
			return nil, wrap(rc, "list devices")
		}
	}
}

// Open implements [rdma.Verbs].
func (Library) Open(name string) (rdma.Device, error) {
	if err := load(); err != nil {
		return nil, err
	}
	at := C.CString(name)
	defer C.free(unsafe.Pointer(at))
	d := &device{name: name}
	if rc := C.lpv_open(at, &d.d); rc != 0 {
		return nil, wrap(rc, "open %s", name)
	}
	return d, nil
}
