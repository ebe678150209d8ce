package cuda

// #cgo noescape lpc_reduce
// #cgo nocallback lpc_reduce
// #include <stdlib.h>
// #include "calls.h"
import "C"

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"sync"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/device"
)

// packed is the archive that kernels/make.sh writes: a module of PTX text for each element type, which the driver
// compiles for its device.
//
//go:embed kernels/kernels.zip
var packed []byte

// unpack returns the modules of the archive as files TYPE.ptx and TYPE.sm_NN.ptx. A file is decompressed when it is
// read.
var unpack = sync.OnceValue(func() fs.FS {
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		panic(err) // the archive is part of the program
	}
	return archive
})

var kernels = unpack // tests replace it

// native lists the types that have a second module: for devices from this architecture on (90 is sm_90), which have
// instructions for the type. Both modules give the same results.
var native = [datatype.NumTypes]C.int{datatype.Bfloat16: 90, datatype.Float8E4M3: 89, datatype.Float8E5M2: 89}

// Go and C agree on the bits of a word with an address, and on the limits of a kernel.
var (
	_ = [1]struct{}{}[C.LP_SAID_TAG^device.SaidBits]
	_ = [1]struct{}{}[C.LP_REDUCE_SOURCES^device.MaxSources|C.LP_REDUCE_COPIES^device.MaxCopies|
		C.LP_REDUCE_STORES^device.MaxStores]
)

// Reduce implements [device.Driver].
//
// Hot path: no allocation.
func (Library) Reduce(r *device.Reduction, s device.Stream) error {
	if err := r.Check(); err != nil {
		return err
	}
	c, err := library()
	if err != nil || r.Empty() {
		return err
	}
	k := C.struct_lp_reduction{
		factor:    C.ulonglong(*(*uint64)(unsafe.Pointer(&r.Scale.Factor))),
		factor_at: C.ulonglong(uintptr(r.Scale.At)),
		divisor:   C.uint(max(r.Divisor, 1)),
		n:         C.uint(r.N),
		targets:   C.uint(r.NumTargets),
		spare:     C.ulonglong(uintptr(r.Spare)),
		copies:    C.uint(len(r.Copies)),
		before:    C.uint(len(r.Before)),
		stores:    C.uint(len(r.Before) + len(r.After)),
		blocks:    C.ulonglong(r.Blocks),

		tag:           C.ulonglong(r.Tag),
		target_offset: C.ulonglong(r.TargetOffset),
	}
	k.job[0] = C.struct_lp_job{dst: C.ulonglong(uintptr(r.Dst)), count: C.ulonglong(r.Count)}
	for i, at := range r.Sources[:r.N] {
		k.sources[i] = source(at, r.Found[i], r.Offset)
	}
	for i, at := range r.Targets[:r.NumTargets] {
		k.target[i] = C.ulonglong(uintptr(at))
	}
	for i := range r.Copies {
		c := &r.Copies[i]
		k.sources[C.LP_REDUCE_SOURCES+i] = source(c.Src, c.Found, c.Offset)
		k.job[1+i] = C.struct_lp_job{dst: C.ulonglong(uintptr(c.Dst)), count: C.ulonglong(c.Count)}
		if c.Scaled && r.Scale.Set {
			k.scaled |= 2 << i
		}
	}
	if r.Scale.Set && k.scaled == 0 {
		k.scaled = 1
	}
	for i := range r.Before {
		k.store[i] = storeOf(&r.Before[i])
	}
	for i := range r.After {
		k.store[len(r.Before)+i] = storeOf(&r.After[i])
	}
	if k.divisor > 1 {
		k.reciprocal = ^C.ulonglong(0)/C.ulonglong(k.divisor) + 1
	}
	op := r.Op
	if op == datatype.Avg || r.N <= 1 {
		op = datatype.Sum
	}
	var step *C.char
	rc := C.lpc_reduce(c, C.int(r.Type), C.int(op), &k, C.uintptr_t(s), &step)
	if rc == C.LPC_NOT_LOADED {
		if err := load(c, r.Type); err != nil {
			return err
		}
		rc = C.lpc_reduce(c, C.int(r.Type), C.int(op), &k, C.uintptr_t(s), &step)
	}
	return kernelError(c, step, rc)
}

func source(at, found unsafe.Pointer, offset int64) C.struct_lp_source {
	return C.struct_lp_source{
		at: C.ulonglong(uintptr(at)), found: C.ulonglong(uintptr(found)), offset: C.ulonglong(offset),
	}
}

func storeOf(s *device.Store) C.struct_lp_store {
	c := C.struct_lp_store{at: C.ulonglong(s.At), value: C.ulonglong(s.Value), counter: C.ulonglong(s.Counter)}
	if s.Wide {
		c.at |= 1
	}
	if s.Counter != 0 {
		c.value |= C.ulonglong(s.Of) << 32
	}
	return c
}

// LoadKernels implements [device.Driver].
func (Library) LoadKernels() error {
	c, err := library()
	for t := datatype.Type(0); err == nil && t < datatype.NumTypes; t++ {
		err = load(c, t)
	}
	if err != nil {
		return err
	}
	var step *C.char
	rc := C.lpc_first_use(c, &step)
	return kernelError(c, step, rc)
}

// load loads the kernels of a type into the current context: the newest module that the device and the driver know.
func load(c *C.struct_lpc_library, t datatype.Type) error {
	if native[t] > 0 {
		var architecture C.int
		if err := failed(c, "cuDeviceGetAttribute", C.lpc_architecture(c, &architecture)); err != nil {
			return err
		}
		if architecture >= native[t] {
			if old, err := loadFile(c, t, fmt.Sprintf("%v.sm_%d.ptx", t, native[t])); !old {
				return err
			}
		}
	}
	_, err := loadFile(c, t, t.String()+".ptx")
	return err
}

// loadFile loads a module unless the context has its kernels. It reports whether the driver is too old for the
// module's PTX version.
func loadFile(c *C.struct_lpc_library, t datatype.Type, name string) (old bool, err error) {
	text, err := fs.ReadFile(kernels(), name)
	if err != nil {
		return false, err
	}
	image := C.CString(string(text))
	defer C.free(unsafe.Pointer(image))
	var step *C.char
	rc := C.lpc_load_kernels(c, C.int(t), image, &step)
	return rc == C.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, kernelError(c, step, rc)
}

// kernelError returns the error of the driver call named by step, with the log of the driver's compiler if there is
// one.
func kernelError(c *C.struct_lpc_library, step *C.char, rc C.CUresult) error {
	if rc == C.CUDA_SUCCESS {
		return nil
	}
	err := failed(c, C.GoString(step), rc)
	var log [1024]C.char
	if C.lpc_take_log(&log[0], C.size_t(len(log))) != 0 {
		err = fmt.Errorf("%w: %s", err, C.GoString(&log[0]))
	}
	return err
}
