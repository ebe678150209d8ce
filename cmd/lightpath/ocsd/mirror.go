package ocsd

import (
	"fmt"
	"strings"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/kernel"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
)

// mirrored is the planes of a kernel fabric whose switch is a device model.
type mirrored struct {
	fabric *fabric.Fabric
	planes []int // of that switch
	ports  []driver.Ports
	board  *kernel.Board
}

// openMirrored becomes the writer of the planes of one switch of a fabric that is up. Without a name
// the fabric has but one switch.
func openMirrored(file, ocs string) (*mirrored, error) {
	f, err := cli.LoadFabric(file)
	if err != nil {
		return nil, err
	}
	if err := cli.NeedRoot(); err != nil {
		return nil, err
	}
	switch {
	case ocs == "" && len(f.OCS) == 1:
		ocs = f.OCS[0].Name
	case ocs == "":
		return nil, fmt.Errorf("--ocs is required: %s has %d switches", file, len(f.OCS))
	}
	m := &mirrored{fabric: f}
	for j, p := range f.Planes {
		if p.OCS != ocs {
			continue
		}
		ports, err := driver.ParsePorts(p.Ports)
		if err != nil {
			return nil, fmt.Errorf("plane %s: %w", p.Name, err)
		}
		m.planes, m.ports = append(m.planes, j), append(m.ports, ports)
	}
	if m.planes == nil {
		return nil, fmt.Errorf("--ocs %s: %s has no planes on such a switch", ocs, file)
	}
	s, err := kernel.LoadOn(f, "")
	if err != nil {
		return nil, cli.NoIf(err, kernel.Refused)
	}
	if m.board, err = kernel.Open(s, m.planes...); err != nil {
		return nil, cli.NoIf(err, kernel.Refused)
	}
	return m, nil
}

// cables finds the ports of the ranks on a model. Where the file gives none, which only an emulated
// switch allows, planes have theirs side by side.
func (m *mirrored) cables(d *device.Device) ([]kernel.Cable, error) {
	all := make([]kernel.Cable, len(m.fabric.Planes))
	for i, j := range m.planes {
		c := kernel.Cable{Model: d}
		if m.ports[i].In == nil {
			c = kernel.Straight(d, i*m.fabric.Ranks, m.fabric.Ranks)
		}
		for r, label := range m.ports[i].In {
			in := findPort(d, label, device.Ingress)
			out := in // a port is one of both sides, unless the file has two
			if m.ports[i].Out != nil {
				label = m.ports[i].Out[r]
				out = findPort(d, label, device.Egress)
			}
			if in < 0 || out < 0 {
				return nil, fmt.Errorf("plane %s: rank %d: the switch has no port %q: --ports %d, %s to %s and %s to %s",
					m.fabric.Planes[j].Name, r, label, d.Ports(),
					d.Label(0, device.Ingress), d.Label(d.Ports()-1, device.Ingress), d.Label(0, device.Egress),
					d.Label(d.Ports()-1, device.Egress))
			}
			c.In, c.Out = append(c.In, in), append(c.Out, out)
		}
		all[j] = c
	}
	return all, nil
}

// findPort returns the port of that name, or -1.
func findPort(d *device.Device, label string, side device.Side) int {
	for p := range d.Ports() {
		if d.Label(p, side) == label {
			return p
		}
	}
	return -1
}

// initial returns the first map of a model of that configuration. If circuits outlive the process, it is the kernel's
// map.
func (m *mirrored) initial(c device.Config) (circuit.Permutation, error) {
	d, err := device.New(c)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	cables, err := m.cables(d)
	if err != nil {
		return nil, err
	}
	p := circuit.AllDark(c.Ports)
	for _, j := range m.planes {
		have, err := m.board.Map(j)
		if err != nil {
			return nil, err
		}
		for r, to := range have {
			if to != circuit.Dark {
				p[cables[j].In[r]] = cables[j].Out[to]
			}
		}
	}
	return p, nil
}

// prepare completes the configuration of the model. Its ports have the names of the fabric file: 1A to 1B if the file
// uses such names.
func (m *mirrored) prepare(c *device.Config) error {
	if in := m.ports[0].In; in != nil && strings.HasSuffix(in[0], "A") {
		c.In, c.Out = device.Suffixed("A"), device.Suffixed("B")
	}
	if o := m.fabric.Switch(m.planes[0]); c.Preset == "" {
		c.Delays = &device.Delays{Min: o.Reconfig, Max: o.Reconfig, PerCircuit: o.ReconfigPerPort}
	}
	if c.ColdBoot == device.Remove {
		return nil
	}
	initial, err := m.initial(*c)
	c.Initial = initial
	return err
}

// follow has the kernel's circuits follow the model until the mirror is closed.
func (m *mirrored) follow(d *device.Device) (*kernel.Mirror, error) {
	cables, err := m.cables(d)
	if err != nil {
		return nil, err
	}
	return kernel.NewMirror(m.board, cables)
}
