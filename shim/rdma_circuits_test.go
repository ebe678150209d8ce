package shim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/optical"
	"lightpath/shim/result"
)

// crossbars is a switch per plane: ports that change are dark until somebody looks at the map.
type crossbars struct {
	network *verbstest.Network
	planes  []*verbstest.Crossbar
	target  []circuit.Permutation
}

// Switch implements controller.Device.
func (c *crossbars) Switch(plane int, m controller.Move) error {
	dark := m.From.Clone()
	for p := range dark {
		if dark[p] != m.To[p] {
			dark[p] = circuit.Dark
		}
	}
	c.planes[plane].Set(dark)
	c.target[plane] = m.To.Clone()
	return nil
}

// Map implements controller.Device. The core asks when the reconfiguration time is over.
func (c *crossbars) Map(plane int) (circuit.Permutation, error) {
	if to := c.target[plane]; to != nil {
		c.planes[plane].Set(to)
	}
	return c.planes[plane].Map(), nil
}

// rdmaFabric is a fabric whose planes are RDMA ports behind crossbars, with a controller in this process
// that moves them, and points the environment at it. Rank r is at port r of every plane.
func rdmaFabric(t *testing.T, ranks, planes int, kind plans.CircuitKind) *crossbars {
	t.Helper()
	n := verbstest.New(1)
	before := endpoints.UseVerbs(n)
	t.Cleanup(func() {
		endpoints.UseVerbs(before)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(t.TempDir(), "ocsd.sock")
	f := &fabric.Fabric{
		Version: fabric.Version, Name: "rdma", Ranks: ranks, Circuits: kind,
		OCS:        []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket, Reconfig: time.Millisecond}},
		Controller: fabric.Controller{Endpoints: []string{"unix:" + socket}},
	}
	var config controller.Config
	var hcas []string
	dev := &crossbars{network: n, target: make([]circuit.Permutation, planes)}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: 1e9, OCS: "ocs0", HCA: fmt.Sprintf("p%dr0", p)})
		config.Planes = append(config.Planes, controller.PlaneConfig{Name: f.Planes[p].Name, BandwidthBitsPerSec: 1e9, Reconfig: time.Millisecond})
		var ports []rdma.Device
		for r := range ranks {
			ports = append(ports, n.Add(fmt.Sprintf("p%dr%d", p, r)))
			hcas = append(hcas, fmt.Sprintf("p%dr%d:1:%d:%d", p, r, r, p))
		}
		dev.planes = append(dev.planes, n.Cross(ports...))
	}
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(path, f.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	config.Name, config.Ports, config.Device = f.Name, ranks, dev
	core, err := controller.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(core.Close)
	server, err := local.Serve(core, local.Options{Socket: socket, DataPlane: ocsctl.DataNone, Version: Version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "60s")
	t.Setenv("NCCL_IB_HCA", "="+strings.Join(hcas, ","))
	return dev
}

// TestCircuitsOverRDMA runs every collective over circuits of RDMA ports that a controller moves in the middle
// of them: every byte right, nothing lost, with acknowledgements on duplex circuits and without on simplex ones.
func TestCircuitsOverRDMA(t *testing.T) {
	for _, kind := range []plans.CircuitKind{plans.Duplex, plans.Simplex} {
		for _, name := range []string{"perstep", "swot"} {
			t.Run(fmt.Sprintf("%s-%s", kind, name), func(t *testing.T) {
				dev := rdmaFabric(t, 4, 2, kind)
				t.Setenv("LIGHTPATH_PLANNER", name)
				t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
				t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
				w := newWorld(t, 4)
				rng := rand.New(rand.NewPCG(6, 6))
				for _, count := range []int{1, 40001} {
					w.runAll(t, rng, count)
				}
				if n := len(optical.Of(w.comms[0]).Packet); n > 0 && kind == plans.Simplex {
					t.Errorf("%d shapes ran on packet planes", n)
				}
				moved := 0
				for j, x := range dev.planes {
					if n := x.Lost(); n != 0 {
						t.Errorf("plane %d has lost %d requests", j, n)
					}
					moved += int(circuits.Of(w.comms[0]).Controller.State(j).Epoch)
				}
				if moved < 4 {
					t.Errorf("planes were moved %d times", moved)
				}
				w.destroy()
			})
		}
	}
}

// TestSkippedDrainOverRDMA: a rank that asks for a switch with frames on the wire loses them. The call fails on
// every rank, and says what was lost where.
func TestSkippedDrainOverRDMA(t *testing.T) { untilLost(t, skippedDrainOverRDMA) }

// untilLost repeats a call that asks for a switch with frames on the wire, and is false where the machine stood
// still until all of them had left it.
func untilLost(t *testing.T, call func(t *testing.T) bool) {
	lost := false
	for try := 0; try < 20 && !lost && !t.Failed(); try++ {
		t.Run(fmt.Sprint(try), func(t *testing.T) { lost = call(t) })
	}
	if !lost {
		t.Error("the switch has lost nothing")
	}
}

func skippedDrainOverRDMA(t *testing.T) bool {
	dev := rdmaFabric(t, 4, 1, plans.Simplex)
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("NCCL_IB_TIMEOUT", "17")
	t.Setenv("NCCL_IB_RETRY_CNT", "1")
	t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1") // after the move to where the plan begins
	w := newWorld(t, 4)
	errs := w.each(func(c *Comm) error { return Run([]calls.Call{allReduce(c, make([]float32, 1<<18))}) })
	if dev.planes[0].Lost() == 0 {
		none(t, errs)
		return false
	}
	for r, err := range errs {
		wantError(t, err, transport.ErrDark, "rank ", "plane 0", "epoch ")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d: %v", r, result.Of(err), err)
		}
	}
	return true
}

// TestRefusedOverRDMA: acknowledgements on circuits that lead one way are refused, with the reason.
func TestRefusedOverRDMA(t *testing.T) {
	rdmaFabric(t, 2, 1, plans.Simplex)
	t.Setenv("LIGHTPATH_RDMA_MODE", "rc")
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Init([]InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}})
	wantError(t, err, errdefs.ErrInvalidUsage, "LIGHTPATH_RDMA_MODE=rc", "no way back for acknowledgements")
}
