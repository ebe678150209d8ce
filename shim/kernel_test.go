package shim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/path/optical"
	"lightpath/shim/planeset"
	"lightpath/shim/result"
	"lightpath/shim/settings"
)

// kernelFabric builds planes in the kernel, with a controller in this process that moves them by
// device models, and points the environment at them. lost tells what has been lost so far.
func kernelFabric(t *testing.T, ranks, planes int, rate fabric.Rate) (core *controller.Core, lost func() []string) {
	t.Helper()
	if err := kernel.Check(); err != nil {
		t.Skipf("planes in the kernel cannot be built here: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "ocsd.sock")
	f := &fabric.Fabric{
		Version: fabric.Version, Name: fmt.Sprintf("tG%d-%d", os.Getpid(), rand.Uint32()), Ranks: ranks, Circuits: plans.Simplex, Forwarding: true,
		OCS:        []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket, Reconfig: 2 * time.Millisecond}},
		Controller: fabric.Controller{Endpoints: []string{"unix:" + socket}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: rate, OCS: "ocs0", Interface: fmt.Sprintf("p%d", p)})
	}
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(path, f.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	must := mustOf(t)
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
	return driven(t, f, path, socket, board), func() []string {
		r, err := kernel.Inspect(state)
		must(err)
		return r.Problems
	}
}

// driven starts a controller in this process that moves the planes by device models, and points the
// environment at it and at the file of the fabric.
func driven(t *testing.T, f *fabric.Fabric, path, socket string, board kernel.Panel) *controller.Core {
	t.Helper()
	must := mustOf(t)
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
		config.Planes = append(config.Planes, controller.PlaneConfig{Name: p.Name, BandwidthBitsPerSec: float64(p.Bandwidth), Reconfig: f.OCS[0].Reconfig})
	}
	core, err := controller.Start(config)
	must(err)
	t.Cleanup(core.Close)
	server, err := local.Serve(core, local.Options{Socket: socket, DataPlane: ocsctl.DataKernel, Version: Version})
	must(err)
	t.Cleanup(server.Close)
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	t.Setenv("LIGHTPATH_TRANSPORT", settings.TransportEBPF)
	return core
}

// mustOf ends a test with an error.
func mustOf(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlanesInTheKernel runs every collective over circuits that are real, direct and forwarded by
// the kernel: every byte right, no frame lost.
func TestPlanesInTheKernel(t *testing.T) {
	for _, name := range []string{"swot", "harvest"} {
		t.Run(name, func(t *testing.T) {
			_, lost := kernelFabric(t, 4, 2, 5e8)
			t.Setenv("LIGHTPATH_PLANNER", name)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			w := newWorld(t, 4)
			rng := rand.New(rand.NewPCG(6, 6))
			for _, count := range []int{1, 4001} {
				w.runAll(t, rng, count)
			}
			if n := len(optical.Of(w.comms[0]).Packet); n > 0 {
				t.Errorf("%d shapes ran on packet planes", n)
			}
			if problems := lost(); len(problems) > 0 {
				t.Errorf("%q", problems)
			}
		})
	}
}

// TestSkippedDrainInTheKernel: ranks that ask for a switch with frames on the wire lose them. The
// call fails on every rank, and says what was lost where.
func TestSkippedDrainInTheKernel(t *testing.T) { untilLost(t, skippedDrainInTheKernel) }

func skippedDrainInTheKernel(t *testing.T) bool {
	_, lost := kernelFabric(t, 4, 1, 2e7) // so that frames are on the wire for long
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1") // after the move to where the plan begins
	w := newWorld(t, 4)
	errs := w.each(func(c *Comm) error { return Run([]calls.Call{allReduce(c, make([]float32, 1<<18))}) })
	if len(lost()) == 0 {
		none(t, errs)
		return false
	}
	for r, err := range errs {
		wantError(t, err, transport.ErrDark, "rank ", "plane 0", "dark")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d", r, result.Of(err))
		}
	}
	return true
}

// TestPlaneDisabledInTheKernel: collectives go on over the planes that are left, and use the other
// again when it is back; no frame is lost over it.
func TestPlaneDisabledInTheKernel(t *testing.T) {
	core, lost := kernelFabric(t, 4, 2, 5e8)
	t.Setenv("LIGHTPATH_PLANNER", "harvest")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	w := newWorld(t, 4)
	rng := rand.New(rand.NewPCG(7, 7))
	for _, use := range []planeset.Set{0b11, 0b01, 0, 0b10, 0b11} {
		for j := range 2 {
			var err error
			if use.Has(j) {
				err = core.Enable(j, "ops")
			} else {
				err = core.Disable(j, "cleaning", "ops")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !settled(func() bool { w.runAll(t, rng, 501); return circuits.Of(w.comms[2]).Granted().Use == use }) {
			t.Errorf("planes %#b are in use, want %#b", circuits.Of(w.comms[2]).Granted().Use, use)
		}
	}
	if problems := lost(); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
}
