package fabric

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lightpath/plans"
)

// consistent checks the rules that concern several fields, in the order of the file format.
func (d *decoder) consistent() error {
	for _, check := range []func() error{d.required, d.ranks, d.switches, d.planes, d.circuits, d.pods} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// need reports the first of the fields that is missing from the object at path.
func (d *decoder) need(path string, fields ...string) error {
	for _, field := range fields {
		full := value{path: path}.join(field)
		if _, ok := d.at[full]; !ok {
			return d.errorf(full, path, "%w", errMissing)
		}
	}
	return nil
}

func (d *decoder) required() error {
	if err := d.need("", "version", "planes"); err != nil {
		return err
	}
	if len(d.f.Planes) == 0 {
		return d.errorf("planes", "", "a fabric has at least one plane")
	}
	for i := range d.f.Hosts {
		if err := d.need(fmt.Sprintf("hosts[%d]", i), "name", "ranks"); err != nil {
			return err
		}
	}
	for i := range d.f.OCS {
		if err := d.need(fmt.Sprintf("ocs[%d]", i), "name", "driver", "reconfig"); err != nil {
			return err
		}
	}
	for i := range d.f.Planes {
		if err := d.need(fmt.Sprintf("planes[%d]", i), "name", "bandwidth"); err != nil {
			return err
		}
	}
	if _, stated := d.at["packet_planes"]; stated {
		return d.need("packet_planes", "bandwidth")
	}
	return nil
}

// unique reports the first name that an earlier element of the list has too.
func (d *decoder) unique(list string, n int, name func(i int) string) error {
	seen := make(map[string]int)
	for i := range n {
		if first, twice := seen[name(i)]; twice {
			path := fmt.Sprintf("%s[%d]", list, i)
			return d.errorf(path+".name", path, "%q is the name of %s[%d] too", name(i), list, first)
		}
		seen[name(i)] = i
	}
	return nil
}

func (d *decoder) ranks() error {
	f := d.f
	if err := d.unique("hosts", len(f.Hosts), func(i int) string { return f.Hosts[i].Name }); err != nil {
		return err
	}
	if _, given := d.at["hosts"]; !given {
		return d.need("", "ranks")
	}
	sum := 0
	for _, h := range f.Hosts {
		sum += h.Ranks
	}
	switch {
	case sum == 0 || sum > plans.MaxRanks:
		return d.errorf("hosts", "", "the hosts have %d ranks, want 1..%d", sum, plans.MaxRanks)
	case f.Ranks != 0 && f.Ranks != sum:
		return d.errorf("ranks", "", "%d, but the hosts have %d", f.Ranks, sum)
	}
	f.Ranks = sum
	return nil
}

func (d *decoder) switches() error {
	f := d.f
	if err := d.unique("ocs", len(f.OCS), func(i int) string { return f.OCS[i].Name }); err != nil {
		return err
	}
	for i, o := range f.OCS {
		path := fmt.Sprintf("ocs[%d]", i)
		switch o.Driver {
		case DriverEmulator:
			if o.Endpoint != "" && !strings.HasPrefix(o.Endpoint, "unix:/") {
				return d.errorf(path+".endpoint", path, "%q: an emulator is reached at unix:/path", o.Endpoint)
			}
		case DriverGNMI, DriverPolatis, DriverNETCONF:
			if err := d.need(path, "endpoint"); err != nil {
				return err
			}
		default:
			return d.errorf(path+".driver", path, "%q is not emulator, gnmi, polatis-scpi or netconf", o.Driver)
		}
	}
	return nil
}

func (d *decoder) planes() error {
	f := d.f
	if err := d.unique("planes", len(f.Planes), func(i int) string { return f.Planes[i].Name }); err != nil {
		return err
	}
	for i := range f.Planes {
		p := &f.Planes[i]
		path := fmt.Sprintf("planes[%d]", i)
		first := &f.Planes[0]
		switch {
		case p.Bandwidth != first.Bandwidth:
			return d.errorf(path+".bandwidth", path, "%v, but planes[0] has %v: all planes have one rate", p.Bandwidth,
				first.Bandwidth)
		case p.Interface != "" && p.HCA != "":
			return d.errorf(path+".hca", path, "a plane has an interface or an hca, not both")
		case (p.OCS == "") != (first.OCS == ""):
			return d.errorf(path+".ocs", path, "either every plane has an ocs or none has")
		case p.OCS == "" && d.ports[i] != nil:
			return d.errorf(path+".ports", path, "a plane without an ocs has no ports")
		case p.OCS != "" && f.Switch(i) == nil:
			return d.errorf(path+".ocs", path, "there is no ocs %q", p.OCS)
		}
		if err := d.portMap(i, path); err != nil {
			return err
		}
	}
	return d.sharedPorts()
}

// portMap converts the ports of plane i to a list by rank.
func (d *decoder) portMap(i int, path string) error {
	p, ports := &d.f.Planes[i], d.ports[i]
	if ports == nil {
		if p.OCS != "" && d.f.Switch(i).Driver != DriverEmulator {
			return d.need(path, "ports")
		}
		return nil
	}
	p.Ports = make([]string, d.f.Ranks)
	owner := make(map[string]int, len(ports))
	for rank := range p.Ports {
		name, ok := ports[rank]
		if !ok {
			return d.errorf(path+".ports", path, "rank %d has no port", rank)
		}
		if other, twice := owner[name]; twice {
			return d.errorf(fmt.Sprintf("%s.ports.%d", path, rank), path+".ports", "port %q is that of rank %d too", name, other)
		}
		p.Ports[rank], owner[name] = name, rank
		delete(ports, rank)
	}
	if len(ports) == 0 {
		return nil
	}
	rank := slices.Min(slices.Collect(maps.Keys(ports)))
	return d.errorf(fmt.Sprintf("%s.ports.%d", path, rank), path+".ports", "rank %d is outside 0..%d", rank, d.f.Ranks-1)
}

// sharedPorts reports a port of a real switch that two planes use. The emulated switch has
// ports of its own for every plane.
func (d *decoder) sharedPorts() error {
	type port struct{ ocs, name string }
	owner := make(map[port]int)
	for i := range d.f.Planes {
		p := &d.f.Planes[i]
		path := fmt.Sprintf("planes[%d]", i)
		if p.Ports == nil || d.f.Switch(i).Driver == DriverEmulator {
			if p.Spares != nil {
				return d.errorf(path+".spares", path, "only planes on real switches have spare ports")
			}
			continue
		}
		for rank, name := range slices.Concat(p.Ports, p.Spares) {
			at := port{p.OCS, name}
			where, in := fmt.Sprintf("%s.ports.%d", path, rank), path+".ports"
			if rank >= len(p.Ports) {
				where, in = fmt.Sprintf("%s.spares[%d]", path, rank-len(p.Ports)), path+".spares"
			}
			if first, taken := owner[at]; taken {
				return d.errorf(where, in, "port %q of %s is in use on planes[%d]", name, p.OCS, first)
			}
			owner[at] = i
		}
	}
	return nil
}

func (d *decoder) circuits() error {
	switch {
	case d.f.Optical():
	case d.f.PinnedBy != "":
		return d.errorf("pinned_by", "", "%q, but a fabric without ocs has no circuits", d.f.PinnedBy)
	case d.f.Packets != PacketPlanes{}:
		return d.errorf("packet_planes", "", "a fabric without ocs has them in planes")
	}
	switch d.f.Circuits {
	case plans.Simplex, plans.Duplex:
	case plans.Interleaved:
		if len(d.f.Planes)%2 != 0 {
			return d.errorf("planes", "", "%d is odd: interleaved planes come in pairs", len(d.f.Planes))
		}
	default:
		return d.errorf("circuits", "", "%q is not simplex, duplex or interleaved", d.f.Circuits)
	}
	return nil
}

func (d *decoder) pods() error {
	if d.f.Pods == nil {
		return nil
	}
	owner := slices.Repeat([]int{-1}, d.f.Ranks)
	for i, pod := range d.f.Pods {
		for k, rank := range pod {
			path := fmt.Sprintf("pods[%d][%d]", i, k)
			switch {
			case rank >= d.f.Ranks:
				return d.errorf(path, "pods", "rank %d is outside 0..%d", rank, d.f.Ranks-1)
			case owner[rank] >= 0:
				return d.errorf(path, "pods", "rank %d is in pods[%d] already", rank, owner[rank])
			}
			owner[rank] = i
		}
	}
	if missing := slices.Index(owner, -1); missing >= 0 {
		return d.errorf("pods", "", "rank %d is in no pod", missing)
	}
	return nil
}
