package cuda

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra -Wno-unused-parameter
// #cgo noescape lpc_load
// #cgo nocallback lpc_load
// #cgo noescape lpc_current
// #cgo nocallback lpc_current
// #cgo noescape lpc_locate
// #cgo nocallback lpc_locate
// #cgo noescape lpc_enter
// #cgo nocallback lpc_enter
// #cgo noescape lpc_relax
// #cgo nocallback lpc_relax
// #cgo noescape lpc_stream_id
// #cgo nocallback lpc_stream_id
// #cgo noescape lpc_capturing
// #cgo nocallback lpc_capturing
// #include "calls.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"lightpath/shim/device"
)

// Library is the program's CUDA driver.
type Library struct{}

var _ device.Driver = Library{}

// handler is called when streams reach jobs.
var handler atomic.Pointer[device.Handler]

// Tell sets the handler. It must be called before any stream is used.
func Tell(h device.Handler) { handler.Store(&h) }

//export lpCudaReady
func lpCudaReady(job C.uintptr_t) { (*handler.Load()).Ready(uintptr(job)) }

// find reports whether the program has loaded a driver. The error says why the driver cannot be used.
func find() (bool, error) {
	var why *C.char
	found := bool(C.lpc_load(&why))
	if why != nil {
		return false, fmt.Errorf("%s: %w", C.GoString(why), device.ErrDriver)
	}
	return found, nil
}

// library returns an error that says why there is no driver to call.
func library() error {
	found, err := find()
	if !found && err == nil {
		err = fmt.Errorf("the program has not loaded libcuda.so.1: %w", device.ErrDriver)
	}
	return err
}

// failed returns the error of a result, nil for success. The error names the function.
func failed(function string, rc C.CUresult) error {
	if rc == C.CUDA_SUCCESS {
		return nil
	}
	var name, text *C.char
	if C.lpc_error(rc, &name, &text) != C.CUDA_SUCCESS {
		return fmt.Errorf("%s: error %d: %w", function, int(rc), device.ErrDriver)
	}
	return fmt.Errorf("%s: %s: %s: %w", function, C.GoString(name), C.GoString(text), device.ErrDriver)
}

// relax makes the driver accept calls that a capture of another thread forbids. It returns an error if there is no
// driver.
func relax() error {
	return ask("cuThreadExchangeStreamCaptureMode", func() C.CUresult { return C.lpc_relax() })
}

// do calls a function of the driver that a capture of another thread may forbid.
func do(function string, call func() C.CUresult) error {
	if err := relax(); err != nil {
		return err
	}
	return failed(function, call())
}

// ask calls a function of the driver that puts work on a stream, or only answers.
func ask(function string, call func() C.CUresult) error {
	if err := library(); err != nil {
		return err
	}
	return failed(function, call())
}

// Current implements [device.Driver].
func (Library) Current() (int, bool, error) {
	if found, err := find(); !found {
		return 0, false, err
	}
	var number, has C.int
	switch rc := C.lpc_current(&number, &has); {
	case rc == C.CUDA_ERROR_NOT_INITIALIZED:
		return 0, false, nil
	case rc != C.CUDA_SUCCESS:
		return 0, false, failed("cuCtxGetCurrent", rc)
	case has == 0:
		return -1, true, nil
	}
	return int(number), true, nil
}

// Locate implements [device.Driver].
func (Library) Locate(p unsafe.Pointer) (device.Place, error) {
	var kind, managed C.uint
	var number C.int
	var id, end C.uint64_t
	err := ask("cuPointerGetAttributes", func() C.CUresult {
		return C.lpc_locate(C.uintptr_t(uintptr(p)), &kind, &managed, &number, &id, &end)
	})
	if err != nil || kind == 0 {
		return device.Place{}, err
	}
	place := device.Place{Kind: device.Memory, Device: int(number), ID: uint64(id), End: uintptr(end)}
	switch {
	case managed != 0:
		place.Kind = device.Managed
	case kind == C.CU_MEMORYTYPE_HOST:
		place.Kind, place.Device = device.Pinned, 0
	}
	return place, nil
}

// Enter implements [device.Driver].
func (Library) Enter(s device.Stream) (int, error) {
	runtime.LockOSThread() // the current context belongs to the thread
	var number C.int
	var rc C.CUresult
	err := ask("cuStreamGetCtx", func() C.CUresult {
		rc = C.lpc_enter(C.uintptr_t(s), &number)
		return rc
	})
	if err != nil {
		runtime.UnlockOSThread()
	}
	return int(number), unknown(s, rc, err)
}

// unknown explains the error of a call that asks about a stream.
func unknown(s device.Stream, rc C.CUresult, err error) error {
	if rc == C.CUDA_ERROR_INVALID_HANDLE {
		return fmt.Errorf("the driver does not know stream %#x: has it been destroyed? %w", s, err)
	}
	return err
}

// Leave implements [device.Driver].
func (Library) Leave() {
	C.lpc_leave()
	runtime.UnlockOSThread()
}

// Alloc implements [device.Driver].
func (Library) Alloc(size int) (unsafe.Pointer, error) {
	var at unsafe.Pointer
	err := ask("cuMemHostAlloc", func() C.CUresult { return C.lpc_alloc(&at, C.size_t(size)) })
	return at, err
}

// Free implements [device.Driver].
func (Library) Free(p unsafe.Pointer) error {
	return ask("cuMemFreeHost", func() C.CUresult { return C.lpc_free(p) })
}

// AllocExchange implements [device.Driver].
func (Library) AllocExchange(size int) (unsafe.Pointer, error) {
	var at unsafe.Pointer
	err := do("cuMemAlloc", func() C.CUresult { return C.lpc_device_alloc(&at, C.size_t(size)) })
	return at, err
}

