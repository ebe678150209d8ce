package main

// #include <stdlib.h>
// #include "other.h"
// #cgo noescape other_exchange
import "C"

import (
	"fmt"
	"unsafe"

	"lightpath/cgo/core/internal/bridge"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/foreign"
	"lightpath/shim/stream"
)

// library calls the other libnccl through the front's table.
type library struct{ at *C.struct_lp_other }

var _ foreign.Library = library{}

// failed returns the error of a result, with the library's text.
func (l library) failed(what string, rc C.int) error {
	const inProgress = 7
	if rc == 0 || rc == inProgress {
		return nil
	}
	var text [512]C.char
	C.other_text(l.at, rc, &text[0], C.size_t(len(text)))
	return fmt.Errorf("%s: %s: %w", what, C.GoString(&text[0]), errdefs.ErrLibrary)
}

// NewID implements [foreign.Library].
func (l library) NewID() (id [foreign.IDBytes]byte, err error) {
	err = l.failed("ncclGetUniqueId", C.other_unique_id(l.at, (*C.uchar)(unsafe.Pointer(&id))))
	return id, err
}

// Make implements [foreign.Library].
func (l library) Make(inits []foreign.Init) ([]foreign.Comm, error) {
	size := C.size_t(len(inits)) * C.sizeof_struct_lp_other_init
	memory := C.calloc(1, size)
	defer C.free(memory)
	list := unsafe.Slice((*C.struct_lp_other_init)(memory), len(inits))
	for i := range inits {
		in, c := &inits[i], &list[i]
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.id)), foreign.IDBytes), in.ID[:])
		c.nranks, c.rank, c.device, c.name = C.int32_t(in.Ranks), C.int32_t(in.Rank), C.int32_t(in.Device), C.CString(in.Name)
		defer C.free(unsafe.Pointer(c.name))
		if in.Net != "" {
			c.net = C.CString(in.Net)
			defer C.free(unsafe.Pointer(c.net))
		}
	}
	if err := l.failed("ncclCommInitRank", C.other_make(l.at, &list[0], C.size_t(len(list)))); err != nil {
		return nil, err
	}
	made := make([]foreign.Comm, len(list))
	for i := range list {
		made[i] = foreign.Comm(list[i].comm)
	}
	return made, nil
}

// Exchange implements [foreign.Library].
func (l library) Exchange(c foreign.Comm, list []stream.Transfer, s device.Stream) error {
	at := (*C.struct_lp_transfer)(unsafe.Pointer(unsafe.SliceData(list)))
	return l.failed("ncclSend and ncclRecv", C.other_exchange(l.at, C.uint64_t(c), at, C.size_t(len(list)),
		C.uintptr_t(s)))
}

// AsyncError implements [foreign.Library].
func (l library) AsyncError(c foreign.Comm) error {
	return l.failed("ncclCommGetAsyncError", C.other_async_error(l.at, C.uint64_t(c)))
}

// Abort implements [foreign.Library].
func (l library) Abort(c foreign.Comm) error {
	return l.failed("ncclCommAbort", C.other_abort(l.at, C.uint64_t(c)))
}

// Destroy implements [foreign.Library].
func (l library) Destroy(c foreign.Comm) error {
	return l.failed("ncclCommDestroy", C.other_destroy(l.at, C.uint64_t(c)))
}

//export lpGoInterpose
func lpGoInterpose(comms *C.uint64_t, count C.size_t, table *C.struct_lp_other, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		return bridge.Interpose(unsafe.Slice((*uint64)(unsafe.Pointer(comms)), int(count)), library{table})
	})
}

//export lpGoInterposes
func lpGoInterposes(call *C.struct_lp_call, out *C.int32_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		yes, err := bridge.Interposes((*bridge.Call)(unsafe.Pointer(call)))
		*out = 0
		if yes {
			*out = 1
		}
		return err
	})
}
