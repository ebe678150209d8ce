package plugins

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/transport/messages"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// useGPUs gives communicators of n ranks software devices, and planes of a plugin that must reach their memory.
func useGPUs(t *testing.T, n int, plugin, options string) (*shimtest.GPUs, devicetest.Remote) {
	t.Helper()
	useNet(t, plugin, options)
	t.Setenv("LIGHTPATH_DEVICE_PATH", settings.DevicePathRDMA)
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	d := devicetest.NewRemote(stream.Places(), n)
	return shimtest.UseDriver(t, d.Driver, d, n, 3), d
}

// neverStages fails the test if a byte goes through page-locked memory.
func neverStages(g *shimtest.GPUs) {
	g.Before(func(o devicetest.Op) {
		if o.Kind == devicetest.CopyOut || o.Kind == devicetest.CopyIn {
			g.T.Errorf("%d bytes are copied by way of page-locked memory", o.Bytes)
		}
	})
}

// TestDeviceMemory runs random sequences of calls on streams, whose results are compared with the oracle, over plugins
// that reach device memory in different ways.
func TestDeviceMemory(t *testing.T) {
	const bufs, address = "registered as dma-bufs", "registered by its address"
	for i, c := range []struct {
		version       int
		options, says string
		unordered     bool // the devices need flushes
	}{
		{oldest, "gpu=6", bufs, false},
		{8, "gpu=4 late=2", bufs, false},
		{9, "gpu=2 flush hide", address, false},
		{11, "gpu=2 refuse=20", address, false},
		{newest, "gpu=6 hide", bufs, true},
		{newest, "gpu=6 flush hide late=3", bufs, false},
		{newest, "gpu=6 regMrDmaBuf=0 reorder", address, false},
		{newest, "gpu=6 regMrDmaBuf=5", address, false}, // one rank registers dma-bufs
		{newest, "gpu=6 limit=5000 multi", bufs, false}, // messages of several parts
	} {
		t.Run(fmt.Sprintf("v%d-%s", c.version, c.options), func(t *testing.T) {
			n := 2 + i%2
			g, d := useGPUs(t, n, version(t, c.version), c.options)
			if c.unordered {
				d.NeedFlush(nil)
			}
			t.Setenv("NCCL_DEBUG_SUBSYS", "NET,INIT")
			log := shimtest.UseLogFile(t, "INFO")
			w := shimtest.NewWorld(t, n)
			g.Sequence(w, rand.New(rand.NewPCG(uint64(i), 5)), 9)
			shimtest.DestroyAll(w)
			registered := fmt.Sprintf("%s with plugin Unix (v%d): unix0", c.says, c.version)
			assert.Contains(t, log(), "device path: rdma", registered)
			for _, bad := range []string{"wrong call", "closed with"} {
				if strings.Contains(log(), bad) {
					t.Errorf("the log says %q:\n%s", bad, log())
				}
			}
			if d.Flushes() != 0 {
				t.Error("the driver has flushed what plugins flush")
			}
		})
	}
}

// TestDeviceMemoryIsNotStaged checks that no byte of a collective passes through host memory, and that calls allocate
// nothing.
func TestDeviceMemoryIsNotStaged(t *testing.T) {
	g, d := useGPUs(t, 2, version(t, newest), "gpu=4 flush hide")
	w := shimtest.NewWorld(t, 2)
	neverStages(g)
	w.AllocatesNothing(t, g.EveryKind(w, 200000)) // several rounds
	g.Before(nil)
	if d.Exported() == 0 {
		t.Error("nothing was exported")
	}
	shimtest.DestroyAll(w)
}

// TestDeviceMemoryRefused: if one rank's plugin cannot use device memory, all ranks stage, and the log names rank and
// reason. If ranks must not stage, that is the error.
func TestDeviceMemoryRefused(t *testing.T) {
	for _, c := range []struct {
		name, flags, options, method, says string
	}{
		{"no GPUs", "", "", "", "its devices reach memory of hosts only"},
		{"no flush", "-DNO_FLUSH=1", "gpu=6", "", "its devices reach memory of hosts only"},
		{"no registration", "", "gpu=6 regMrDmaBuf=0 regMrGPU=0", "", "regMr returned 3 (ncclInternalError)"},
		{"a dma-buf", "", "gpu=4 regMrDmaBuf=5", "", "regMrDmaBuf returned 3 (ncclInternalError)"}, // of the second rank
		{"by address", "", "gpu=2 regMrGPU=5", "", "regMr returned 3 (ncclInternalError)"},
		{"no export", "", "gpu=4", "ExportBuf", "ExportBuf"},
		{"no access", "", "gpu=4", "RemoteAccess", "RemoteAccess"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := version(t, newest)
			if c.flags != "" {
				file = build(t, fmt.Sprintf("-DVERSION=%d", newest), c.flags)
			}
			g, _ := useGPUs(t, 2, file, c.options)
			g.Fail(c.method, 0)
			id, err := shim.NewUniqueID()
			require.NoError(t, err)
			args := []shim.InitArgs{{ID: id, Ranks: 2}, {ID: id, Ranks: 2, Rank: 1, Device: 1}}
			if _, err := shim.Init(args); !errors.Is(err, errdefs.ErrInvalidUsage) ||
				!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "LIGHTPATH_DEVICE_PATH=rdma") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("they must, and the error is %v", err)
			}
			g, _ = useGPUs(t, 2, file, c.options)
			t.Setenv("LIGHTPATH_DEVICE_PATH", settings.DevicePathAuto)
			log := shimtest.UseLogFile(t, "INFO")
			g.Fail(c.method, 0)
			w := shimtest.NewWorld(t, 2)
			g.Fail("", 0)
			if !strings.Contains(log(), "device path: staged") || !strings.Contains(log(), c.says) {
				t.Errorf("the log lacks %q:\n%s", c.says, log())
			}
			g.Sequence(w, rand.New(rand.NewPCG(1, 9)), 6)
			shimtest.DestroyAll(w)
		})
	}
	t.Run("address instead of export", func(t *testing.T) {
		g, _ := useGPUs(t, 2, version(t, newest), "gpu=6")
		g.Fail("ExportBuf", 0)
		w := shimtest.NewWorld(t, 2)
		g.Sequence(w, rand.New(rand.NewPCG(1, 9)), 6)
		shimtest.DestroyAll(w)
	})
}

