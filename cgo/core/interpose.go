package main

// #cgo noescape other_exchange
// #include <stdlib.h>
// #include "lp_core.h"
//
// // The functions of the other library's table, because Go cannot call C function pointers.
//
// static int other_unique_id(const struct lp_other *o, unsigned char *id) { return o->unique_id(id); }
// static int other_make(const struct lp_other *o, struct lp_other_init *inits, size_t n) { return o->make(inits, n); }
// static int other_exchange(const struct lp_other *o, uint64_t comm, const struct lp_transfer *list, size_t n,
//                           uintptr_t stream) {
//   return o->exchange(comm, list, n, (void *)stream);
// }
// static int other_async_error(const struct lp_other *o, uint64_t comm) { return o->async_error(comm); }
// static int other_abort(const struct lp_other *o, uint64_t comm) { return o->abort(comm); }
// static int other_destroy(const struct lp_other *o, uint64_t comm) { return o->destroy(comm); }
// static void other_text(const struct lp_other *o, int result, char *err, size_t errlen) {
//   o->text(result, err, errlen);
// }
import "C"

import (
	"fmt"
	"unsafe"

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
