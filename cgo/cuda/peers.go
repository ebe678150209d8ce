package cuda

// #include "calls.h"
// #cgo noescape lpc_words
// #cgo nocallback lpc_words
import "C"

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"unsafe"

	"lightpath/shim/device"
)

var _ device.Peers = Library{}

// Identity implements [device.Peers].
func (Library) Identity() (string, error) {
	c, err := library()
	if err != nil {
		return "", err
	}
	if err := complete(c); err != nil {
		return "", err
	}
	var uuid [16]byte
	if err := failed(c, "cuDeviceGetUuid", C.lpc_uuid(c, unsafe.Pointer(&uuid))); err != nil {
		return "", err
	}
	return hex.EncodeToString(uuid[:]), nil
}

// Context implements [device.Peers].
func (Library) Context() (device.Context, error) {
	var ctx C.uintptr_t
	err := ask("cuCtxGetCurrent", func(c *C.struct_lpc_library) C.CUresult { return C.lpc_context(c, &ctx) })
	return device.Context(ctx), err
}

// PrimaryContext implements [device.Peers].
func (Library) PrimaryContext(number int) (device.Context, error) {
	c, err := library()
	if err != nil {
		return 0, err
	}
	if err := complete(c); err != nil {
		return 0, err
	}
	var ctx C.uintptr_t
	err = failed(c, "cuDevicePrimaryCtxRetain", C.lpc_primary_context(c, C.int(number), &ctx))
	return device.Context(ctx), err
}

// ContextID implements [device.Peers].
func (Library) ContextID(ctx device.Context) (uint64, error) {
	var id C.uint64_t
	err := ask("cuCtxGetId", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_context_id(c, C.uintptr_t(ctx), &id)
	})
	return uint64(id), err
}

// complete returns an error if the driver lacks an entry point that peers need.
func complete(c *C.struct_lpc_library) error {
	if lacks := C.lpc_lacks(c); lacks != nil {
		return fmt.Errorf("the CUDA driver has no %s: %w", C.GoString(lacks), device.ErrDriver)
	}
	return nil
}

// EnterContext implements [device.Peers].
func (Library) EnterContext(ctx device.Context) error {
	runtime.LockOSThread() // the current context belongs to the thread
	err := ask("cuCtxPushCurrent", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_enter_context(c,
			C.uintptr_t(ctx))
	})
	if err != nil {
		runtime.UnlockOSThread()
	}
	return err
}

// TotalMemory implements [device.Peers].
func (Library) TotalMemory() (int64, error) {
	var bytes C.size_t
	err := do("cuDeviceTotalMem", func(c *C.struct_lpc_library) C.CUresult { return C.lpc_total_memory(c, &bytes) })
	return int64(bytes), err
}

// StreamID implements [device.Peers].
func (Library) StreamID(s device.Stream) (uint64, error) {
	var id C.uint64_t
	var rc C.CUresult
	err := ask("cuStreamGetId", func(c *C.struct_lpc_library) C.CUresult {
		rc = C.lpc_stream_id(c, C.uintptr_t(s), &id)
		return rc
	})
	return uint64(id), unknown(s, rc, err)
}

// Allocation implements [device.Peers].
func (Library) Allocation(at unsafe.Pointer) (unsafe.Pointer, int64, error) {
	var base C.uintptr_t
	var size C.size_t
	err := do("cuMemGetAddressRange", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_allocation(c, at, &base,
			&size)
	})
	if err != nil {
		return nil, 0, err
	}
	return unsafe.Add(at, -int(uintptr(at)-uintptr(base))), int64(size), nil
}

// Export implements [device.Peers].
func (Library) Export(at unsafe.Pointer) (h device.Handle, err error) {
	err = do("cuIpcGetMemHandle", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_export(c, at, unsafe.Pointer(&h))
	})
	return h, err
}

// Import implements [device.Peers].
func (Library) Import(h *device.Handle) (unsafe.Pointer, error) {
	var at unsafe.Pointer
	err := do("cuIpcOpenMemHandle", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_import(c, unsafe.Pointer(h), &at)
	})
	return at, err
}

// Close implements [device.Peers].
func (Library) Close(at unsafe.Pointer) error {
	return do("cuIpcCloseMemHandle", func(c *C.struct_lpc_library) C.CUresult { return C.lpc_unimport(c, at) })
}

// Reach implements [device.Peers].
func (Library) Reach(at unsafe.Pointer) error {
	return do("cuCtxEnablePeerAccess", func(c *C.struct_lpc_library) C.CUresult { return C.lpc_reach(c, at) })
}

// Register implements [device.Peers].
func (Library) Register(mem []byte) (device.Address, error) {
	var at C.uintptr_t
	err := do("cuMemHostRegister", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_register(c, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), &at)
	})
	return device.Address(at), err
}

// Unregister implements [device.Peers].
func (Library) Unregister(mem []byte) error {
	return do("cuMemHostUnregister", func(c *C.struct_lpc_library) C.CUresult {
		return C.lpc_unregister(c, unsafe.Pointer(&mem[0]))
	})
}

// Words implements [device.Peers].
func (Library) Words(s device.Stream, words []device.Word) error {
	c, err := library()
	if err != nil || len(words) == 0 {
		return err
	}
	at := (*C.struct_lpc_word)(unsafe.Pointer(unsafe.SliceData(words)))
	return failed(c, "cuStreamBatchMemOp", C.lpc_words(c, C.uintptr_t(s), at, C.uint(len(words))))
}

// device.Word and struct lpc_word have the same layout.
var (
	_ [unsafe.Sizeof(C.struct_lpc_word{})]byte = [unsafe.Sizeof(device.Word{})]byte{}
	_ [device.MaxWords]byte                    = [C.LPC_MAX_WORDS]byte{}
)
