// Command core is liblightpath.so, built with -buildmode=c-shared: the functions of lp_core.h, which libnccl.so.2
// (cgo/front) loads.
//
// Layer: the top, beside cmd. Each export converts its arguments, calls package bridge and writes the error's text.
// It must not print or end the process.
package main

//go:generate go run ./internal/ctypes

// #cgo CFLAGS: -std=gnu11 -Wall -Wextra
// #include <stdlib.h>
// #include "lp_core.h"
// char** lp_core_environ(void);
import "C"

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"runtime/debug"
	"unsafe"

	"lightpath/cgo/core/internal/bridge"
	"lightpath/cgo/cuda"
	"lightpath/cgo/plugins"
	"lightpath/cgo/verbs"
	"lightpath/shim"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/membership"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/stream"
)

func main() {} // required by c-shared, never called

// gcPercent lets the heap grow fivefold between garbage collections, unless GOGC is set. The heap is a few megabytes
// and calls allocate nothing, but a collection takes time from the program's threads.
const gcPercent = 400

// headers are the interface between libnccl.so.2 and this library.
//
//go:embed lp_core.h lp_types.h
var headers embed.FS

// build returns Lightpath's version and a digest of the interface. Two builds of one version may differ in the
// interface. build.mk makes the same string for libnccl.so.2.
func build() string {
	h := sha256.New()
	for _, name := range []string{"lp_core.h", "lp_types.h"} {
		text, _ := headers.ReadFile(name) // embedded: cannot fail
		h.Write(text)
	}
	return fmt.Sprintf("%s+%.6x", shim.Version, h.Sum(nil))
}

// lpGoStart prepares the Go runtime, once, and returns [build]. The string is never freed.
//
//export lpGoStart
func lpGoStart() *C.char {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	endpoints.UseVerbs(verbs.Library{})
	endpoints.UseNetPlugins(plugins.Net{})
	recorder.UseProfilers(plugins.Profilers{})
	dispatch.UseTuners(plugins.Tuners{})
	cuda.Tell(stream.Places())
	device.Use(cuda.Library{})
	return C.CString(build())
}

// text is a caller's error buffer.
type text struct {
	at   *C.char
	size C.size_t
}

// report ends an export: it turns a panic into an error, writes the error's text and sets the result. It must be
// deferred directly, because it calls recover.
func (t text) report(rc *C.int, err *error) {
	if p := recover(); p != nil {
		*err = bridge.Recovered(p, debug.Stack())
	}
	var buf []byte
	if t.at != nil {
		buf = unsafe.Slice((*byte)(unsafe.Pointer(t.at)), int(t.size))
	}
	*rc = C.int(bridge.Text(*err, buf))
}

//export lpGoUniqueID
func lpGoUniqueID(out *C.uchar, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var id shim.UniqueID
	if id, err = shim.NewUniqueID(); err == nil {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), len(id)), id[:])
	}
	return
}

//export lpGoInit
func lpGoInit(inits *C.struct_lp_init, count C.size_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	asked := unsafe.Slice(inits, int(count))
	args := make([]bridge.InitArgs, len(asked))
	for i := range asked {
		args[i] = initArgs(&asked[i])
	}
	var handles []uint64
	handles, err = bridge.Init(args)
	for i := range handles {
		asked[i].comm = C.uint64_t(handles[i])
	}
	return
}

// initArgs copies the arguments out of C's memory.
func initArgs(in *C.struct_lp_init) bridge.InitArgs {
	a := bridge.InitArgs{
		How: membership.How(in.how), Parent: uint64(in.parent), Color: int(in.color), Key: int(in.key),
		Abort: in.abort_parent != 0, HasID: in.has_id != 0,
		InitArgs: shim.InitArgs{
			Ranks: int(in.nranks), Rank: int(in.rank), Device: int(in.device), NonBlocking: in.blocking == 0,
		},
	}
	copy(a.ID[:], unsafe.Slice((*byte)(unsafe.Pointer(&in.id[0])), len(a.ID)))
	for i := range int(in.more_ids) {
		from := unsafe.Add(unsafe.Pointer(in.more), i*shim.UniqueIDSize)
		a.More = append(a.More, *(*shim.UniqueID)(from))
	}
	for _, r := range unsafe.Slice(in.exclude, int(in.excluded)) {
		a.Exclude = append(a.Exclude, int(r))
	}
	if in.name != nil {
		a.Name = C.GoString(in.name)
	}
	return a
}

//export lpGoCheck
func lpGoCheck(call *C.struct_lp_call, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Check((*bridge.Call)(unsafe.Pointer(call)))
	return
}

//export lpGoRun
func lpGoRun(calls *C.struct_lp_call, count C.size_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Run(unsafe.Slice((*bridge.Call)(unsafe.Pointer(calls)), int(count)))
	return
}

//export lpGoRunBegun
func lpGoRunBegun(call *C.struct_lp_call, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.RunBegun((*bridge.Call)(unsafe.Pointer(call)))
	return
}

