package cuda

// #include "calls.h"
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"lightpath/shim/device"
)

var _ device.Remote = Library{}

// RemoteWrites implements [device.Remote]. A device whose streams see the writes of other devices in order needs no
// flush. For other devices, the driver must be able to flush from the host.
func (Library) RemoteWrites() (flush bool, err error) {
	var exports, ordering, flushes C.int
	err = do("cuDeviceGetAttribute", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_remote(c, &exports, &ordering, &flushes)
	})
	flush = ordering < C.CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
	switch {
	case err != nil:
		return false, err
	case exports == 0:
		return false, fmt.Errorf("the CUDA driver gives no dma-buf of this device's memory (the open kernel modules do): %w",
			device.ErrDriver)
	case flush && flushes == 0:
		return false, fmt.Errorf("this device does not order what others write to its memory, "+
			"and the CUDA driver cannot flush it: %w", device.ErrDriver)
	}
	return flush, nil
}

// FlushRemote implements [device.Remote].
func (Library) FlushRemote() error {
	return do("cuFlushGPUDirectRDMAWrites", func(c *C.struct_lpc_library) C.CUresult { return C.lpc_flush_remote(c) })
}

// ExportBuf implements [device.Remote]. The driver exports the whole pages that hold the memory.
func (Library) ExportBuf(at unsafe.Pointer, size int) (fd int, offset uint64, err error) {
	page := uintptr(os.Getpagesize())
	from := uintptr(at) &^ (page - 1)
	to := (uintptr(at) + uintptr(size) + page - 1) &^ (page - 1)
	got := C.int(-1)
	err = do("cuMemGetHandleForAddressRange", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_export_buf(c, C.uintptr_t(from), C.size_t(to-from), &got)
	})
	return int(got), uint64(uintptr(at) - from), err
}