// FreeExchange implements [device.Driver].
func (Library) FreeExchange(at unsafe.Pointer) error {
	return do("cuMemFree", func() C.CUresult { return C.lpc_device_free(at) })
}

// NewStream implements [device.Driver].
func (Library) NewStream() (device.Stream, error) {
	var s C.uintptr_t
	err := do("cuStreamCreate", func() C.CUresult { return C.lpc_new_stream(&s) })
	return device.Stream(s), err
}

// FreeStream implements [device.Driver].
func (Library) FreeStream(s device.Stream) error {
	return do("cuStreamDestroy", func() C.CUresult { return C.lpc_free_stream(C.uintptr_t(s)) })
}

// NewEvent implements [device.Driver].
func (Library) NewEvent() (device.Event, error) {
	var e C.uintptr_t
	err := do("cuEventCreate", func() C.CUresult { return C.lpc_new_event(&e) })
	return device.Event(e), err
}

// FreeEvent implements [device.Driver].
func (Library) FreeEvent(e device.Event) error {
	C.lpc_free_event(C.uintptr_t(e))
	return nil
}

// Reached implements [device.Driver].
func (Library) Reached(e device.Event) (bool, error) {
	if err := library(); err != nil {
		return false, err
	}
	rc := C.lpc_reached(C.uintptr_t(e))
	if rc == C.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return rc == C.CUDA_SUCCESS, failed("cuEventQuery", rc)
}

// Capturing implements [device.Driver].
func (Library) Capturing(s device.Stream) (device.Capture, error) {
	var status C.int
	var id C.uint64_t
	var graph C.uintptr_t
	err := ask("cuStreamGetCaptureInfo", func() C.CUresult {
		return C.lpc_capturing(C.uintptr_t(s), &status, &id, &graph)
	})
	switch {
	case err != nil || status == C.CU_STREAM_CAPTURE_STATUS_NONE:
		return device.Capture{}, err
	case status != C.CU_STREAM_CAPTURE_STATUS_ACTIVE:
		return device.Capture{}, fmt.Errorf("the capture of the stream has become invalid before: %w", device.ErrDriver)
	}
	return device.Capture{ID: uint64(id), Graph: uintptr(graph)}, nil
}

// Retain implements [device.Driver].
func (Library) Retain(g device.Capture, job uintptr) error {
	return do("cuGraphRetainUserObject", func() C.CUresult {
		return C.lpc_retain(C.uintptr_t(g.Graph), C.uintptr_t(job))
	})
}

// CopyOut implements [device.Driver].
func (Library) CopyOut(to, from unsafe.Pointer, size int, s device.Stream) error {
	return ask("cuMemcpyDtoHAsync", func() C.CUresult {
		return C.lpc_copy_out(to, C.uintptr_t(uintptr(from)), C.size_t(size), C.uintptr_t(s))
	})
}

// CopyIn implements [device.Driver].
func (Library) CopyIn(to, from unsafe.Pointer, size int, s device.Stream) error {
	return ask("cuMemcpyHtoDAsync", func() C.CUresult {
		return C.lpc_copy_in(C.uintptr_t(uintptr(to)), from, C.size_t(size), C.uintptr_t(s))
	})
}

// Copy implements [device.Driver].
func (Library) Copy(dst, src unsafe.Pointer, size int, s device.Stream) error {
	return ask("cuMemcpyAsync", func() C.CUresult {
		return C.lpc_copy(C.uintptr_t(uintptr(dst)), C.uintptr_t(uintptr(src)), C.size_t(size), C.uintptr_t(s))
	})
}

// CopyRows implements [device.Driver].
func (Library) CopyRows(dst unsafe.Pointer, dstPitch int, src unsafe.Pointer, srcPitch, width, rows int,
	s device.Stream) error {
	return ask("cuMemcpy2DAsync", func() C.CUresult {
		return C.lpc_copy_rows(C.uintptr_t(uintptr(dst)), C.size_t(dstPitch), C.uintptr_t(uintptr(src)),
			C.size_t(srcPitch),
			C.size_t(width), C.size_t(rows), C.uintptr_t(s))
	})
}

// Signal implements [device.Driver].
func (Library) Signal(s device.Stream, job uintptr) error {
	return ask("cuLaunchHostFunc", func() C.CUresult { return C.lpc_signal(C.uintptr_t(s), C.uintptr_t(job)) })
}

// Await implements [device.Driver].
func (Library) Await(s device.Stream, word *uint32, value uint32, equal bool) error {
	return ask("cuStreamWaitValue32", func() C.CUresult {
		return C.lpc_await(C.uintptr_t(s), unsafe.Pointer(word), C.uint32_t(value), C._Bool(equal))
	})
}

// Store implements [device.Driver].
func (Library) Store(s device.Stream, word *uint32, value uint32) error {
	return ask("cuStreamWriteValue32", func() C.CUresult {
		return C.lpc_store(C.uintptr_t(s), unsafe.Pointer(word), C.uint32_t(value))
	})
}

// Record implements [device.Driver].
func (Library) Record(e device.Event, s device.Stream) error {
	return ask("cuEventRecord", func() C.CUresult { return C.lpc_record(C.uintptr_t(e), C.uintptr_t(s)) })
}

// Follow implements [device.Driver].
func (Library) Follow(s device.Stream, e device.Event) error {
	return ask("cuStreamWaitEvent", func() C.CUresult { return C.lpc_follow(C.uintptr_t(s), C.uintptr_t(e)) })
}
