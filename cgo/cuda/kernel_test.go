package cuda_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"lightpath/cgo/cuda"
	"lightpath/cgo/cuda/cudatest"
	"lightpath/collectives/datatype"
	"lightpath/shim/device"
	"lightpath/shim/shimtest"
)

// pair returns a reduction of the second and third room of a bench into the first.
func (b *bench) pair(t datatype.Type, op datatype.Op, room, count int) *device.Reduction {
	r := &device.Reduction{Dst: b.at, N: 2, Count: int64(count), Type: t, Op: op}
	r.Sources[0], r.Sources[1] = unsafe.Add(b.at, room), unsafe.Add(b.at, 2*room)
	return r
}

// TestReduceAllocatesNothing makes the calls that a collective makes between Enter and Leave.
func TestReduceAllocatesNothing(t *testing.T) {
	if shimtest.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	b := newBench(t, 3*64)
	r := b.pair(datatype.Float32, datatype.Sum, 64, 4)
	r.Scale, _ = device.Average(r.Type, 3)
	b.enqueue(r)
	if _, err := driver.Enter(b.stream); err != nil {
		t.Fatal(err)
	}
	defer driver.Leave()
	failed := false
	allocations := testing.AllocsPerRun(100, func() {
		failed = driver.Reduce(r, b.stream) != nil || driver.Copy(r.Dst, r.Sources[0], 16, b.stream) != nil || failed
	})
	if allocations != 0 || failed {
		t.Fatalf("%v allocations, failed: %v", allocations, failed)
	}
}

// TestReduceInGraph records a reduction, and the loading of its kernels, and runs it twice on other data.
func TestReduceInGraph(t *testing.T) {
	const room, count = 1 << 10, 200
	b := newBenchOn(t, other(1), 3*room)
	r := b.pair(datatype.Int32, datatype.Sum, room, count)
	replay := cudatest.Capture(b.stream, func() { b.enqueue(r) })
	r.Dst = nil // the graph has a copy
	for turn := range byte(2) {
		for i := range b.host {
			b.host[i] = turn + byte(i)
		}
		cudatest.Write(b.at, b.host)
		replay()
		if rc := cudatest.Sync(b.stream); rc != 0 {
			t.Fatalf("the stream ends with error %d", rc)
		}
		got := make([]byte, 4*count)
		cudatest.Read(got, b.at)
		want := bytes.Clone(b.host[room : room+4*count])
		datatype.Reduce(datatype.Sum, datatype.Int32)(want, b.host[2*room:])
		if !bytes.Equal(got, want) {
			t.Fatalf("replay %d is wrong", turn)
		}
	}
}

// TestReduceFromThreads uses kernels that are not loaded from several threads at once.
func TestReduceFromThreads(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			cudatest.Use(other(1))
			b := &bench{t: t, at: cudatest.Alloc(3 * 64), host: make([]byte, 3*64), stream: cudatest.NewStream()}
			if err := b.try(b.pair(datatype.Uint64, datatype.Sum, 64, i)); err != nil {
				t.Error(err)
			}
			if rc := cudatest.Sync(b.stream); rc != 0 {
				t.Errorf("the stream ends with error %d", rc)
			}
			cudatest.Free(b.at)
		})
	}
	all.Wait()
}

// TestLoadKernels loads all kernels into a context that has some of them.
func TestLoadKernels(t *testing.T) {
	b := newBenchOn(t, other(1), 3*64)
	for range 2 {
		if _, err := driver.Enter(b.stream); err != nil {
			t.Fatal(err)
		}
		if err := driver.LoadKernels(); err != nil {
			t.Fatal(err)
		}
		driver.Leave()
	}
	for typ := range datatype.NumTypes {
		b.run(b.pair(typ, datatype.Sum, 64, 3))
	}
}

// other returns a device with a fresh context, if there are several devices.
func other(number int) int {
	if cudatest.Real() {
		return 0
	}
	return number
}

// What only the stub of a driver has.
const (
	errorsOnDemand = "the stub makes errors on demand, and survives those of kernels"
	dmaBuf         = "the stub's dma-bufs can be mapped, as RDMA ports in memory need"
)

// onlyStub skips a test on a driver that is not the stub.
func onlyStub(t *testing.T, because string) {
	t.Helper()
	if cudatest.Real() {
		t.Skip("only ", because)
	}
}