//export lpGoUseGates
func lpGoUseGates(gates *C.struct_lp_gate) {
	bridge.UseGates(unsafe.Slice((*comm.Gate)(unsafe.Pointer(gates)), C.LP_GATES))
}

//export lpGoFinalize
func lpGoFinalize(comm C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Finalize(uint64(comm))
	return
}

//export lpGoDestroy
func lpGoDestroy(comm C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Destroy(uint64(comm))
	return
}

//export lpGoAbort
func lpGoAbort(comm C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Abort(uint64(comm))
	return
}

//export lpGoRevoke
func lpGoRevoke(comm C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Revoke(uint64(comm))
	return
}

//export lpGoSuspend
func lpGoSuspend(comm C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Suspend(uint64(comm))
	return
}

//export lpGoResume
func lpGoResume(comm C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.Resume(uint64(comm))
	return
}

//export lpGoGrowID
func lpGoGrowID(comm C.uint64_t, out *C.uchar, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var id shim.UniqueID
	if id, err = bridge.GrowID(uint64(comm)); err == nil {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), len(id)), id[:])
	}
	return
}

//export lpGoAsk
func lpGoAsk(comm C.uint64_t, question C.int, out *C.int32_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var answer int32
	if answer, err = bridge.Ask(uint64(comm), bridge.Question(question)); err == nil {
		*out = C.int32_t(answer)
	}
	return
}

//export lpGoAsyncError
func lpGoAsyncError(comm C.uint64_t, out *C.int32_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var poison error
	if poison, err = bridge.AsyncError(uint64(comm)); err == nil {
		// The call succeeds: the state is its answer, and msg the text of the state.
		text{msg, n}.report(out, &poison)
	}
	return
}

//export lpGoOpCreate
func lpGoOpCreate(comm C.uint64_t, typ C.int32_t, scalar unsafe.Pointer, later C.int32_t, out *C.int32_t, msg *C.char,
	n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var op int32
	if op, err = bridge.CreateOp(uint64(comm), int32(typ), scalar, later != 0); err == nil {
		*out = C.int32_t(op)
	}
	return
}

//export lpGoOpDestroy
func lpGoOpDestroy(comm C.uint64_t, op C.int32_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = bridge.DestroyOp(uint64(comm), int32(op))
	return
}

//export lpGoUseEnviron
func lpGoUseEnviron() { settings.UseEnvironment(environ) }

// environ returns the variables as the front sees them now.
func environ() (all []string) {
	list := C.lp_core_environ()
	if list == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(list))
	for p := list; *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		all = append(all, C.GoString(*p))
	}
	return all
}

//export lpGoMemoryAdd
func lpGoMemoryAdd(base unsafe.Pointer, size C.size_t, fd C.int) {
	memory.Add(memory.Region{Base: uintptr(base), Size: uintptr(size), FD: int(fd)})
}

//export lpGoMemoryRemove
func lpGoMemoryRemove(base unsafe.Pointer, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	err = memory.Remove(uintptr(base))
	return
}

//export lpGoDeviceAlloc
func lpGoDeviceAlloc(size C.size_t, out *unsafe.Pointer, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	*out, err = memory.AllocDevice(int(size))
	return
}

//export lpGoDeviceFree
func lpGoDeviceFree(at unsafe.Pointer, known *C.int32_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var is bool
	if is, err = memory.FreeDevice(at); is {
		*known = 1
	}
	return
}

//export lpGoRegister
func lpGoRegister(comm C.uint64_t, buff unsafe.Pointer, size C.size_t, window, flags C.int, out *C.uint64_t,
	msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var h uint64
	if h, err = bridge.Register(uint64(comm), buff, uintptr(size), window != 0, int32(flags)); err == nil {
		*out = C.uint64_t(h)
	}
	return
}

//export lpGoRegistered
func lpGoRegistered(comm, handle C.uint64_t, window, end C.int, out *unsafe.Pointer, msg *C.char,
	n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var buff unsafe.Pointer
	if buff, err = bridge.Registered(uint64(comm), uint64(handle), window != 0, end != 0); err == nil {
		*out = buff
	}
	return
}

//export lpGoSimulate
func lpGoSimulate(calls *C.struct_lp_call, count C.size_t, out *C.double, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var us float64
	if us, err = bridge.Simulate(unsafe.Slice((*bridge.Call)(unsafe.Pointer(calls)), int(count))); err == nil {
		*out = C.double(us)
	}
	return
}

//export lpGoMemStats
func lpGoMemStats(comm C.uint64_t, stat C.int32_t, out *C.uint64_t, msg *C.char, n C.size_t) (rc C.int) {
	var err error
	defer text{msg, n}.report(&rc, &err)
	var value uint64
	if value, err = bridge.MemStats(uint64(comm), int32(stat)); err == nil {
		*out = C.uint64_t(value)
	}
	return
}
