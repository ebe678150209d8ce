package topology

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"lightpath/plans/fabric"
)

func discover(t *testing.T, from Sources) *Machine {
	t.Helper()
	m := Discover(t.Context(), from)
	for _, p := range m.Problems {
		t.Errorf("not read: %s: %s", p.Part, p.Detail)
	}
	return m
}

func TestDGX(t *testing.T) {
	m := discover(t, Sources{
		Sysfs:       dgx(),
		CharDevices: func(d string) []string { return []string{"/dev/infiniband/" + d} },
		RDMAOf:      func(n string) (string, error) { t.Errorf("sysfs pairs %s", n); return "", nil },
	})
	if len(m.Nodes) != 2 || m.Nodes[1] != (Node{1, "64-127", 1 << 30}) {
		t.Errorf("nodes %+v", m.Nodes)
	}
	if len(m.NICs) != 8 || len(m.RDMA) != 8 || len(m.GPUs) != 8 {
		t.Fatalf("%d NICs, %d RDMA devices, %d GPUs", len(m.NICs), len(m.RDMA), len(m.GPUs))
	}
	want := NIC{Name: "eth5", Driver: "mlx5_core", PCI: "0000:2a:00.0", NUMANode: 1, SpeedMbps: 200000, MTU: 1500,
		State: "up", RDMA: "mlx5_5"}
	if m.NICs[5] != want {
		t.Errorf("NIC %+v, want %+v", m.NICs[5], want)
	}
	d := RDMA{Name: "mlx5_5", PCI: "0000:2a:00.0", NUMANode: 1, Firmware: "22.31",
		CharDevices: []string{"/dev/infiniband/mlx5_5"},
		Ports: []Port{{1, "ACTIVE", 200, "Ethernet", "eth5",
			[]GID{{0, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth5"}}}}}
	if !reflect.DeepEqual(m.RDMA[5], d) {
		t.Errorf("RDMA %+v, want %+v", m.RDMA[5], d)
	}
	// GPU g and NIC n by what holds them: a switch, a host bridge, a node.
	for g, row := range m.Distances.Rows {
		for n, got := range row {
			want := SYS
			switch {
			case g == n:
				want = PIX
			case g/2 == n/2:
				want = PXB
			case g/4 == n/4:
				want = NODE
			}
			if got != want {
				t.Errorf("GPU %d to NIC %d: %s, want %s", g, n, got, want)
			}
		}
	}
}

func TestVM(t *testing.T) {
	m := discover(t, Sources{Sysfs: vm()})
	if n := m.NICs[0]; n.PCI != "0000:00:03.0" || n.Driver != "virtio_net" || n.SpeedMbps != 0 || n.NUMANode != Unknown ||
		n.RDMA != "rxe0" {
		t.Errorf("NIC %+v", n)
	}
	if n := m.NICs[1]; n.PCI != "" || n.Driver != "" || n.SpeedMbps != 10000 {
		t.Errorf("virtual NIC %+v", n)
	}
	if len(m.Distances.NICs) != 1 || m.Distances.Rows[0][0] != PHB {
		t.Errorf("distances %+v", m.Distances)
	}
}

func TestSRIOV(t *testing.T) {
	m := discover(t, Sources{Sysfs: sriov()})
	if n := m.NICs[0]; n.VirtualFunctions != 2 || n.PhysicalFunction != "" {
		t.Errorf("physical function %+v", n)
	}
	if n := m.NICs[1]; n.PhysicalFunction != "0000:3b:00.0" || n.State != "down" || n.Driver != "iavf" {
		t.Errorf("virtual function %+v", n)
	}
	if x := m.Distances; len(x.NICs) != 1 || x.NICs[0].PCI != "0000:3b:00.0" || x.Rows[0][0] != SYS {
		t.Errorf("distances %+v", x)
	}
}

// TestNVML: what NVML says joins what the bus says, and its own order counts.
func TestNVML(t *testing.T) {
	m := discover(t, Sources{Sysfs: dgx(), GPUs: func(context.Context) (GPUReport, error) {
		return GPUReport{Driver: "550", GPUs: []GPU{
			{Index: 1, PCI: "00000000:05:00.0", Name: "A100"}, {Index: 0, PCI: "0000:29:00.0", Name: "A100"},
			{Index: 2, PCI: "0001:01:00.0"},
		}}, nil
	}})
	if len(m.GPUs) != 9 || m.Driver != "550" {
		t.Fatalf("%d GPUs, driver %q", len(m.GPUs), m.Driver)
	}
	last := m.GPUs[6:]
	for i, pci := range []string{"0000:29:00.0", "0000:05:00.0", "0001:01:00.0"} {
		if g := last[i]; g.Index != i || g.PCI != pci || g.NVLinks == nil || g.NUMANode != []int{1, 0, Unknown}[i] {
			t.Errorf("GPU %d is %+v", i, g)
		}
	}
	if d := m.Distances.Rows[8][0]; d != Unplaced {
		t.Errorf("a GPU off the bus is %s away", d)
	}
}

// broken refuses to read what lies below a directory.
type broken struct {
	tree
	dir string
}

func (b broken) ReadDir(name string) ([]fs.DirEntry, error) {
	if strings.HasPrefix(name, b.dir) {
		return nil, fs.ErrPermission
	}
	return b.tree.ReadDir(name)
}

// TestPartly: a part that cannot be read is named, and the others are there.
func TestPartly(t *testing.T) {
	for dir, part := range map[string]string{
		"devices/system/node": "numa_nodes", "bus/pci/devices": "distances", "class/net": "nics", "class/infiniband": "rdma",
	} {
		m := Discover(t.Context(), Sources{Sysfs: broken{dgx(), dir}})
		if len(m.Problems) != 1 || m.Problems[0].Part != part || !strings.Contains(m.Problems[0].Detail, "permission") {
			t.Errorf("%s: problems %v", dir, m.Problems)
		}
		for name, n := range map[string]int{"numa_nodes": len(m.Nodes), "nics": len(m.NICs), "rdma": len(m.RDMA)} {
			if (n == 0) != (name == part) {
				t.Errorf("%s: %d %s", dir, n, name)
			}
		}
	}
	m := Discover(t.Context(), Sources{Sysfs: dgx(), GPUs: func(context.Context) (GPUReport, error) {
		return GPUReport{}, errors.New("no driver")
	}})
	if len(m.GPUs) != 8 || len(m.Problems) != 1 || m.Problems[0] != (Problem{"gpus", "no driver"}) {
		t.Errorf("%d GPUs, problems %v", len(m.GPUs), m.Problems)
	}
}

// TestNothing: no list of the JSON form is null.
func TestNothing(t *testing.T) {
	text, err := json.Marshal(Discover(t.Context(), Sources{Sysfs: tree{}}))
	if err != nil || strings.Contains(string(text), "null") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestPlanes(t *testing.T) {
	down := dgx()
	for name := range down.MapFS {
		if strings.HasSuffix(name, "/eth1/operstate") {
			down.file("down\n", name)
		}
		if strings.HasSuffix(name, "/mlx5_1/ports/1/state") {
			down.file("1: DOWN\n", name)
		}
	}
	for _, c := range []struct {
		where  fs.FS
		planes string // of the file
		want   Plane  // the last one
	}{
		{dgx(), `{name: a, bandwidth: 200Gbps, interface: eth3}`,
			Plane{Interface: "eth3", HCA: "mlx5_3:1", PCI: "0000:1a:00.0", GPU: "0000:19:00.0", Distance: PIX}},
		{dgx(), `{name: a, bandwidth: 200Gbps, hca: "mlx5_4:1:0:0"}`,
			Plane{Interface: "eth4", HCA: "mlx5_4:1:0:0", PCI: "0000:26:00.0", NUMANode: 1, GPU: "0000:25:00.0", Distance: PIX}},
		{dgx(), `{name: a, bandwidth: 200Gbps}`, Plane{NUMANode: Unknown}},
		{vm(), `{name: a, bandwidth: 400Gbps, interface: veth0}`, Plane{Interface: "veth0", NUMANode: Unknown}},
		{vm(), `{name: a, bandwidth: 400Gbps, hca: rxe0}`, Plane{Interface: "eth0", HCA: "rxe0", NUMANode: Unknown}},
		{dgx(), `{name: a, bandwidth: 10Gbps, interface: p0}`,
			Plane{Interface: "p0", NUMANode: Unknown, Warnings: []string{"no interface p0 in the network namespace of /sys (for that of a rank: ip netns exec)"}}},
		{dgx(), `{name: a, bandwidth: 10Gbps, hca: mlx4_0}`,
			Plane{HCA: "mlx4_0", NUMANode: Unknown, Warnings: []string{"no RDMA device mlx4_0"}}},
		{dgx(), `{name: a, bandwidth: 10Gbps, hca: "mlx5_0:x"}`,
			Plane{HCA: "mlx5_0:x", NUMANode: Unknown,
				Warnings: []string{`bad hca: "mlx5_0:x": port: "x" is no number from 1 to 255`}}},
		{down, `{name: a, bandwidth: 400Gbps, interface: eth1}`,
			Plane{Interface: "eth1", HCA: "mlx5_1:1", PCI: "0000:0a:00.0", GPU: "0000:09:00.0", Distance: PIX,
				Warnings: []string{"interface eth1 is down", "interface eth1 runs at 200 Gb/s, below the plane's 400 Gb/s"}}},
		{down, `{name: a, bandwidth: 400Gbps, hca: "mlx5_1:1:0:3"}`,
			Plane{Interface: "eth1", HCA: "mlx5_1:1:0:3", PCI: "0000:0a:00.0", GPU: "0000:09:00.0", Distance: PIX,
				Warnings: []string{"hca mlx5_1:1:0:3 is of plane 3 by its name, and of plane 0 by its place in the file",
					"port 1 of mlx5_1 is DOWN", "port 1 of mlx5_1 runs at 200 Gb/s, below the plane's 400 Gb/s"}}},
		{dgx(), `{name: a, bandwidth: 1Gbps, hca: "mlx5_0:2"}`,
			Plane{HCA: "mlx5_0:2", PCI: "0000:06:00.0", GPU: "0000:05:00.0", Distance: PIX,
				Warnings: []string{"RDMA device mlx5_0 has no port 2"}}},
		{sriov(), `{name: a, bandwidth: 1Gbps, interface: ens1}`,
			Plane{Interface: "ens1", PCI: "0000:3b:00.0", NUMANode: 1, GPU: "0000:01:00.0", Distance: SYS,
				Warnings: []string{"far from every GPU (SYS)"}}},
		{dgx(), "{name: a, bandwidth: 1Gbps, interface: eth0}\n  - {name: b, bandwidth: 1Gbps, hca: mlx5_0}",
			Plane{Index: 1, Interface: "eth0", HCA: "mlx5_0", PCI: "0000:06:00.0", GPU: "0000:05:00.0", Distance: PIX,
				Warnings: []string{"shares its port with plane a"}}},
	} {
		f, err := fabric.Decode([]byte("version: 1\nranks: 2\nplanes:\n  - " + c.planes + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", c.planes, err)
		}
		m := discover(t, Sources{Sysfs: c.where, Fabric: f})
		got := m.Planes[len(m.Planes)-1]
		c.want.Name = got.Name
		if c.want.Warnings == nil {
			c.want.Warnings = []string{}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.planes, got, c.want)
		}
	}
}
