package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/cgo/cuda"
	"lightpath/cgo/cuda/cudatest"
	"lightpath/cgo/plugins"
	"lightpath/collectives/datatype"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/endpoints"
	"lightpath/shim/stream"
)

// TestExportBuf exports a part of device memory as a dma-buf. The part is at its offset in the dma-buf, also after the
// memory has been freed.
func TestExportBuf(t *testing.T) {
	onlyStub(t, dmaBuf)
	cudatest.Use(0)
	at := cudatest.Alloc(10000)
	fd, offset, err := driver.ExportBuf(unsafe.Add(at, 100), 9000)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if offset != 100 {
		t.Errorf("offset %d", offset)
	}
	cudatest.Write(unsafe.Add(at, 100), []byte("abc"))
	cudatest.Free(at)
	var got [3]byte
	if _, err := unix.Pread(fd, got[:], int64(offset)); err != nil || string(got[:]) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	var host [4096]byte
	if _, _, err := driver.ExportBuf(unsafe.Pointer(&host), len(host)); !errors.Is(err, device.ErrDriver) ||
		!strings.Contains(err.Error(), "cuMemGetHandleForAddressRange") {
		t.Errorf("memory of the host: %v", err)
	}
}

// TestRemoteAccess checks that the properties of a device decide how other devices reach its memory.
func TestRemoteAccess(t *testing.T) {
	onlyStub(t, dmaBuf)
	cudatest.Use(0)
	for _, c := range []struct {
		exports, ordering, options string
		want                       device.RemoteAccess
	}{
		{"1", "100", "0", device.RemoteAccess{DMABufs: true, Ordered: true}},
		{"1", "200", "1", device.RemoteAccess{DMABufs: true, Ordered: true, Flushes: true}},
		{"1", "0", "1", device.RemoteAccess{DMABufs: true, Flushes: true}},
		{"1", "0", "2", device.RemoteAccess{DMABufs: true}},
		{"0", "100", "1", device.RemoteAccess{Ordered: true, Flushes: true}},
	} {
		t.Setenv("STUB_CUDA_DMA_BUF", c.exports)
		t.Setenv("STUB_CUDA_WRITES_ORDERING", c.ordering)
		t.Setenv("STUB_CUDA_FLUSH_OPTIONS", c.options)
		if got, err := driver.RemoteAccess(); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
}

// TestGPUDirect runs collectives over RDMA ports in memory, on streams of the driver, with its kernels. No data passes
// through host memory. It uses a device that orders the writes of others, and one that must be flushed.
func TestGPUDirect(t *testing.T) {
	onlyStub(t, dmaBuf)
	for _, ordering := range []string{"100", "0"} {
		t.Run("ordering "+ordering, func(t *testing.T) {
			t.Setenv("STUB_CUDA_WRITES_ORDERING", ordering)
			overPorts(t, 3, ordering == "0")
		})
	}
}

// useDriver makes communicators of this test exchange memory of the driver's devices over a transport.
func useDriver(t *testing.T, transport string) {
	t.Helper()
	cuda.Tell(stream.Places())
	device.Use(cuda.Library{}) // the devices stay: communicators give their resources back in the background
	t.Setenv("LIGHTPATH_TRANSPORT", transport)
	t.Setenv("LIGHTPATH_PLANES", "2")
	t.Setenv("LIGHTPATH_DEVICE_PATH", "rdma")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
}

func overPorts(t *testing.T, ranks int, flushed bool) {
	n := verbstest.New(1)
	for i := range 2 {
		n.Add(fmt.Sprintf("mem%d", i))
	}
	endpoints.UseVerbs(n)
	useDriver(t, "rdma")
	t.Cleanup(func() {
		endpoints.UseVerbs(nil)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	before, flushes := n.Moved(), cudatest.Flushes()
	const count = 20000
	addTwice(t, ranks, count)
	moved := n.Moved()
	if moved.FromHost != before.FromHost || moved.ToHost != before.ToHost || moved.FromBuf < 2*int64(ranks-1)*count {
		t.Errorf("moved %+v, before %+v", moved, before)
	}
	if some := cudatest.Flushes() > flushes; some != flushed {
		t.Errorf("flushed: %v", some)
	}
	// if resources remain, the network reports them
	for end := time.Now().Add(time.Minute); !n.Idle() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// TestGPUDirectByPlugin is TestGPUDirect over a network plugin, which reaches device memory as a dma-buf or by its
// address. The bytes that it receives are in the device's memory only after its flush.
func TestGPUDirectByPlugin(t *testing.T) {
	onlyStub(t, dmaBuf)
	file := filepath.Join(t.TempDir(), "libnccl-net-test.so")
	out, err := exec.Command("cc", "-std=gnu11", "-DVERSION=12", "-fPIC", "-shared", "-I../plugins", "-o", file,
		"../plugins/testdata/net.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := endpoints.UseNetPlugins(plugins.Net{})
	t.Cleanup(func() { endpoints.UseNetPlugins(before) })
	t.Setenv("NCCL_NET_PLUGIN", file)
	t.Setenv("STUB_CUDA_WRITES_ORDERING", "0")
	for _, c := range []struct{ exports, options string }{
		{"1", "gpu=4 hide"}, {"1", "gpu=6 hide regMrDmaBuf=2"}, {"0", "gpu=2 hide"},
	} {
		t.Run(c.options, func(t *testing.T) {
			useDriver(t, "net")
			t.Setenv("STUB_CUDA_DMA_BUF", c.exports)
			t.Setenv("LIGHTPATH_TEST_NET", c.options)
			flushes := cudatest.Flushes()
			addTwice(t, 3, 20000)
			if cudatest.Flushes() != flushes {
				t.Error("the driver has flushed")
			}
		})
	}
}

// addTwice makes a communicator whose ranks add their bytes twice, and checks the sums.
func addTwice(t *testing.T, ranks, count int) {
	t.Helper()
	id, err := shim.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	args := make([]shim.InitArgs, ranks)
	for r := range args {
		args[r] = shim.InitArgs{ID: id, Ranks: ranks, Rank: r, Device: r % 2} // devices that no other test uses
	}
	cudatest.Use(0)
	comms, err := shim.Init(args)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	want := make([]byte, count)
	at, streams := make([]unsafe.Pointer, ranks), make([]device.Stream, ranks)
	for r := range ranks {
		cudatest.Use(r % 2)
		own := make([]byte, count)
		for i := range own {
			own[i] = byte(rng.Uint32())
			want[i] += own[i]
		}
		at[r], streams[r] = cudatest.Alloc(count), cudatest.NewStream()
		cudatest.Write(at[r], own)
	}
	for range 2 { // sums, twice
		for r, c := range comms {
			cudatest.Use(r % 2)
			call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: uint64(count), Send: at[r],
				Recv: at[r], Stream: streams[r]}
			if err := shim.Run([]calls.Call{call}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range want {
		want[i] *= byte(ranks)
	}
	for r, c := range comms {
		cudatest.Use(r % 2)
		if rc := cudatest.Sync(streams[r]); rc != 0 || c.AsyncError() != nil {
			t.Fatalf("rank %d: error %d, %v", r, rc, c.AsyncError())
		}
		got := make([]byte, count)
		cudatest.Read(got, at[r])
		if !bytes.Equal(got, want) {
			t.Errorf("rank %d has another result", r)
		}
		cudatest.Free(at[r])
	}
	for _, c := range comms {
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}
