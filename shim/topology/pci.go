package topology

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Distance is how far apart two PCI functions are, in the terms of nvidia-smi and NCCL.
type Distance string

// Distances, the nearest first.
const (
	PIX  Distance = "PIX"  // at most one PCIe bridge or switch between them
	PXB  Distance = "PXB"  // several bridges, but no host bridge
	PHB  Distance = "PHB"  // through one PCIe host bridge, most often that of a CPU
	NODE Distance = "NODE" // through host bridges of one NUMA node
	SYS  Distance = "SYS"  // between NUMA nodes
	// Unplaced is the distance of functions that sysfs does not list.
	Unplaced Distance = "?"
)

var order = []Distance{PIX, PXB, PHB, NODE, SYS, Unplaced}

// nearer reports whether d is less than e.
func (d Distance) nearer(e Distance) bool { return slices.Index(order, d) < slices.Index(order, e) }

// far reports whether the path passes several host bridges, where peer-to-peer transfers are slow or refused.
func (d Distance) far() bool { return PHB.nearer(d) }

// function is a PCI function.
type function struct {
	root     string   // the host bridge: "pci0000:00"
	chain    []string // addresses from the root port down to the function
	node     int
	vendor   string
	class    string
	physical string // the physical function of a virtual one
	virtual  int    // how many virtual functions it has
}

// functions reads the PCI bus, by address.
func (s sysfs) functions() (map[string]function, error) {
	const dir = "bus/pci/devices"
	bus := map[string]function{}
	names, err := s.list(dir)
	for _, name := range names {
		target := s.link(dir, name)
		if !isPCI(name) || target == "" {
			continue
		}
		f := function{
			node:    s.integer(Unknown, target, "numa_node"),
			vendor:  s.text(target, "vendor"),
			class:   s.text(target, "class"),
			virtual: s.integer(0, target, "sriov_numvfs"),
		}
		if physical := s.link(target, "physfn"); physical != "" {
			f.physical = path.Base(physical)
		}
		for elem := range strings.SplitSeq(target, "/") {
			switch {
			case isPCI(elem):
				f.chain = append(f.chain, elem)
			case f.root == "" && strings.HasPrefix(elem, "pci"):
				f.root = elem
			}
		}
		bus[name] = f
	}
	return bus, err
}

// distance compares the paths to two functions. A switch appears as two bridges: its upstream port, and a downstream
// port for each device. So the paths to functions behind one switch differ only below the upstream port, in at most one
// bridge each.
func distance(a, b function, nodes int) Distance {
	if len(a.chain) == 0 || len(b.chain) == 0 {
		return Unplaced
	}
	if a.root != b.root {
		if a.node == b.node && (a.node != Unknown || nodes <= 1) {
			return NODE
		}
		return SYS
	}
	shared := 0
	for shared < len(a.chain)-1 && shared < len(b.chain)-1 && a.chain[shared] == b.chain[shared] {
		shared++
	}
	switch {
	case shared == 0 && slot(a.chain[0]) == slot(b.chain[0]) && len(a.chain) == 1 && len(b.chain) == 1:
		return PIX // functions of one device
	case shared == 0:
		return PHB
	case len(a.chain)-shared <= 2 && len(b.chain)-shared <= 2:
		return PIX
	}
	return PXB
}

// slot returns an address without its function.
func slot(pci string) string { return pci[:strings.LastIndexByte(pci, '.')] }

// isPCI reports whether text is an address "DDDD:BB:DD.F", with a domain of four digits or more.
func isPCI(text string) bool {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[1]) != 2 || len(parts[2]) != 4 || parts[2][2] != '.' {
		return false
	}
	return strings.Trim(strings.ToLower(parts[0]+parts[1]+parts[2][:2]+parts[2][3:]), "0123456789abcdef") == ""
}

// normalPCI writes NVML's "00000000:0F:00.0" as sysfs does: "0000:0f:00.0".
func normalPCI(text string) string {
	var domain, bus, device, fn uint32
	if _, err := fmt.Sscanf(strings.ToLower(text), "%x:%x:%x.%x", &domain, &bus, &device, &fn); err != nil {
		return text
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, fn)
}

// Matrix holds the distances from GPUs to network devices.
type Matrix struct {
	GPUs []string     `json:"gpus"` // addresses, in the order of the machine's GPUs
	NICs []Adapter    `json:"nics"`
	Rows [][]Distance `json:"rows"` // by GPU, then by adapter
}

// Adapter is a PCI function with network interfaces, RDMA devices or both. A virtual function is omitted if its
// physical function is visible, because both have the same distances.
type Adapter struct {
	PCI  string   `json:"pci"`
	NICs []string `json:"nics"`
	RDMA []string `json:"rdma"`
}

// Label names an adapter in a line of text.
func (a *Adapter) Label() string { return strings.Join(append(slices.Clone(a.RDMA), a.NICs...), " ") }

func matrix(m *Machine, bus map[string]function) Matrix {
	x := Matrix{GPUs: []string{}, NICs: adapters(m), Rows: [][]Distance{}}
	for _, g := range m.GPUs {
		row := make([]Distance, len(x.NICs))
		for i, a := range x.NICs {
			row[i] = distance(bus[g.PCI], bus[a.PCI], len(m.Nodes))
		}
		x.GPUs = append(x.GPUs, g.PCI)
		x.Rows = append(x.Rows, row)
	}
	return x
}

func adapters(m *Machine) []Adapter {
	list := []Adapter{}
	at := func(pci string) *Adapter {
		for i := range list {
			if list[i].PCI == pci {
				return &list[i]
			}
		}
		list = append(list, Adapter{PCI: pci, NICs: []string{}, RDMA: []string{}})
		return &list[len(list)-1]
	}
	for _, n := range m.NICs {
		if n.PCI != "" && n.PhysicalFunction == "" {
			a := at(n.PCI)
			a.NICs = append(a.NICs, n.Name)
		}
	}
	for _, d := range m.RDMA {
		if d.PCI != "" && !d.virtualFunction {
			a := at(d.PCI)
			a.RDMA = append(a.RDMA, d.Name)
		}
	}
	slices.SortFunc(list, func(a, b Adapter) int { return strings.Compare(a.PCI, b.PCI) })
	return list
}
