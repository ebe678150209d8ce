package cuda

// #include "calls.h"
import "C"

import (
	"os"
	"unsafe"

	"lightpath/shim/device"
)

var _ device.Remote = Library{}

// RemoteAccess implements [device.Remote].
func (Library) RemoteAccess() (device.RemoteAccess, error) {
	var exports, ordering, flushes C.int
	err := do("cuDeviceGetAttribute", func() C.CUresult { return C.lpc_remote(&exports, &ordering, &flushes) })
	ordered := ordering >= C.CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
	return device.RemoteAccess{DMABufs: exports != 0, Ordered: ordered, Flushes: flushes != 0}, err
}

// FlushRemote implements [device.Remote].
func (Library) FlushRemote() error {
	return do("cuFlushGPUDirectRDMAWrites", func() C.CUresult { return C.lpc_flush_remote() })
}

// ExportBuf implements [device.Remote]. The driver exports the whole pages that hold the memory.
func (Library) ExportBuf(at unsafe.Pointer, size int) (fd int, offset uint64, err error) {
	page := uintptr(os.Getpagesize())
	from := uintptr(at) &^ (page - 1)
	to := (uintptr(at) + uintptr(size) + page - 1) &^ (page - 1)
	got := C.int(-1)
	err = do("cuMemGetHandleForAddressRange", func() C.CUresult {
		return C.lpc_export_buf(C.uintptr_t(from), C.size_t(to-from), &got)
	})
	return int(got), uint64(uintptr(at) - from), err
}
