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

// write writes an error's text and returns its result.
func (t text) write(err error) C.int {
	var buf []byte
	if t.at != nil {
		buf = unsafe.Slice((*byte)(unsafe.Pointer(t.at)), int(t.size))
	}
	return C.int(bridge.Text(err, buf))
}

// catch makes an export's call. It turns a panic into an error, writes the error's text and returns its result.
// Hot path: it allocates for errors only.
func (t text) catch(call func() error) (rc C.int) {
	defer func() {
		if p := recover(); p != nil {
			rc = t.write(bridge.Recovered(p, debug.Stack()))
		}
	}()
	return t.write(call())
}

//export lpGoUniqueID
func lpGoUniqueID(out *C.uchar, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		id, err := shim.NewUniqueID()
		if err == nil {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), len(id)), id[:])
		}
		return err
	})
}

//export lpGoInit
func lpGoInit(inits *C.struct_lp_init, count C.size_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		asked := unsafe.Slice(inits, int(count))
		args := make([]bridge.InitArgs, len(asked))
		for i := range asked {
			args[i] = initArgs(&asked[i])
		}
		handles, err := bridge.Init(args)
		for i := range handles {
			asked[i].comm = C.uint64_t(handles[i])
		}
		return err
	})
}

// initArgs copies the arguments out of C's memory.
func initArgs(in *C.struct_lp_init) bridge.InitArgs {
	a := bridge.InitArgs{
		How: membership.How(in.how), Parent: uint64(in.parent), Color: int(in.color), Key: int(in.key),
		Abort: bool(in.abort_parent), HasID: bool(in.has_id),
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
func lpGoCheck(call *C.struct_lp_call, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error { return bridge.Check((*bridge.Call)(unsafe.Pointer(call))) })
}

//export lpGoRun
func lpGoRun(calls *C.struct_lp_call, count C.size_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		return bridge.Run(unsafe.Slice((*bridge.Call)(unsafe.Pointer(calls)), int(count)))
	})
}

//export lpGoRunBegun
func lpGoRunBegun(call *C.struct_lp_call, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error { return bridge.RunBegun((*bridge.Call)(unsafe.Pointer(call))) })
}

//export lpGoUseGates
func lpGoUseGates(gates *C.struct_lp_gate) {
	bridge.UseGates(unsafe.Slice((*comm.Gate)(unsafe.Pointer(gates)), C.LP_GATES))
}

//export lpGoAct
func lpGoAct(comm C.uint64_t, act C.int32_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error { return bridge.Act(uint64(comm), bridge.Action(act)) })
}

//export lpGoGrowID
func lpGoGrowID(comm C.uint64_t, out *C.uchar, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		id, err := bridge.GrowID(uint64(comm))
		if err == nil {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(out)), len(id)), id[:])
		}
		return err
	})
}

//export lpGoAsk
func lpGoAsk(comm C.uint64_t, question C.int, out *C.int32_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		got, err := bridge.Ask(uint64(comm), bridge.Question(question))
		if err == nil {
			*out = C.int32_t(got)
		}
		return err
	})
}

//export lpGoAsyncError
func lpGoAsyncError(comm C.uint64_t, out *C.int32_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		state, err := bridge.AsyncError(uint64(comm))
		if err == nil {
			// The call succeeds: the state is its answer, and msg the text of the state.
			*out = text{msg, n}.write(state)
		}
		return err
	})
}

//export lpGoOpCreate
func lpGoOpCreate(comm C.uint64_t, typ C.int32_t, scalar unsafe.Pointer, later C._Bool, out *C.int32_t, msg *C.char,
	n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		got, err := bridge.CreateOp(uint64(comm), int32(typ), scalar, bool(later))
		if err == nil {
			*out = C.int32_t(got)
		}
		return err
	})
}

//export lpGoOpDestroy
func lpGoOpDestroy(comm C.uint64_t, op C.int32_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error { return bridge.DestroyOp(uint64(comm), int32(op)) })
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
func lpGoMemoryRemove(base unsafe.Pointer, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error { return memory.Remove(uintptr(base)) })
}

//export lpGoDeviceAlloc
func lpGoDeviceAlloc(size C.size_t, out *unsafe.Pointer, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() (err error) {
		*out, err = memory.AllocDevice(int(size))
		return err
	})
}

//export lpGoDeviceFree
func lpGoDeviceFree(at unsafe.Pointer, known *C._Bool, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		is, err := memory.FreeDevice(at)
		*known = C._Bool(is)
		return err
	})
}

//export lpGoRegister
func lpGoRegister(comm C.uint64_t, buff unsafe.Pointer, size C.size_t, window C._Bool, flags C.int, out *C.uint64_t,
	msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		got, err := bridge.Register(uint64(comm), buff, uintptr(size), bool(window), int32(flags))
		if err == nil {
			*out = C.uint64_t(got)
		}
		return err
	})
}

//export lpGoRegistered
func lpGoRegistered(comm, handle C.uint64_t, window, end C._Bool, out *unsafe.Pointer, msg *C.char,
	n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		got, err := bridge.Registered(uint64(comm), uint64(handle), bool(window), bool(end))
		if err == nil {
			*out = got
		}
		return err
	})
}

//export lpGoSimulate
func lpGoSimulate(calls *C.struct_lp_call, count C.size_t, out *C.double, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		got, err := bridge.Simulate(unsafe.Slice((*bridge.Call)(unsafe.Pointer(calls)), int(count)))
		if err == nil {
			*out = C.double(got)
		}
		return err
	})
}

//export lpGoMemStats
func lpGoMemStats(comm C.uint64_t, stat C.int32_t, out *C.uint64_t, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		got, err := bridge.MemStats(uint64(comm), int32(stat))
		if err == nil {
			*out = C.uint64_t(got)
		}
		return err
	})
}

//export lpGoInterpose
func lpGoInterpose(comms *C.uint64_t, count C.size_t, table *C.struct_lp_other, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		return bridge.Interpose(unsafe.Slice((*uint64)(unsafe.Pointer(comms)), int(count)), library{table})
	})
}

//export lpGoInterposes
func lpGoInterposes(call *C.struct_lp_call, out *C._Bool, msg *C.char, n C.size_t) C.int {
	return text{msg, n}.catch(func() error {
		yes, err := bridge.Interposes((*bridge.Call)(unsafe.Pointer(call)))
		*out = C._Bool(yes)
		return err
	})
}
