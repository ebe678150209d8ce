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
	if err := complete(); err != nil {
		return "", err
	}
	var uuid [16]byte
	if err := failed("cuDeviceGetUuid", C.lpc_uuid(unsafe.Pointer(&uuid))); err != nil {
		return "", err
	}
	return hex.EncodeToString(uuid[:]), nil
}

// Context implements [device.Peers].
func (Library) Context() (device.Context, error) {
	var ctx C.uintptr_t
	err := ask("cuCtxGetCurrent", func() C.CUresult { return C.lpc_context(&ctx) })
	return device.Context(ctx), err
}

// PrimaryContext implements [device.Peers].
func (Library) PrimaryContext(number int) (device.Context, error) {
	if err := complete(); err != nil {
		return 0, err
	}
	var ctx C.uintptr_t
	err := failed("cuDevicePrimaryCtxRetain", C.lpc_primary_context(C.int(number), &ctx))
	return device.Context(ctx), err
}

// ContextID implements [device.Peers].
func (Library) ContextID(ctx device.Context) (uint64, error) {
	var id C.uint64_t
	err := ask("cuCtxGetId", func() C.CUresult { return C.lpc_context_id(C.uintptr_t(ctx), &id) })
	return uint64(id), err
}

// complete returns an error if there is no driver, or it lacks an entry point that peers need.
func complete() error {
	if err := library(); err != nil {
		return err
	}
	if lacks := C.lpc_lacks(); lacks != nil {
		return fmt.Errorf("the CUDA driver has no %s: %w", C.GoString(lacks), device.ErrDriver)
	}
	return nil
}

// EnterContext implements [device.Peers].
func (Library) EnterContext(ctx device.Context) error {
	runtime.LockOSThread() // the current context belongs to the thread
	err := ask("cuCtxPushCurrent", func() C.CUresult { return C.lpc_enter_context(C.uintptr_t(ctx)) })
	if err != nil {
		runtime.UnlockOSThread()
	}
	return err
}

// TotalMemory implements [device.Peers].
func (Library) TotalMemory() (int64, error) {
	var bytes C.size_t
	err := do("cuDeviceTotalMem", func() C.CUresult { return C.lpc_total_memory(&bytes) })
	return int64(bytes), err
}

// StreamID implements [device.Peers].
func (Library) StreamID(s device.Stream) (uint64, error) {
	var id C.uint64_t
	var rc C.CUresult
	err := ask("cuStreamGetId", func() C.CUresult {
		rc = C.lpc_stream_id(C.uintptr_t(s), &id)
		return rc
	})
	return uint64(id), unknown(s, rc, err)
}

// Allocation implements [device.Peers].
func (Library) Allocation(at unsafe.Pointer) (unsafe.Pointer, int64, error) {
	var base C.uintptr_t
	var size C.size_t
	err := do("cuMemGetAddressRange", func() C.CUresult { return C.lpc_allocation(at, &base, &size) })
	if err != nil {
		return nil, 0, err
	}
	return unsafe.Add(at, -int(uintptr(at)-uintptr(base))), int64(size), nil
}

// Export implements [device.Peers].
func (Library) Export(at unsafe.Pointer) (h device.Handle, err error) {
	err = do("cuIpcGetMemHandle", func() C.CUresult { return C.lpc_export(at, unsafe.Pointer(&h)) })
	return h, err
}

// Import implements [device.Peers].
func (Library) Import(h *device.Handle) (unsafe.Pointer, error) {
	var at unsafe.Pointer
	err := do("cuIpcOpenMemHandle", func() C.CUresult { return C.lpc_import(unsafe.Pointer(h), &at) })
	return at, err
}

// Close implements [device.Peers].
func (Library) Close(at unsafe.Pointer) error {
	return do("cuIpcCloseMemHandle", func() C.CUresult { return C.lpc_unimport(at) })
}

// Reach implements [device.Peers].
func (Library) Reach(at unsafe.Pointer) error {
	return do("cuCtxEnablePeerAccess", func() C.CUresult { return C.lpc_reach(at) })
}

// Register implements [device.Peers].
func (Library) Register(mem []byte) (device.Address, error) {
	var at C.uintptr_t
	err := do("cuMemHostRegister", func() C.CUresult {
		return C.lpc_register(unsafe.Pointer(&mem[0]), C.size_t(len(mem)), &at)
	})
	return device.Address(at), err
}

// Unregister implements [device.Peers].
func (Library) Unregister(mem []byte) error {
	return do("cuMemHostUnregister", func() C.CUresult { return C.lpc_unregister(unsafe.Pointer(&mem[0])) })
}

// Words implements [device.Peers].
func (Library) Words(s device.Stream, words []device.Word) error {
	if len(words) == 0 {
		return nil
	}
	at := (*C.struct_lpc_word)(unsafe.Pointer(unsafe.SliceData(words)))
	return ask("cuStreamBatchMemOp", func() C.CUresult { return C.lpc_words(C.uintptr_t(s), at, C.uint(len(words))) })
}

// device.Word and struct lpc_word have the same layout.
var (
	_ [unsafe.Sizeof(C.struct_lpc_word{})]byte = [unsafe.Sizeof(device.Word{})]byte{}
	_ [device.MaxWords]byte                    = [C.LPC_MAX_WORDS]byte{}
)
