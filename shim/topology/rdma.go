package topology

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
)

func (s sysfs) rdma(bus map[string]function) ([]RDMA, error) {
	const dir = "class/infiniband"
	devices := []RDMA{}
	names, err := s.list(dir)
	for _, name := range names {
		target := s.link(dir, name)
		if target == "" {
			continue
		}
		_, pci := deviceOf(target, "infiniband")
		d := RDMA{Name: name, PCI: pci, NUMANode: Unknown, Firmware: s.text(target, "fw_ver"), CharDevices: []string{},
			Ports: s.ports(target)}
		if f, ok := bus[pci]; ok {
			d.NUMANode, d.virtualFunction = f.node, f.physical != ""
		}
		// A software device names the interface below it, even if its table of GIDs is empty.
		if parent := s.text(target, "parent"); parent != "" && len(d.Ports) > 0 && d.Ports[0].Netdev == "" {
			d.Ports[0].Netdev = parent
		}
		devices = append(devices, d)
	}
	return devices, err
}

func (s sysfs) ports(device string) []Port {
	ports := []Port{}
	names, _ := s.list(device, "ports")
	for _, name := range names {
		number, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		dir := path.Join(device, "ports", name)
		p := Port{Number: number, State: afterColon(s.text(dir, "state")), LinkLayer: s.text(dir, "link_layer"),
			GIDs: s.gids(dir)}
		// "100 Gb/sec (4X EDR)"
		rate, _, _ := strings.Cut(s.text(dir, "rate"), " ")
		if p.RateGbps, err = strconv.ParseFloat(rate, 64); err != nil || !(p.RateGbps >= 0 && p.RateGbps < 1e6) {
			p.RateGbps = 0
		}
		for _, g := range p.GIDs {
			p.Netdev = cmp.Or(p.Netdev, g.Netdev)
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return ports
}

// gids lists the entries in use of a port's table.
func (s sysfs) gids(port string) []GID {
	const unset = "0000:0000:0000:0000:0000:0000:0000:0000"
	gids := []GID{}
	names, _ := s.list(port, "gids")
	for _, name := range names {
		index, err := strconv.Atoi(name)
		gid := s.text(port, "gids", name)
		if err != nil || gid == "" || gid == unset || gid == "fe80"+unset[4:] {
			continue
		}
		gids = append(gids, GID{
			Index: index, GID: gid,
			Type:   s.text(port, "gid_attrs/types", name),
			Netdev: s.text(port, "gid_attrs/ndevs", name),
		})
	}
	slices.SortFunc(gids, func(a, b GID) int { return cmp.Compare(a.Index, b.Index) })
	return gids
}

// afterColon reads "4: ACTIVE" as "ACTIVE".
func afterColon(text string) string {
	if _, name, ok := strings.Cut(text, ": "); ok {
		return name
	}
	return cmp.Or(text, "unknown")
}
