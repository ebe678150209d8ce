package shimtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/emulator"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/dispatch"
	"lightpath/shim/planning"
	"lightpath/shim/session"
	"lightpath/shim/settings"
)

// FramesByPlane returns the number of frames that each plane of a switch has carried.
func FramesByPlane(t testing.TB, s *emulator.Server) []uint64 {
	t.Helper()
	stats, err := s.Stats()
	require.NoError(t, err)
	frames := make([]uint64, len(stats))
	for j := range stats {
		frames[j] = stats[j].Frames
	}
	return frames
}

// UseKernelPlanes makes planes in the kernel and a controller of this process that moves them by device models. It
// points the environment at them. lost returns the losses so far.
func UseKernelPlanes(t *testing.T, ranks, planes int, rate fabric.Rate) (core *controller.Core, lost func() []string) {
	t.Helper()
	if err := kernel.Check(); err != nil {
		t.Skipf("planes in the kernel cannot be built here: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "ocsd.sock")
	f := &fabric.Fabric{
		Version: fabric.Version, Name: fmt.Sprintf("tG%d-%d", os.Getpid(), rand.Uint32()), Ranks: ranks,
		Circuits: plans.Simplex, Forwarding: true,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket,
			Reconfig: 2 * time.Millisecond}},
		Controller: fabric.Controller{Endpoints: []string{"unix:" + socket}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: rate, OCS: "ocs0",
			Interface: fmt.Sprintf("p%d", p)})
	}
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	require.NoError(t, os.WriteFile(path, f.Encode(), 0o600))
	must := Fatal(t)
	f, err := fabric.Load(path)
	must(err)
	t.Cleanup(func() {
		if _, err := kernel.Down(f.Name, true); err != nil {
			t.Error(err)
		}
	})
	state, _, err := kernel.Up(f, kernel.Options{})
	must(err)
	board, err := kernel.Open(state)
	must(err)
	t.Cleanup(func() { _ = board.Close() })
	return UseDeviceModels(t, f, path, socket, board), func() []string {
		r, err := kernel.Inspect(state)
		must(err)
		return r.Problems
	}
}

// PullCable takes the carrier from a rank's interface on one plane of [UseKernelPlanes].
func PullCable(t *testing.T, rank, plane int) {
	t.Helper()
	must := Fatal(t)
	f, err := fabric.Load(os.Getenv("LIGHTPATH_FABRIC"))
	must(err)
	state, err := kernel.Load(kernel.NameFor(f, rank))
	must(err)
	ns, err := netns.GetFromName(state.Switch)
	must(err)
	defer func() { must(ns.Close()) }()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	must(err)
	defer h.Close()
	link, err := h.LinkByName(fmt.Sprintf("p%dr%d", plane, rank)) // the switch's end
	must(err)
	must(h.LinkSetDown(link))
}

// UseDeviceModels starts a controller in this process that moves planes by device models. It points the environment at
// the controller and at the fabric file at path.
func UseDeviceModels(t *testing.T, f *fabric.Fabric, path, socket string, board kernel.Panel) *controller.Core {
	t.Helper()
	must := Fatal(t)
	models, cables, err := kernel.Models(board, f, "", 1)
	must(err)
	t.Cleanup(func() {
		for _, m := range models {
			m.Close()
		}
	})
	dev, err := kernel.NewDevice(board, cables)
	must(err)
	t.Cleanup(func() { _ = dev.Close() })
	config := controller.Config{Name: f.Name, Ports: f.Ranks, Device: dev}
	for _, p := range f.Planes {
		config.Planes = append(config.Planes, controller.PlaneConfig{Name: p.Name, BandwidthBitsPerSec: float64(p.Bandwidth),
			Reconfig: f.OCS[0].Reconfig})
	}
	core, err := controller.Start(config)
	must(err)
	t.Cleanup(core.Close)
	server, err := local.Serve(core, local.Options{Socket: socket, DataPlane: ocsctl.DataKernel, Version: shim.Version})
	must(err)
	t.Cleanup(server.Close)
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	t.Setenv("LIGHTPATH_TRANSPORT", settings.TransportEBPF)
	return core
}

// ProgramsOnCircuits returns how many programs of a communicator run on circuits.
func ProgramsOnCircuits(c *shim.Comm) (n int) {
	for _, e := range session.Of(c).Programs.Programs {
		if e.Plan != nil {
			n++
		}
	}
	return n
}

// UseEmulator starts a switch and points the environment at a fabric of it. edit, which may be nil, changes the fabric
// before.
func UseEmulator(t testing.TB, ranks, planes int, edit func(*fabric.Fabric)) *emulator.Server {
	t.Helper()
	return UseEmulatorOn(t, ranks, planes, nil, edit)
}

