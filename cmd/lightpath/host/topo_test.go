package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/cmd/lightpath/cli"
	"lightpath/cmd/lightpath/cli/clitest"
	"lightpath/internal/require"
	"lightpath/shim/topology"
)

// large is a machine of 16 GPUs and 16 adapters with long names, one virtual interface and a
// plane that is not there.
func large() *topology.Machine {
	m := &topology.Machine{
		Nodes: []topology.Node{{ID: 0, CPUs: "0-55,112-167", MemoryBytes: 1 << 40},
			{ID: 1, CPUs: "56-111,168-223", MemoryBytes: 1 << 40}},
		NICs: []topology.NIC{{Name: "veth12345678", NUMANode: topology.Unknown, State: "up"}},
		Planes: []topology.Plane{
			{Name: "p0", Interface: "enp10s0f0np0", HCA: "mlx5_bond_0:1", PCI: "0000:00:00.0", GPU: "0000:00:01.0",
				Distance: topology.PIX},
			{Name: "p1", Interface: "missing", NUMANode: topology.Unknown, Warnings: []string{"no interface missing"}},
		},
		Problems: []topology.Problem{{Part: "gpus", Detail: "libnvidia-ml.so.1 is not installed"}},
	}
	for i := range 16 {
		nic, gpu := fmt.Sprintf("0000:%02x:00.0", i), fmt.Sprintf("0000:%02x:01.0", i)
		name, hca := fmt.Sprintf("enp%ds0f0np0", 10+i), fmt.Sprintf("mlx5_bond_%d", i)
		m.NICs = append(m.NICs, topology.NIC{Name: name, Driver: "mlx5_core", PCI: nic, State: "up", SpeedMbps: 400000,
			RDMA: hca, VirtualFunctions: 127})
		m.RDMA = append(m.RDMA, topology.RDMA{Name: hca, PCI: nic, CharDevices: []string{"/dev/infiniband/rdma_cm",
			fmt.Sprintf("/dev/infiniband/uverbs%d", i)},
			Ports: []topology.Port{{Number: 1, State: "ACTIVE", RateGbps: 400, LinkLayer: "Ethernet", Netdev: name,
				GIDs: make([]topology.GID, 4)}}})
		m.GPUs = append(m.GPUs, topology.GPU{Index: i, PCI: gpu, Name: "NVIDIA H200 141GB HBM3e", MemoryBytes: 141 << 30,
			NVLinks: []topology.NVLink{{Kind: "switch", PCI: "0000:c4:00.0", Links: 9},
				{Kind: "switch", PCI: "0000:c5:00.0", Links: 9}}})
		m.Distances.GPUs = append(m.Distances.GPUs, gpu)
		m.Distances.NICs = append(m.Distances.NICs, topology.Adapter{PCI: nic, NICs: []string{name}, RDMA: []string{hca}})
		row := make([]topology.Distance, 16)
		for j := range row {
			if row[j] = topology.NODE; i == j {
				row[j] = topology.PIX
			}
		}
		m.Distances.Rows = append(m.Distances.Rows, row)
	}
	return m
}

func TestTopologyTables(t *testing.T) {
	var out strings.Builder
	require.NoError(t, printTopology(&out, large()))
	lines := strings.Split(out.String(), "\n")
	has := func(want string) {
		t.Helper()
		for _, line := range lines {
			if strings.Join(strings.Fields(line), " ") == want {
				return
			}
		}
		t.Errorf("no line %q in\n%s", want, out.String())
	}
	for _, line := range lines {
		if len(line) > 120 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	has("1 1024.0 GiB 56-111,168-223")
	has("enp11s0f0np0 up 400 Gb/s mlx5_core 0000:01:00.0 0 mlx5_bond_1 127 functions")
	has("virtual interfaces not shown: 1 (--json has them)")
	has("mlx5_bond_3:1 ACTIVE 400 Gb/s Ethernet enp13s0f0np0 4 0000:03:00.0 0 /dev/infiniband/uverbs3")
	has("GPU2 NVIDIA H200 141GB HBM3e 141.0 GiB 0000:02:01.0 0 9x switch c4:00.0, 9x switch c5:00.0")
	has("GPU15 NODE PIX")
	has("NIC15: mlx5_bond_15 enp25s0f0np0 (0000:0f:00.0)")
	has("p0 enp10s0f0np0 mlx5_bond_0:1 0000:00:00.0 0 GPU0 PIX ok")
	has("p1 missing - - - - - see below")
	has("plane p1: no interface missing")
	has("not read: gpus: libnvidia-ml.so.1 is not installed")
}

// TestTopo runs the command on this machine, whatever that has.
func TestTopo(t *testing.T) {
	path := clitest.Write(t, "fabric.yaml", "version: 1\nranks: 2\nplanes:\n  - {name: a, bandwidth: 1Gbps, interface: "+
		"lp-absent0}\n")
	var m topology.Machine
	require.NoError(t, json.Unmarshal([]byte(lightpath.Succeed(t, "", "topo", "--json", "--fabric", path)), &m))
	if m.Version != topology.Version || len(m.Planes) != 1 || len(m.Planes[0].Warnings) != 1 {
		t.Errorf("%+v", m)
	}
	if text := lightpath.Succeed(t, "", "topo", "--fabric", path); !strings.Contains(text,
		"plane a: no interface lp-absent0") {
		t.Error(text)
	}
	if o := lightpath.Run(t, "", "topo", "--fabric", path+".absent"); o.Status != cli.ExitUsage ||
		!strings.Contains(o.Stderr, "--fabric: ") {
		t.Errorf("%+v", o)
	}
}

// TestNVMLHelper: whatever the helper does, one line says what it was.
func TestNVMLHelper(t *testing.T) {
	t.Setenv("LD_BIND_NOW", "1")
	for script, want := range map[string]string{
		`echo '{"driver": "550", "gpus": [{"index": 0, "pci": "0000:01:00.0"}]}'`: "",
		`test -z "${LD_BIND_NOW+set}" && echo '{"driver": "550", "gpus": [{}]}'`:  "",
		"echo lightpath-nvml: libnvidia-ml.so.1 is not installed >&2; exit 1":     "libnvidia-ml.so.1 is not installed",
		"echo 'symbol lookup error' >&2; echo more >&2; exit 127":                 "symbol lookup error",
		"exit 3":     "exit status 3",
		"echo GPU-0": "invalid character",
		"kill -9 $$": "signal: killed",
	} {
		path := filepath.Join(t.TempDir(), "helper")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		report, err := runNVML(t.Context(), path)
		switch {
		case want == "" && (err != nil || report.Driver != "550" || len(report.GPUs) != 1):
			t.Errorf("%s: %+v, %v", script, report, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}
