// Package verbs implements the verbs that collectives/transport/rdma defines over libibverbs,
// which is found at run time: a program that holds this package runs without it, and is told
// what is missing when it asks for a device.
//
// Layer: beside cgo/core, which hands it to shim. It makes no decisions: which device, port and
// address is used is its callers'.
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

// ErrLibrary is wrapped where libibverbs cannot be used.
var ErrLibrary = errors.New("verbs: no libibverbs")

// Library is [rdma.Verbs] over libibverbs. The zero value is ready to use; the library is loaded
// with the first call.
type Library struct{}

var _ rdma.Verbs = Library{}

func load() error {
	if why := C.lpv_load(); why != nil {
		return fmt.Errorf("%w: %s", ErrLibrary, C.GoString(why))
	}
	return nil
}

// wrap makes an error of what a function of the library returned.
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
