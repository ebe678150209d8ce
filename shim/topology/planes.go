package topology

import (
	"fmt"
	"math"

	"lightpath/plans/fabric"
)

// Plane is a plane of a fabric file, with this machine's hardware for it.
type Plane struct {
	Index     int      `json:"index"`
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"` // from the file, or that of the HCA's port
	HCA       string   `json:"hca,omitempty"`       // from the file, or "device:port" of the interface
	PCI       string   `json:"pci,omitempty"`
	NUMANode  int      `json:"numa_node"`
	GPU       string   `json:"nearest_gpu,omitempty"` // address
	Distance  Distance `json:"distance,omitempty"`    // from that GPU
	Warnings  []string `json:"warnings"`
}

// match finds the interface or the HCA of each plane. A plane that names neither is emulated and needs no hardware.
func match(m *Machine, bus map[string]function, f *fabric.Fabric) []Plane {
	planes := make([]Plane, len(f.Planes))
	for i := range f.Planes {
		p := &planes[i]
		*p = Plane{Index: i, Name: f.Planes[i].Name, Interface: f.Planes[i].Interface, HCA: f.Planes[i].HCA,
			NUMANode: Unknown, Warnings: []string{}}
		gbps := float64(f.Planes[i].Bandwidth) / 1e9
		switch {
		case p.HCA != "":
			p.matchHCA(m, gbps)
		case p.Interface != "":
			p.matchInterface(m, gbps)
		default:
			continue
		}
		p.nearest(m, bus)
	}
	shared(planes)
	return planes
}

func (p *Plane) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

func (p *Plane) matchInterface(m *Machine, gbps float64) {
	n := m.nic(p.Interface)
	if n == nil {
		p.warn("no interface %s in the network namespace of /sys (for that of a rank: ip netns exec)", p.Interface)
		return
	}
	p.PCI, p.NUMANode = n.PCI, n.NUMANode
	if d := m.device(n.RDMA); d != nil {
		p.HCA = d.Name
		for _, port := range d.Ports {
			if port.Netdev == n.Name {
				p.HCA = HCA{d.Name, port.Number, Unknown, Unknown}.String()
			}
		}
	}
	if n.State != "up" && n.State != "unknown" {
		p.warn("interface %s is %s", n.Name, n.State)
	}
	p.tooSlow("interface "+n.Name, float64(n.SpeedMbps)/1e3, gbps)
}

func (p *Plane) matchHCA(m *Machine, gbps float64) {
	h, err := ParseHCA(p.HCA)
	if err != nil {
		p.warn("%v", err)
		return
	}
	if h.Plane != Unknown && h.Plane != p.Index {
		p.warn("hca %s is of plane %d by its name, and of plane %d by its place in the file", p.HCA, h.Plane, p.Index)
	}
	d := m.device(h.Device)
	if d == nil {
		p.warn("no RDMA device %s", h.Device)
		return
	}
	p.PCI, p.NUMANode = d.PCI, d.NUMANode
	port := d.port(h.Port)
	if port == nil {
		p.warn("RDMA device %s has no port %d", d.Name, max(h.Port, 1))
		return
	}
	p.Interface = port.Netdev
	if port.State != "ACTIVE" {
		p.warn("port %d of %s is %s", port.Number, d.Name, port.State)
	}
	p.tooSlow(fmt.Sprintf("port %d of %s", port.Number, d.Name), port.RateGbps, gbps)
}

// port returns the port with a number. For Unknown it returns the first active port, or else the first port.
func (d *RDMA) port(number int) *Port {
	for i := range d.Ports {
		if d.Ports[i].Number == number || number == Unknown && d.Ports[i].State == "ACTIVE" {
			return &d.Ports[i]
		}
	}
	if number == Unknown && len(d.Ports) > 0 {
		return &d.Ports[0]
	}
	return nil
}

// tooSlow warns of a link below the plane's rate. A deviation of a thousandth is allowed, because ports round their
// rates. The rate of a virtual interface or a software device is only nominal.
func (p *Plane) tooSlow(what string, has, wants float64) {
	if p.PCI != "" && has > 0 && has < wants*(1-1e-3) {
		p.warn("%s runs at %g Gb/s, below the plane's %g Gb/s", what, has, math.Round(wants*1e3)/1e3)
	}
}

// nearest finds the GPU nearest to the plane.
func (p *Plane) nearest(m *Machine, bus map[string]function) {
	if p.PCI == "" || len(m.GPUs) == 0 {
		return
	}
	p.Distance = Unplaced
	for _, g := range m.GPUs {
		if d := distance(bus[g.PCI], bus[p.PCI], len(m.Nodes)); d.nearer(p.Distance) {
			p.GPU, p.Distance = g.PCI, d
		}
	}
	if p.Distance.far() {
		p.warn("far from every GPU (%s)", p.Distance)
	}
}

// shared warns of planes on one port, whose rates do not add up.
func shared(planes []Plane) {
	first := map[[2]string]int{}
	for i := range planes {
		p := &planes[i]
		if p.PCI == "" {
			continue
		}
		key := [2]string{p.PCI, p.Interface}
		if j, taken := first[key]; taken {
			p.warn("shares its port with plane %s", planes[j].Name)
		} else {
			first[key] = i
		}
	}
}
