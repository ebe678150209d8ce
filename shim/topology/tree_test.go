package topology

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

// tree is a sysfs of a test's making.
type tree struct{ fstest.MapFS }

func newTree(nodes int) tree {
	t := tree{fstest.MapFS{}}
	for n := range nodes {
		dir := fmt.Sprintf("devices/system/node/node%d", n)
		t.file(fmt.Sprintf("%d-%d\n", n*64, n*64+63), dir, "cpulist")
		t.file(fmt.Sprintf("Node %d MemTotal:       1048576 kB\nNode %d MemFree: 5 kB\n", n, n), dir, "meminfo")
	}
	t.file("0-1\n", "devices/system/node/possible")
	return t
}

func (t tree) file(text string, elem ...string) {
	t.MapFS[path.Join(elem...)] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
}

// link makes name point to target, both paths of the tree, as sysfs does: relatively.
func (t tree) link(name, target string) {
	up := strings.Repeat("../", strings.Count(name, "/"))
	t.MapFS[name] = &fstest.MapFile{Data: []byte(up + target), Mode: fs.ModeSymlink | 0o777}
}

// pci adds the function at the end of a way ("pci0000:00/0000:00:01.0") and returns its directory.
func (t tree) pci(way string, node int, vendor, class string) string {
	dir := "devices/" + way
	t.file(vendor+"\n", dir, "vendor")
	t.file(class+"\n", dir, "class")
	t.file(fmt.Sprintln(node), dir, "numa_node")
	t.link("bus/pci/devices/"+path.Base(way), dir)
	return dir
}

func (t tree) gpu(way string, node int) { t.pci(way, node, "0x10de", "0x030200") }

// nic adds an interface to the device in dir.
func (t tree) nic(dir, name, driver, state string, mbps int) {
	net := dir + "/net/" + name
	t.file(state+"\n", net, "operstate")
	t.file(fmt.Sprintln(mbps), net, "speed")
	t.file("1500\n", net, "mtu")
	if driver != "" {
		t.link(dir+"/driver", "bus/pci/drivers/"+driver)
	}
	t.link("class/net/"+name, net)
}

// hca adds an RDMA device with one port to the device in dir.
func (t tree) hca(dir, name, netdev, state, rate string) {
	device := dir + "/infiniband/" + name
	port := device + "/ports/1"
	t.file("22.31\n", device, "fw_ver")
	t.file(state+"\n", port, "state")
	t.file(rate+"\n", port, "rate")
	t.file("Ethernet\n", port, "link_layer")
	for i, gid := range []string{"fe80:0000:0000:0000:0000:0000:0000:0001", "fe80:0000:0000:0000:0000:0000:0000:0000",
		"0000:0000:0000:0000:0000:0000:0000:0000"} {
		t.file(gid+"\n", port, "gids", fmt.Sprint(i))
	}
	if netdev != "" {
		t.file("RoCE v2\n", port, "gid_attrs/types/0")
		t.file(netdev+"\n", port, "gid_attrs/ndevs/0")
	}
	t.link("class/infiniband/"+name, device)
}

// dgx is a machine of two NUMA nodes with two host bridges each. Below a host bridge a switch
// joins two more, and each of those joins a GPU and a NIC: GPU g is nearest to NIC g.
func dgx() tree {
	t := newTree(2)
	for bridge := range 4 {
		root := fmt.Sprintf("pci0000:%x0/0000:%x0:01.0/0000:%x1:00.0", bridge, bridge, bridge)
		for half := range 2 {
			i := 2*bridge + half
			inner := fmt.Sprintf("%s/0000:%x2:%02x.0/0000:%x%x:00.0", root, bridge, half, bridge, 3+half*4)
			t.gpu(fmt.Sprintf("%s/0000:%x%x:00.0/0000:%x%x:00.0", inner, bridge, 4+half*4, bridge, 5+half*4), bridge/2)
			dir := t.pci(fmt.Sprintf("%s/0000:%x%x:01.0/0000:%x%x:00.0", inner, bridge, 4+half*4, bridge, 6+half*4), bridge/2,
				"0x15b3", "0x020000")
			t.nic(dir, fmt.Sprintf("eth%d", i), "mlx5_core", "up", 200000)
			t.hca(dir, fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("eth%d", i), "4: ACTIVE", "200 Gb/sec (4X HDR)")
		}
	}
	t.link("class/net/lo", "devices/virtual/net/lo")
	t.file("bond0\n", "class/net/bonding_masters")
	return t
}

// vm is a machine with one virtio interface and a passed-through GPU on its only bus, and no
// knowledge of NUMA nodes on the bus.
func vm() tree {
	t := newTree(1)
	dir := t.pci("pci0000:00/0000:00:03.0", -1, "0x1af4", "0x020000")
	t.nic(dir+"/virtio2", "eth0", "virtio_net", "up", -1)
	t.gpu("pci0000:00/0000:00:05.0", -1)
	t.nic("devices/virtual", "veth0", "", "up", 10000)
	t.hca("devices/virtual", "rxe0", "eth0", "4: ACTIVE", "2.5 Gb/sec (1X SDR)")
	return t
}

// sriov is a machine whose adapter has two virtual functions, one with an interface of its own.
func sriov() tree {
	t := newTree(2)
	const port = "pci0000:3a/0000:3a:00.0/"
	dir := t.pci(port+"0000:3b:00.0", 1, "0x8086", "0x020000")
	t.file("2\n", dir, "sriov_numvfs")
	t.nic(dir, "ens1", "ice", "up", 100000)
	for i := 1; i <= 2; i++ {
		vf := t.pci(fmt.Sprintf("%s0000:3b:01.%d", port, i), 1, "0x8086", "0x020000")
		t.link(vf+"/physfn", dir)
		if i == 1 {
			t.nic(vf, "ens1v0", "iavf", "down", -1)
		}
	}
	t.gpu("pci0000:00/0000:00:02.0/0000:01:00.0", 0)
	return t
}
