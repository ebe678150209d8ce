package verbs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule/oracle"
	"lightpath/collectives/transport"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
)

// circuitsEnv names the ports of a plane with circuits, "rxec0,sw0 rxec1,sw1 ...": the device, and the switch's
// interface to it.
const circuitsEnv = "LIGHTPATH_TEST_RDMA_CIRCUITS"

// crossConnect is a switch of tc rules, one for each circuit.
type crossConnect struct {
	ports []string // the switch's interfaces

	mu      sync.Mutex
	now     circuit.Permutation
	moving  bool
	failure error
	moves   int
}

// Switch implements controller.Device. It first removes all circuits that change, at once.
func (c *crossConnect) Switch(_ int, m controller.Move) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving = true
	c.moves++
	go func() {
		var deletes, makes strings.Builder
		for p, to := range m.To {
			if m.From[p] == to {
				continue
			}
			if m.From[p] != circuit.Dark {
				fmt.Fprintf(&deletes, "filter del dev %s ingress pref 1\n", c.ports[p])
			}
			if to != circuit.Dark {
				fmt.Fprintf(&makes, "filter add dev %s ingress pref 1 matchall action mirred egress redirect dev %s\n",
					c.ports[p], c.ports[to])
			}
		}
		cmd := exec.Command("tc", "-batch", "-")
		cmd.Stdin = strings.NewReader(deletes.String() + makes.String())
		out, err := cmd.CombinedOutput()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.moving = false; err != nil {
			c.failure = fmt.Errorf("tc: %w: %s", err, out)
			return
		}
		c.now = m.To.Clone()
	}()
	return nil
}

// Map implements controller.Device.
func (c *crossConnect) Map(int) (circuit.Permutation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moving {
		return nil, controller.ErrMoving
	}
	return c.now.Clone(), c.failure
}

// circuits starts a controller of the test's ports, and sets the environment to its fabric.
func circuits(t *testing.T) *crossConnect {
	t.Helper()
	named := strings.Fields(os.Getenv(circuitsEnv))
	if len(named) == 0 {
		t.Skipf("%s names no ports: make test-rdma runs this in a virtual machine that has some", circuitsEnv)
	}
	socket := filepath.Join(t.TempDir(), "ocsd.sock")
	sw := &crossConnect{now: circuit.AllDark(len(named))}
	var hcas []string
	for i, p := range named {
		device, port, _ := strings.Cut(p, ",")
		sw.ports = append(sw.ports, port)
		hcas = append(hcas, fmt.Sprintf("%s:1:%d:0", device, i))
	}
	f := &fabric.Fabric{
		Version: fabric.Version, Name: "vm", Ranks: len(named), Circuits: plans.Simplex,
		Planes: []fabric.Plane{{Name: "p0", Bandwidth: 1e8, OCS: "ocs0", HCA: "rxec0"}},
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket,
			Reconfig: time.Millisecond}},
		Controller: fabric.Controller{Endpoints: []string{"unix:" + socket}},
	}
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	require.NoError(t, os.WriteFile(path, f.Encode(), 0o600))
	core, err := controller.Start(controller.Config{
		Name: f.Name, Ports: len(named), Device: sw, SettleTimeout: time.Minute,
		Planes: []controller.PlaneConfig{{Name: "p0", BandwidthBitsPerSec: 1e8, Reconfig: time.Millisecond}},
	})
	require.NoError(t, err)
	t.Cleanup(core.Close)
	server, err := local.Serve(core, local.Options{Socket: socket, DataPlane: ocsctl.DataNone, Version: shim.Version})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"LIGHTPATH_FABRIC": path, "LIGHTPATH_TIMEOUT": "120s", "LIGHTPATH_PLANNER": "perstep",
		"NCCL_IB_HCA":     "=" + strings.Join(hcas, ","),
		"NCCL_IB_TIMEOUT": fmt.Sprint(patient), "NCCL_IB_RETRY_CNT": "3",
	} {
		t.Setenv(name, value)
	}
	t.Cleanup(func() { // dark again
		for _, p := range sw.ports {
			_ = exec.Command("tc", "filter", "del", "dev", p, "ingress").Run() // there may be none
		}
	})
	return sw
}

// TestCircuits checks the results of collectives over one-way circuits of soft-RoCE ports that move between steps.
func TestCircuits(t *testing.T) {
	sw := circuits(t)
	comms := join(t, len(sw.ports))
	defer destroy(t, comms)
	rng := rand.New(rand.NewPCG(1, 5))
	for _, i := range []int{0, 5} { // AllReduce, AllToAll
		k := &collectives[i]
		call := oracle.Call{Collective: k.collective, Type: datatype.Int32, Op: datatype.Sum}
		if err := verify(comms, k.kind, call, 20001, k.send, k.recv, rng); err != nil {
			t.Fatalf("%v: %v", k.collective, err)
		}
	}
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if t.Logf("%d moves", sw.moves); sw.moves < 4 {
		t.Errorf("circuits moved %d times", sw.moves)
	}
}

// TestCircuitsWithoutDrain makes a rank ask for a switch with frames on a long wire. It loses them, and all ranks get
// an error.
func TestCircuitsWithoutDrain(t *testing.T) {
	if os.Getenv("LIGHTPATH_TEST_LONG") == "" {
		t.Skip("long, and the same happens in memory (shim): LIGHTPATH_TEST_LONG is not set")
	}
	sw := circuits(t)
	for i := range sw.ports {
		sh(t, fmt.Sprintf("tc qdisc add dev pc%d root netem delay 2s", i))
		defer sh(t, fmt.Sprintf("tc qdisc del dev pc%d root", i))
	}
	t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1")
	comms := join(t, len(sw.ports))
	for r, err := range each(comms, func(_ int, c *shim.Comm) error { return allReduce(c, make([]int32, 1<<12)) }) {
		t.Logf("rank %d: %v", r, err)
		if !errors.Is(err, transport.ErrDark) || !strings.Contains(err.Error(), "plane 0") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for _, c := range comms {
		_ = c.Abort() // the error was reported before
	}
}
