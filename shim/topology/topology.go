package topology

import (
	"context"
	"fmt"
	"io/fs"

	"lightpath/plans/fabric"
)

// Version is the version of the JSON form of a [Machine]. Fields are added without a new one.
const Version = 1

// Unknown stands for a NUMA node, an index or a part of an [HCA] that is not known.
const Unknown = -1

// Machine is the hardware of a machine. Lists are sorted and never nil, so that two runs on one machine print the same.
type Machine struct {
	Version   int       `json:"version"`
	Nodes     []Node    `json:"numa_nodes"`
	NICs      []NIC     `json:"nics"`
	RDMA      []RDMA    `json:"rdma"`
	GPUs      []GPU     `json:"gpus"`
	Driver    string    `json:"gpu_driver,omitempty"`
	Distances Matrix    `json:"distances"`
	Planes    []Plane   `json:"planes"`
	Problems  []Problem `json:"problems"`
}

// Problem is a part of the machine that could not be read. The other parts are complete.
type Problem struct {
	Part   string `json:"part"` // the JSON name of the part
	Detail string `json:"detail"`
}

// Node is a NUMA node.
type Node struct {
	ID          int    `json:"id"`
	CPUs        string `json:"cpus"` // the kernel's list form: "0-3,8-11"
	MemoryBytes uint64 `json:"memory_bytes"`
}

// NIC is a network interface other than loopback.
type NIC struct {
	Name      string `json:"name"`
	Driver    string `json:"driver,omitempty"`
	PCI       string `json:"pci,omitempty"` // address of the function; "" for a virtual interface
	NUMANode  int    `json:"numa_node"`     // or Unknown
	SpeedMbps int    `json:"speed_mbps"`    // 0 if the driver does not report it, for example while the link is down
	MTU       int    `json:"mtu"`
	State     string `json:"state"` // the kernel's operstate: up, down, unknown, ...
	RDMA      string `json:"rdma,omitempty"`
	// PhysicalFunction is the address of the function that an SR-IOV virtual function is part of.
	PhysicalFunction string `json:"physical_function,omitempty"`
	VirtualFunctions int    `json:"virtual_functions,omitempty"`
}

// RDMA is an RDMA device.
type RDMA struct {
	Name        string   `json:"name"`
	PCI         string   `json:"pci,omitempty"` // "" for a software device
	NUMANode    int      `json:"numa_node"`
	Firmware    string   `json:"firmware,omitempty"`
	CharDevices []string `json:"char_devices"`
	Ports       []Port   `json:"ports"`

	virtualFunction bool
}

// Port is a port of an RDMA device.
type Port struct {
	Number    int     `json:"port"`
	State     string  `json:"state"` // ACTIVE, DOWN, INIT, ...
	RateGbps  float64 `json:"rate_gbps"`
	LinkLayer string  `json:"link_layer"`
	Netdev    string  `json:"netdev,omitempty"`
	GIDs      []GID   `json:"gids"`
}

// GID is an entry of a port's table of addresses.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type,omitempty"` // "IB/RoCE v1", "RoCE v2"
	Netdev string `json:"netdev,omitempty"`
}

// GPU is an NVIDIA GPU. Without NVML, only the fields from sysfs are set.
type GPU struct {
	Index       int      `json:"index"` // NVML's, or Unknown
	PCI         string   `json:"pci"`
	NUMANode    int      `json:"numa_node"`
	Name        string   `json:"name,omitempty"`
	UUID        string   `json:"uuid,omitempty"`
	MemoryBytes uint64   `json:"memory_bytes,omitempty"`
	NVLinks     []NVLink `json:"nvlinks"` // by far end
}

// NVLink is the active links from a GPU to one remote end.
type NVLink struct {
	Kind  string `json:"kind"` // gpu, switch, cpu, other
	PCI   string `json:"pci"`
	Links int    `json:"links"`
}

// GPUReport is NVML's report, as lightpath-nvml prints it.
type GPUReport struct {
	Driver   string   `json:"driver,omitempty"`
	GPUs     []GPU    `json:"gpus"`
	Problems []string `json:"problems,omitempty"`
}