// TestRefusals makes the driver refuse each call of a reduction once. The next reduction works.
func TestRefusals(t *testing.T) {
	onlyStub(t, errorsOnDemand)
	const outOfMemory, outOfResources, notFound, invalidHandle = 2, 701, 500, 400
	b := newBenchOn(t, 2, 3*64)
	b.run(b.pair(datatype.Int8, datatype.Sum, 64, 4)) // the context has other kernels
	for _, c := range []struct {
		function string
		rc       int
		name     string
	}{
		{"cuCtxGetId", invalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
		{"cuModuleLoadDataEx", outOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
		{"cuModuleGetFunction", notFound, "CUDA_ERROR_NOT_FOUND"},
		{"cuLaunchKernel", outOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
	} {
		t.Run(c.function, func(t *testing.T) {
			cudatest.Fail(c.function, c.rc, 0)
			defer cudatest.Fail("", 0, 0)
			err := b.try(b.pair(datatype.Float32, datatype.Sum, 64, 4))
			if !errors.Is(err, device.ErrDriver) || !strings.Contains(err.Error(), c.function+": "+c.name) {
				t.Fatalf("error %v", err)
			}
		})
	}
	b.run(b.pair(datatype.Float32, datatype.Sum, 64, 4))
}

// edited is a file system whose files a test changes.
type edited struct {
	fs.FS
	change func(text string) string
}

func (f edited) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(f.FS, name)
	return []byte(f.change(string(text))), err
}

// TestRefusedText makes the driver's compiler refuse kernels. The error contains its log.
func TestRefusedText(t *testing.T) {
	onlyStub(t, errorsOnDemand)
	b := newBenchOn(t, 3, 3*64)
	for change, words := range map[[2]string]string{
		{"add.rn.f32", "fma.rn.f32"}:          "the stub does not know the instruction fma.rn.f32",
		{".target sm_70", ".target host"}:     "line 2: 'host' is no target",
		{"%p10 bra", "%p999 bra"}:             "there is no register %p999",
		{"bra.uni \t", "bra.uni \tNOWHERE"}:   "there is no label NOWHERE",
		{"ret;\n}", "}"}:                      "does not end with ret",
		{"float_sum", "float_summe"}:          "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND",
		{".visible .entry", ".visible .func"}: "'.entry' is missing",
	} {
		undo := cuda.ReplaceKernels(edited{cuda.Kernels(), func(text string) string {
			return strings.ReplaceAll(text,
				change[0], change[1])
		}})
		err := b.try(b.pair(datatype.Float32, datatype.Sum, 64, 4))
		undo()
		if !errors.Is(err, device.ErrDriver) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: error %v, want %q", change[1], err, words)
		}
	}
	b.run(b.pair(datatype.Float32, datatype.Sum, 64, 4))
}

// TestIllegalAddress makes kernels use invalid addresses. The context fails, and so do all later calls.
func TestIllegalAddress(t *testing.T) {
	onlyStub(t, errorsOnDemand)
	const illegalAddress, room = 700, 1 << 10
	freed := func(b *bench) unsafe.Pointer {
		at := cudatest.Alloc(room)
		cudatest.Free(at)
		return at
	}
	host := make([]byte, room)
	cases := map[string]func(b *bench, r *device.Reduction){
		"freed memory":      func(b *bench, r *device.Reduction) { r.Sources[1] = freed(b) },
		"host memory":       func(_ *bench, r *device.Reduction) { r.Sources[0] = unsafe.Pointer(&host[0]) },
		"result ends early": func(b *bench, r *device.Reduction) { r.Dst = unsafe.Add(b.at, 3*room-16) },
		"factor":            func(b *bench, r *device.Reduction) { r.Scale = device.Scale{Set: true, At: freed(b)} },
	}
	number := 4
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			cudatest.Use(number)
			b := &bench{t: t, at: cudatest.Alloc(3 * room), stream: cudatest.NewStream()}
			number++
			r := b.pair(datatype.Bfloat16, datatype.Sum, room, 100)
			spoil(b, r)
			b.enqueue(r)
			if rc := cudatest.Sync(b.stream); rc != illegalAddress {
				t.Fatalf("the stream ends with %d", rc)
			}
			if err := b.try(r); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
				t.Fatalf("the next call: %v", err)
			}
		})
	}
}

// recorded is a file system that records which files are read.
type recorded struct {
	fs.FS
	names []string
}

func (l *recorded) ReadFile(name string) ([]byte, error) {
	l.names = append(l.names, name)
	return fs.ReadFile(l.FS, name)
}

// TestKernelArchive reads all modules that the package can ask for.
func TestKernelArchive(t *testing.T) {
	want := map[string]bool{"bfloat16.sm_90.ptx": true, "f8e4m3.sm_89.ptx": true, "f8e5m2.sm_89.ptx": true,
		"kernels.sm_80.cubin": true, "kernels.sm_90.cubin": true, "kernels.sm_100.cubin": true, "made.txt": true}
	for typ := range datatype.NumTypes {
		want[typ.String()+".ptx"] = true
	}
	entries, err := fs.ReadDir(cuda.Kernels(), ".")
	if err != nil || len(entries) != len(want) {
		t.Fatalf("%d modules, want %d: %v", len(entries), len(want), err)
	}
	begins := map[string]string{".ptx": ".version ", ".cubin": "\x7fELF", ".txt": "sm_80 "}
	for name := range want {
		image, err := fs.ReadFile(cuda.Kernels(), name)
		if err != nil || !strings.HasPrefix(string(image), begins[path.Ext(name)]) {
			t.Errorf("%s: %.20q, %v", name, image, err)
		}
		again, _ := fs.ReadFile(cuda.Kernels(), name)
		if &image[0] != &again[0] || append(image, 0)[len(image)] != 0 || &append(image, 0)[0] != &image[0] {
			t.Errorf("%s is copied", name)
		}
	}
}

