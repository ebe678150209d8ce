// Package cudatest lets Go tests use a device as a program does: through the process's libcuda.so.1. This is the stub
// of cgo/cuda/stub or, with LP_CUDA_REAL=1, the machine's driver. It is not part of the library.
package cudatest

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra
// #include <stdlib.h>
// #include "program.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"lightpath/shim/device"
)

// Real reports whether tests run over a real driver, which makes no errors on demand.
func Real() bool { return os.Getenv("LP_CUDA_REAL") != "" }

// Open loads the driver into the process. It builds the stub of the source tree with the C compiler.
func Open() error {
	file := "libcuda.so.1"
	if !Real() {
		dir, err := os.MkdirTemp("", "stub-cuda")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if file, err = build(dir); err != nil {
			return err
		}
	}
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	if why := C.program_open(name); why != nil {
		return errors.New(C.GoString(why))
	}
	return nil
}

// build makes the stub.
func build(dir string) (string, error) {
	sources, err := stubSources()
	if err != nil {
		return "", err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	file := filepath.Join(dir, "libcuda.so.1")
	args := []string{"-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread",
		"-Wl,-soname,libcuda.so.1", "-o", file}
	if out, err := exec.Command(cc, append(args, sources...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", cc, err, out)
	}
	return file, nil
}

// stubSources returns the C files of the stub: in the repository that holds the working directory, as that of a test
// is. The paths that a build with -trimpath records do not lead there.
func stubSources() ([]string, error) {
	start, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if found, err := filepath.Glob(filepath.Join(dir, "cgo/cuda/stub/*.c")); err != nil || len(found) > 0 {
			return found, err
		}
		if dir == filepath.Dir(dir) {
			return nil, fmt.Errorf("no cgo/cuda/stub above %s", start)
		}
	}
}

// must panics if the driver refuses a call.
func must(function string, rc C.CUresult) {
	if rc != C.CUDA_SUCCESS {
		panic(fmt.Sprintf("%s: error %d", function, int(rc)))
	}
}

// Use makes a device's primary context current on the calling thread, and keeps the goroutine on it.
func Use(device int) {
	runtime.LockOSThread()
	must("use", C.program_use(C.int(device)))
}

// Alloc returns memory of the current device, which only [Write] and [Read] can touch.
func Alloc(size int) unsafe.Pointer {
	var at C.CUdeviceptr
	must("cuMemAlloc", C.program_alloc(&at, C.size_t(max(size, 1))))
	return *(*unsafe.Pointer)(unsafe.Pointer(&at))
}

// Free frees memory of [Alloc].
func Free(at unsafe.Pointer) { must("cuMemFree", C.program_free(C.CUdeviceptr(uintptr(at)))) }

// Write copies bytes into device memory, Read out of it. They do not wait for other work of the device.
func Write(to unsafe.Pointer, from []byte) {
	must("cuMemcpy", C.program_copy(C.CUdeviceptr(uintptr(to)), unsafe.Pointer(unsafe.SliceData(from)),
		C.size_t(len(from)), 1))
}

// Read is the inverse of [Write].
func Read(to []byte, from unsafe.Pointer) {
	must("cuMemcpy", C.program_copy(C.CUdeviceptr(uintptr(from)), unsafe.Pointer(unsafe.SliceData(to)),
		C.size_t(len(to)), 0))
}

// NewStream returns a non-blocking stream of the current context.
func NewStream() device.Stream {
	var s C.CUstream
	must("cuStreamCreate", C.program_stream(&s))
	return device.Stream(uintptr(unsafe.Pointer(s)))
}

// Sync waits for a stream's work and returns the driver's result, 0 for success.
func Sync(s device.Stream) int { return int(C.program_sync(C.uintptr_t(s))) }

// Timer measures the device's time for the work of a stream.
type Timer struct{ events [2]C.uintptr_t }

// NewTimer returns a timer of the current context.
func NewTimer() *Timer {
	t := &Timer{}
	must("cuEventCreate", C.program_timer(&t.events[0]))
	return t
}

// Time measures the work that enqueue enqueues, and waits for it.
func (t *Timer) Time(s device.Stream, enqueue func()) time.Duration {
	t.Around(s, enqueue)
	return t.Wait(s)
}

// Around makes the timer measure the work that enqueue puts on the stream.
func (t *Timer) Around(s device.Stream, enqueue func()) {
	must("cuEventRecord", C.program_start(&t.events[0], C.uintptr_t(s)))
	enqueue()
	must("cuEventRecord", C.program_stop(&t.events[0], C.uintptr_t(s)))
}

// Wait waits for all work of the stream, and returns the time of the work of Around.
func (t *Timer) Wait(s device.Stream) time.Duration {
	var ms C.float
	must("the timed work", C.program_span(&t.events[0], C.uintptr_t(s), &ms))
	return time.Duration(float64(ms) * float64(time.Millisecond))
}

// Advance enqueues a host function that adds 1 to a word: the smallest work of a program on a stream.
func Advance(s device.Stream, word *uint32) {
	must("cuLaunchHostFunc", C.program_advance(C.uintptr_t(s), unsafe.Pointer(word)))
}

// Capture captures the work that enqueue enqueues on a stream, and returns a function that replays it there.
func Capture(s device.Stream, enqueue func()) (replay func()) {
	must("cuStreamBeginCapture", C.program_begin(C.uintptr_t(s)))
	enqueue()
	var graph C.uintptr_t
	must("cuStreamEndCapture", C.program_end(C.uintptr_t(s), &graph))
	return func() { must("cuGraphLaunch", C.program_replay(graph, C.uintptr_t(s))) }
}

// Fail makes a function of the stub fail with an error, after so many successes. An empty name ends that.
func Fail(function string, rc, after int) {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	if function == "" {
		name = nil
	}
	C.program_fail(name, C.int(rc), C.int(after))
}

// Flushes returns how often the stub has flushed writes of other devices.
func Flushes() int { return int(C.program_flushes()) }