// UseEmulatorOn is UseEmulator with a device that moves the planes; nil: a table.
func UseEmulatorOn(t testing.TB, ranks, planes int, d controller.Device, edit func(*fabric.Fabric)) *emulator.Server {
	t.Helper()
	dir := t.TempDir()
	f := &fabric.Fabric{
		Version: fabric.Version, Name: "test", Ranks: ranks, Circuits: plans.Simplex, Forwarding: true,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + filepath.Join(dir, "ocs.sock"),
			Reconfig: 200 * time.Microsecond}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: 2e9, OCS: "ocs0"})
	}
	if edit != nil {
		edit(f)
	}
	config := emulator.Config{Socket: filepath.Join(dir, "ocs.sock"), Ports: ranks,
		FrameLog: filepath.Join(dir, "frames.log"), Device: d}
	for _, p := range f.Planes {
		config.Planes = append(config.Planes, emulator.PlaneConfig{Name: p.Name, BandwidthBitsPerSec: float64(p.Bandwidth),
			Reconfig: f.OCS[0].Reconfig, PinnedBy: f.PinnedBy})
	}
	server, err := emulator.Start(config)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("switch: %v", err)
		}
	})
	path := filepath.Join(dir, "fabric.yaml")
	require.NoError(t, os.WriteFile(path, f.Encode(), 0o600))
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	return server
}

// NoLosses checks that the switch has dropped no frame.
func NoLosses(t testing.TB, server *emulator.Server) {
	t.Helper()
	stats, err := server.Stats()
	require.NoError(t, err)
	for j, s := range stats {
		if s.Frames == 0 {
			t.Errorf("plane %d carried nothing", j)
		}
		for v, n := range s.Lost {
			if n > 0 {
				t.Errorf("plane %d lost %d frames: %v", j, n, emulator.Verdict(v))
			}
		}
	}
}

// PlanFiles returns the plan files of a cache directory.
func PlanFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	return files
}

// CorruptPlan changes one digit of a plan file.
func CorruptPlan(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.Index(data, []byte("end_us"))
	for ; data[at] < '0' || data[at] > '9'; at++ {
	}
	data[at] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// ReduceWith runs an AllReduce of one float with options.
func ReduceWith(c *shim.Comm, in, out *float32, o calls.Options) error {
	return shim.Run([]calls.Call{{
		Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Count: 1,
		Send: unsafe.Pointer(in), Recv: unsafe.Pointer(out), Options: o,
	}})
}

// SumWith runs [ReduceWith] on all ranks. Each contributes its rank + 1.
func SumWith(w *World, o func(rank int) calls.Options) ([]float32, []error) {
	out := make([]float32, len(w.Comms))
	errs := w.Each(func(c *shim.Comm) error {
		in := float32(c.Rank + 1)
		return ReduceWith(c, &in, &out[c.Rank], o(c.Rank))
	})
	return out, errs
}

// LastPlan returns the plan of the program that rank 0 used last.
func LastPlan(t *testing.T, w *World) *plans.Plan {
	t.Helper()
	var last *dispatch.Entry
	for _, e := range session.Of(w.Comms[0]).Programs.Programs {
		if last == nil || e.Used > last.Used {
			last = e
		}
	}
	if last == nil || last.Plan == nil {
		t.Fatal("no program with a plan")
	}
	return last.Plan
}

// UseFastEmulator is [UseEmulator] with a fast switch, so that circuits are worth it for small messages.
func UseFastEmulator(t testing.TB, ranks, planes int) *emulator.Server {
	t.Helper()
	return UseEmulator(t, ranks, planes, func(f *fabric.Fabric) { f.OCS[0].Reconfig = 20 * time.Microsecond })
}

// SetUpWarm starts a fabric of 4 ports and returns the arguments of [WarmPlan].
func SetUpWarm(t *testing.T) (*settings.Config, *fabric.Fabric, *cache.Cache) {
	t.Helper()
	UseEmulator(t, 4, 2, nil)
	dir := t.TempDir()
	t.Setenv("LIGHTPATH_PLAN_DIR", dir)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	cfg, err := settings.Load()
	require.NoError(t, err)
	fab, err := fabric.Load(os.Getenv("LIGHTPATH_FABRIC"))
	require.NoError(t, err)
	store, err := cache.Open(dir)
	require.NoError(t, err)
	return cfg, fab, store
}

// WarmPlan plans one call ahead, into store.
func WarmPlan(t *testing.T, cfg *settings.Config, fab *fabric.Fabric, ranks int, store *cache.Cache,
	call planning.Asked) planning.Warmed {
	t.Helper()
	made, err := planning.Warm(t.Context(), cfg, fab, ranks, []planning.Asked{call}, store, nil)
	if err != nil || made[0].Err != nil {
		t.Fatal(made, err)
	}
	return made[0]
}

// PlansMade returns the number of plans that the leader of a world has made.
func PlansMade(w *World) (n int) { return live.Of(w.Comms[0]).Book.Plannings() }