// Sources holds the sources of [Discover]. Functions may be nil; then their part stays empty.
type Sources struct {
	Sysfs fs.FS // the tree of /sys
	// CharDevices returns the character devices of an RDMA device.
	CharDevices func(device string) []string
	// RDMAOf returns the RDMA device of a network interface for which sysfs shows none.
	RDMAOf func(netdev string) (string, error)
	GPUs   func(context.Context) (GPUReport, error)
	Fabric *fabric.Fabric // the planes to find; may be nil
}

// Discover reads the hardware of the machine. It always returns a Machine; Problems lists the parts that it could not
// read.
func Discover(ctx context.Context, from Sources) *Machine {
	m := &Machine{Version: Version, Nodes: []Node{}, NICs: []NIC{}, RDMA: []RDMA{}, GPUs: []GPU{}, Planes: []Plane{},
		Problems: []Problem{}}
	s := sysfs{from.Sysfs}
	m.attempt("numa_nodes", func() (err error) { m.Nodes, err = s.nodes(); return })
	bus := map[string]function{}
	m.attempt("distances", func() (err error) { bus, err = s.functions(); return })
	m.attempt("nics", func() (err error) { m.NICs, err = s.nics(bus); return })
	m.attempt("rdma", func() (err error) { m.RDMA, err = s.rdma(bus); return })
	m.pair(from)
	m.gpus(ctx, s, bus, from.GPUs)
	m.Distances = matrix(m, bus)
	if from.Fabric != nil {
		m.Planes = match(m, bus, from.Fabric)
	}
	return m
}

// attempt records the error of one part.
func (m *Machine) attempt(part string, read func() error) {
	if err := read(); err != nil {
		m.Problems = append(m.Problems, Problem{part, err.Error()})
	}
}

// pair matches interfaces with RDMA devices, by the ports' tables or by the caller's source.
func (m *Machine) pair(from Sources) {
	byNetdev := map[string]string{}
	for i := range m.RDMA {
		d := &m.RDMA[i]
		if from.CharDevices != nil {
			d.CharDevices = append(d.CharDevices, from.CharDevices(d.Name)...)
		}
		for _, p := range d.Ports {
			if p.Netdev != "" {
				byNetdev[p.Netdev] = d.Name
			}
		}
	}
	if len(m.RDMA) == 0 {
		return
	}
	for i := range m.NICs {
		n := &m.NICs[i]
		n.RDMA = byNetdev[n.Name]
		if n.RDMA != "" || n.PCI == "" || from.RDMAOf == nil {
			continue
		}
		// The error means that the interface has no such device, as most have none.
		if device, err := from.RDMAOf(n.Name); err == nil {
			n.RDMA = device
		}
	}
}

// gpus lists the GPUs on the bus, and adds facts from NVML.
func (m *Machine) gpus(ctx context.Context, s sysfs, bus map[string]function,
	ask func(context.Context) (GPUReport, error)) {
	m.GPUs = s.gpus(bus)
	if ask == nil {
		return
	}
	report, err := ask(ctx)
	if err != nil {
		m.Problems = append(m.Problems, Problem{"gpus", err.Error()})
		return
	}
	m.Driver = report.Driver
	for _, p := range report.Problems {
		m.Problems = append(m.Problems, Problem{"gpus", p})
	}
	at := map[string]int{}
	for i, g := range m.GPUs {
		at[g.PCI] = i
	}
	for _, g := range report.GPUs {
		g.PCI = normalPCI(g.PCI)
		g.NUMANode = Unknown
		if g.NVLinks == nil {
			g.NVLinks = []NVLink{}
		}
		if f, ok := bus[g.PCI]; ok {
			g.NUMANode = f.node
		}
		if i, ok := at[g.PCI]; ok {
			m.GPUs[i] = g
		} else {
			m.GPUs = append(m.GPUs, g)
		}
	}
	sortGPUs(m.GPUs)
}

// nic returns the interface called name, or nil.
func (m *Machine) nic(name string) *NIC {
	for i := range m.NICs {
		if m.NICs[i].Name == name {
			return &m.NICs[i]
		}
	}
	return nil
}

// device returns the RDMA device called name, or nil.
func (m *Machine) device(name string) *RDMA {
	for i := range m.RDMA {
		if m.RDMA[i].Name == name {
			return &m.RDMA[i]
		}
	}
	return nil
}

// Label names a GPU in a line of text.
func (g *GPU) Label() string {
	if g.Index == Unknown {
		return "GPU " + g.PCI
	}
	return fmt.Sprintf("GPU%d", g.Index)
}