// TestNativeKernels loads kernels on devices that have instructions for a type: they get the module that uses these,
// unless the driver is too old for its PTX. The stub refuses machine code here.
func TestNativeKernels(t *testing.T) {
	onlyStub(t, errorsOnDemand)
	for _, c := range []struct { // devices that no other test uses
		device  int
		version string // of the driver
		typ     datatype.Type
		want    string // names of files, without suffix
	}{
		{8, "12040", datatype.Float8E4M3, "kernels.sm_90.cubin f8e4m3.sm_89"},
		{8, "12000", datatype.Float8E5M2, "kernels.sm_90.cubin f8e5m2.sm_89 f8e5m2"},
		{8, "12000", datatype.Bfloat16, "kernels.sm_90.cubin bfloat16.sm_90"},
		{8, "12000", datatype.Float32, "kernels.sm_90.cubin float"},
		{9, "12040", datatype.Float8E4M3, "f8e4m3"},
		{9, "12040", datatype.Bfloat16, "bfloat16"},
	} {
		t.Setenv("STUB_CUDA_VERSION", c.version)
		l := &recorded{FS: cuda.Kernels()}
		undo := cuda.ReplaceKernels(l)
		b := newBenchOn(t, c.device, 3*64)
		b.run(b.pair(c.typ, datatype.Sum, 64, 4))
		undo()
		got := strings.ReplaceAll(strings.Join(l.names, " "), ".ptx", "")
		if got != c.want {
			t.Errorf("device %d, driver %s, %v: loads %q, want %q", c.device, c.version, c.typ, got, c.want)
		}
	}
}

// TestMachineCode loads machine code on devices that can run it, for the types that need no newer instructions, and
// text for the others. One module has all types. The results are right.
func TestMachineCode(t *testing.T) {
	onlyStub(t, errorsOnDemand)
	t.Setenv("STUB_CUDA_PTX", joined(t))
	for i, c := range []struct {
		architecture string
		want         string
	}{
		{"80", "kernels.sm_80.cubin"},
		{"86", "kernels.sm_80.cubin"},
		{"89", "kernels.sm_80.cubin f8e4m3.sm_89 f8e5m2.sm_89"},
		{"90", "kernels.sm_90.cubin"},
		{"103", "kernels.sm_100.cubin"},
		{"75", "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2"},
	} {
		t.Setenv("STUB_CUDA_ARCH", c.architecture)
		l := &recorded{FS: cuda.Kernels()}
		undo := cuda.ReplaceKernels(l)
		b := newBenchOn(t, 10+i, 3*64) // devices that no other test uses
		for typ := range datatype.NumTypes {
			b.run(b.pair(typ, datatype.Sum, 64, 4))
		}
		undo()
		got := strings.ReplaceAll(strings.Join(l.names, " "), ".ptx", "")
		if got != c.want {
			t.Errorf("sm_%s: loads %q, want %q", c.architecture, got, c.want)
		}
	}
}

// joined returns a folder with the text of which the machine code was made.
func joined(t *testing.T) string {
	t.Helper()
	dir, kernels := t.TempDir(), "kernels"
	if _, err := os.Stat(kernels); err != nil {
		kernels = "cgo/cuda/kernels" // the root of the tree, where the GPU check runs tests
	}
	join := exec.Command("python3", kernels+"/join.py", kernels+"/kernels.zip", dir, "80", "90", "100")
	out, err := join.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("there is no python3")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestImpossible checks the errors of reductions that no kernel can make.
func TestImpossible(t *testing.T) {
	b := newBench(t, 3*64)
	for words, spoil := range map[string]func(r *device.Reduction){
		"type type(99)":                func(r *device.Reduction) { r.Type = 99 },
		"operator op(7)":               func(r *device.Reduction) { r.Op = 7 },
		"0 sources":                    func(r *device.Reduction) { r.N = 0 },
		"17 sources":                   func(r *device.Reduction) { r.N = 17 },
		"-1 elements":                  func(r *device.Reduction) { r.Count = -1 },
		"4611686018427387904 elements": func(r *device.Reduction) { r.Count = 1 << 62 },
		"divisor -2":                   func(r *device.Reduction) { r.Divisor = -2 },
		"divisor 2147483648":           func(r *device.Reduction) { r.Divisor = 1 << 31 },
		"divisor 2 of float":           func(r *device.Reduction) { r.Type, r.Divisor = datatype.Float32, 2 },
		"max of scaled": func(r *device.Reduction) {
			r.Op, r.Scale = datatype.Max,
				device.ScaleBy(datatype.Int32, 2)
		},
	} {
		r := b.pair(datatype.Int32, datatype.Sum, 64, 4)
		spoil(r)
		if err := b.try(r); !errors.Is(err, device.ErrReduction) || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: error %v", words, err)
		}
	}
}
