package shimtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/endpoints"
)

// Crossbars is a switch per plane. Ports that change are dark until the controller reads the map.
type Crossbars struct {
	Network *verbstest.Network
	Planes  []*verbstest.Crossbar
	target  []circuit.Permutation
}

// Switch implements controller.Device.
func (c *Crossbars) Switch(plane int, m controller.Move) error {
	dark := m.From.Clone()
	for p := range dark {
		if dark[p] != m.To[p] {
			dark[p] = circuit.Dark
		}
	}
	c.Planes[plane].Set(dark)
	c.target[plane] = m.To.Clone()
	return nil
}

// Map implements controller.Device. The core asks when the reconfiguration time is over.
func (c *Crossbars) Map(plane int) (circuit.Permutation, error) {
	if to := c.target[plane]; to != nil {
		c.Planes[plane].Set(to)
	}
	return c.Planes[plane].Map(), nil
}

// UseRDMACircuits makes a fabric whose planes are RDMA ports behind crossbars, and a controller of this process that
// moves them. It points the environment at the fabric. Rank r is at port r of every plane.
func UseRDMACircuits(t *testing.T, ranks, planes int, kind plans.CircuitKind) *Crossbars {
	t.Helper()
	n := verbstest.New(1)
	before := endpoints.UseVerbs(n)
	t.Cleanup(func() {
		endpoints.UseVerbs(before)
		assert.NoError(t, n.Close())
	})
	socket := filepath.Join(t.TempDir(), "ocsd.sock")
	f := &fabric.Fabric{
		Version: fabric.Version, Name: "rdma", Ranks: ranks, Circuits: kind,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Endpoint: "unix:" + socket,
			Reconfig: time.Millisecond}},
		Controller: fabric.Controller{Endpoints: []string{"unix:" + socket}},
	}
	var config controller.Config
	var hcas []string
	dev := &Crossbars{Network: n, target: make([]circuit.Permutation, planes)}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: 1e9, OCS: "ocs0",
			HCA: fmt.Sprintf("p%dr0", p)})
		config.Planes = append(config.Planes, controller.PlaneConfig{Name: f.Planes[p].Name, BandwidthBitsPerSec: 1e9,
			Reconfig: time.Millisecond})
		var ports []rdma.Device
		for r := range ranks {
			ports = append(ports, n.Add(fmt.Sprintf("p%dr%d", p, r)))
			hcas = append(hcas, fmt.Sprintf("p%dr%d:1:%d:%d", p, r, r, p))
		}
		dev.Planes = append(dev.Planes, n.Cross(ports...))
	}
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	require.NoError(t, os.WriteFile(path, f.Encode(), 0o600))
	config.Name, config.Ports, config.Device = f.Name, ranks, dev
	core, err := controller.Start(config)
	require.NoError(t, err)
	t.Cleanup(core.Close)
	server, err := local.Serve(core, local.Options{Socket: socket, DataPlane: ocsctl.DataNone, Version: shim.Version})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "60s")
	t.Setenv("NCCL_IB_HCA", "="+strings.Join(hcas, ","))
	return dev
}

// UseRDMA gives communicators planes of RDMA devices in memory: mem0, mem1 and so on.
func UseRDMA(t *testing.T, devices, planes int) (*verbstest.Network, []rdma.Device) {
	t.Helper()
	n := verbstest.New(1)
	var made []rdma.Device
	for i := range devices {
		made = append(made, n.Add(fmt.Sprintf("mem%d", i)))
	}
	before := endpoints.UseVerbs(n)
	t.Cleanup(func() {
		endpoints.UseVerbs(before)
		assert.NoError(t, n.Close())
	})
	t.Setenv("LIGHTPATH_TRANSPORT", "rdma")
	t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(planes))
	t.Setenv("LIGHTPATH_TIMEOUT", "60s")
	return n, made
}
