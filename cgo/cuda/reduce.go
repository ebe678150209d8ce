package cuda

// #cgo noescape lpc_reduce
// #cgo nocallback lpc_reduce
// #include "calls.h"
import "C"

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/device"
)

// packed is the archive that kernels/make.sh writes: a module of machine code for each of some architectures, and a
// module of PTX text for each element type, which the driver compiles for its device.
//
//go:embed kernels/kernels.zip
var packed []byte

// archive is the modules as files kernels.sm_NN.cubin, TYPE.ptx and TYPE.sm_NN.ptx.
type archive struct {
	*zip.Reader
	mu   sync.Mutex
	read map[string][]byte
}

// unpack returns the modules of the archive.
var unpack = sync.OnceValue(func() fs.FS {
	files, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		panic(err) // the archive is part of the program
	}
	return &archive{Reader: files, read: make(map[string][]byte)}
})

// ReadFile returns a file, which the caller must not change. It is decompressed once. The byte after its end is 0.
func (a *archive) ReadFile(name string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if image, found := a.read[name]; found {
		return image, nil
	}
	f, err := a.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	image := make([]byte, info.Size()+1)
	if _, err := io.ReadFull(f, image[:info.Size()]); err != nil {
		return nil, err
	}
	a.read[name] = image[:info.Size()]
	return a.read[name], nil
}

var kernels = unpack // tests replace it

// native lists the types that have a second module of text: for devices from this architecture on (90 is sm_90), which
// have instructions for the type. Both modules give the same results.
var native = [datatype.NumTypes]int{datatype.Bfloat16: 90, datatype.Float8E4M3: 89, datatype.Float8E5M2: 89}

// machineCode lists the architectures with a module of machine code. A device runs the code of an earlier minor version
// of its major version.
var machineCode = [...]int{80, 90, 100}

// types is a set of element types.
type types uint

const allTypes = types(1)<<datatype.NumTypes - 1

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
	if err := library(); err != nil || r.Empty() {
		return err
	}
	k := arguments(r)
	op := r.Op
	if op == datatype.Avg || r.N <= 1 {
		op = datatype.Sum
	}
	var step *C.char
	rc := C.lpc_reduce(C.int(r.Type), C.int(op), &k, C.uintptr_t(s), &step)
	if rc == C.LPC_NOT_LOADED {
		if err := load(1 << r.Type); err != nil {
			return err
		}
		rc = C.lpc_reduce(C.int(r.Type), C.int(op), &k, C.uintptr_t(s), &step)
	}
	return kernelError(step, rc)
}

// arguments returns the arguments of the kernel for r.
//
// Hot path: no allocation.
func arguments(r *device.Reduction) C.struct_lp_reduction {
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
	return k
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
	if err := load(allTypes); err != nil {
		return err
	}
	return firstUse(true)
}

// LoadCopies implements [device.Driver].
func (Library) LoadCopies() error { return firstUse(false) }

// firstUse uses each kind of copy in the current context, and each kernel if kernels is set.
func firstUse(kernels bool) error {
	if err := relax(); err != nil {
		return err
	}
	var step *C.char
	rc := C.lpc_first_use(C._Bool(kernels), &step)
	return kernelError(step, rc)
}

// loading is held while modules are loaded.
var loading sync.Mutex

// load loads the kernels of some types, or more, into the current context if it lacks them. The driver need not compile
// machine code, so this comes first.
func load(wanted types) error {
	loading.Lock()
	defer loading.Unlock()
	if err := relax(); err != nil {
		return err
	}
	var lacks C.uint
	var architecture C.int
	var step *C.char
	rc := C.lpc_missing_kernels(&lacks, &architecture, &step)
	if err := kernelError(step, rc); err != nil {
		return err
	}
	missing := types(lacks)
	if name, has := codeFor(int(architecture)); wanted&missing&has != 0 {
		switch old, err := loadFile(missing&has, name); {
		case err == nil:
			missing &^= has
		case !old:
			return err
		}
	}
	for t := range datatype.NumTypes {
		if wanted&missing>>t&1 != 0 {
			if err := loadText(t, int(architecture)); err != nil {
				return err
			}
		}
	}
	return nil
}

// codeFor returns the file with machine code for devices of an architecture, and the types for which it is the best:
// not those for which the devices have instructions that the code does not use.
func codeFor(architecture int) (name string, has types) {
	for _, a := range machineCode {
		if a/10 != architecture/10 || a > architecture {
			continue
		}
		name, has = fmt.Sprintf("kernels.sm_%d.cubin", a), allTypes
		for t, from := range native {
			if a < from && from <= architecture {
				has &^= 1 << t
			}
		}
	}
	return name, has
}

// loadText loads the newest module of a type that the device and the driver know.
func loadText(t datatype.Type, architecture int) error {
	if native[t] > 0 && architecture >= native[t] {
		if old, err := loadFile(1<<t, fmt.Sprintf("%v.sm_%d.ptx", t, native[t])); !old {
			return err
		}
	}
	_, err := loadFile(1<<t, t.String()+".ptx")
	return err
}

// loadFile loads a module with the kernels of some types. It reports whether the driver is too old for the module.
func loadFile(has types, name string) (old bool, err error) {
	image, err := fs.ReadFile(kernels(), name)
	if err != nil {
		return false, err
	}
	image = append(image, 0) // the end of text
	var step *C.char
	rc := C.lpc_load_kernels(C.uint(has), unsafe.Pointer(unsafe.SliceData(image)), &step)
	switch rc {
	case C.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, C.CUDA_ERROR_INVALID_IMAGE, C.CUDA_ERROR_NO_BINARY_FOR_GPU:
		old = true
	}
	return old, kernelError(step, rc)
}

// kernelError returns the error of the driver call named by step, with the log of the driver's compiler if there is
// one.
func kernelError(step *C.char, rc C.CUresult) error {
	if rc == C.CUDA_SUCCESS {
		return nil
	}
	err := failed(C.GoString(step), rc)
	var log [1024]C.char
	if C.lpc_take_log(&log[0], C.size_t(len(log))) != 0 {
		err = fmt.Errorf("%w: %s", err, C.GoString(&log[0]))
	}
	return err
}