// TestDeviceMemoryFails: a function of the plugin that fails in a call ends the communicator on all ranks, and no
// stream hangs. If the connections for device memory cannot be made, no communicator is.
func TestDeviceMemoryFails(t *testing.T) {
	file := version(t, newest)
	const plugin = "network plugin Unix (v12): "
	for _, c := range []struct{ options, says string }{
		{"isend=400", plugin + "isend returned 3"}, {"irecv=400", plugin + "irecv returned 3"},
		{"test=2000", plugin + "test returned 3"}, {"iflush=20", plugin + "iflush returned 3"},
		{"gpusize=100", "100 bytes of message"},
	} {
		t.Run(c.options, func(t *testing.T) {
			g, _ := useGPUs(t, 2, file, "gpu=4 flush "+c.options)
			w := shimtest.NewWorld(t, 2)
			group := g.EveryKind(w, 50000)
			for i := 0; shim.Run(group) == nil; i++ {
				require.NoError(t, g.SynchronizeBoth())
				if i == 100 {
					t.Fatal("nothing has failed")
				}
			}
			says := ""
			for _, comm := range w.Comms {
				<-comm.FailedChan()
				says += comm.AsyncError().Error()
			}
			if !strings.Contains(says, c.says) {
				t.Errorf("%s\nwant %q", says, c.says)
			}
			require.NoError(t, g.SynchronizeBoth())
			for _, comm := range w.Comms {
				_ = comm.Abort()
			}
		})
	}
	for name, says := range map[string]string{"abort": "aborted", "silent": "has not moved for"} {
		t.Run(name, func(t *testing.T) {
			options := "gpu=4"
			if name == "silent" {
				options += " late=1000000000"
			}
			g, _ := useGPUs(t, 2, file, options)
			w := shimtest.NewWorld(t, 2)
			group := g.EveryKind(w, 50000)
			if name == "silent" {
				w.SetTimeout(time.Second)
				require.NoError(t, shim.Run(group))
			} else {
				require.NoError(t, shim.Run(group[:len(group)/2])) // of rank 0
				_ = w.Comms[1].Abort()
			}
			for _, comm := range w.Comms {
				<-comm.FailedChan()
				if err := comm.AsyncError(); !strings.Contains(err.Error(), says) {
					t.Errorf("%v\nwant %q", err, says)
				}
			}
			require.NoError(t, g.SynchronizeBoth())
			shimtest.DestroyAll(w)
		})
	}
	t.Run("connect", func(t *testing.T) {
		useGPUs(t, 2, file, "gpu=4 connect=5")
		all := create(t)
		for r, err := range all {
			if err == nil {
				t.Errorf("rank %d goes on", r)
			}
		}
		if err := errors.Join(all...); !strings.Contains(fmt.Sprint(err), "device memory over plugin Unix (v12): unix0") {
			t.Error(err)
		}
	})
}

// TestDeviceMemoryDiffers: calls that differ fail the communicator on all ranks before a byte of them moves.
func TestDeviceMemoryDiffers(t *testing.T) {
	g, _ := useGPUs(t, 2, version(t, newest), "gpu=4")
	w := shimtest.NewWorld(t, 2)
	for r, c := range w.Comms {
		at := g.Memory(r, 1<<20)
		call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: uint64(1+r) << 16, Send: at, Recv: at,
			Stream: g.Streams[r][0]}
		require.NoError(t, shim.Run([]calls.Call{call}))
	}
	says := ""
	for _, c := range w.Comms {
		<-c.FailedChan()
		says += c.AsyncError().Error()
	}
	if !strings.Contains(says, messages.ErrMismatch.Error()) {
		t.Error(says)
	}
	require.NoError(t, g.SynchronizeBoth())
	shimtest.DestroyAll(w)
}
