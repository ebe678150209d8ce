package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// sysfs reads attributes of a tree laid out as /sys. A missing or unreadable attribute reads as "": drivers refuse many
// attributes in ordinary states, such as speed while a link is down.
type sysfs struct{ fs.FS }

func (s sysfs) text(elem ...string) string {
	data, err := fs.ReadFile(s.FS, path.Join(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// integer reads a number. If that fails, it returns otherwise.
func (s sysfs) integer(otherwise int, elem ...string) int {
	v, err := strconv.Atoi(s.text(elem...))
	if err != nil {
		return otherwise
	}
	return v
}

// link returns the target of a symbolic link, as a path of the tree; "" if there is no link.
func (s sysfs) link(elem ...string) string {
	name := path.Join(elem...)
	target, err := fs.ReadLink(s.FS, name)
	if err != nil {
		return ""
	}
	return path.Join(path.Dir(name), target)
}

// list returns the names in a directory that may be absent.
func (s sysfs) list(elem ...string) ([]string, error) {
	entries, err := fs.ReadDir(s.FS, path.Join(elem...))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("topology: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (s sysfs) nodes() ([]Node, error) {
	const dir = "devices/system/node"
	names, err := s.list(dir)
	if err != nil {
		return []Node{}, err
	}
	nodes := []Node{}
	for _, name := range names {
		id, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil || !strings.HasPrefix(name, "node") {
			continue
		}
		nodes = append(nodes, Node{ID: id, CPUs: s.text(dir, name, "cpulist"),
			MemoryBytes: memTotal(s.text(dir, name, "meminfo"))})
	}
	if len(nodes) == 0 {
		return nodes, fmt.Errorf("topology: %s lists no NUMA node: the kernel may have been built without them", dir)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return nodes, nil
}

// memTotal reads the line "Node 0 MemTotal:  16384 kB" of a node's meminfo.
func memTotal(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line)
		if len(f) == 5 && f[2] == "MemTotal:" && f[4] == "kB" {
			kib, err := strconv.ParseUint(f[3], 10, 53)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// deviceOf returns the directory of the device that a class entry belongs to, and the address of
// its PCI function: the innermost one on the path, because virtio adds a bus below the function.
func deviceOf(target, class string) (dir, pci string) {
	if i := strings.LastIndex(target, "/"+class+"/"); i >= 0 {
		dir = target[:i]
	}
	for elem := range strings.SplitSeq(target, "/") {
		if isPCI(elem) {
			pci = elem
		}
	}
	return dir, pci
}

func (s sysfs) nics(bus map[string]function) ([]NIC, error) {
	const dir = "class/net"
	nics := []NIC{}
	names, err := s.list(dir)
	for _, name := range names {
		target := s.link(dir, name)
		if target == "" || name == "lo" {
			continue // bonding_masters and its like are plain files
		}
		device, pci := deviceOf(target, "net")
		n := NIC{
			Name: name, PCI: pci, NUMANode: Unknown,
			SpeedMbps: max(0, s.integer(0, target, "speed")),
			MTU:       s.integer(0, target, "mtu"),
			State:     cmp.Or(s.text(target, "operstate"), "unknown"),
		}
		if driver := s.link(device, "driver"); driver != "" {
			n.Driver = path.Base(driver)
		}
		if f, ok := bus[pci]; ok {
			n.NUMANode, n.PhysicalFunction, n.VirtualFunctions = f.node, f.physical, f.virtual
		}
		nics = append(nics, n)
	}
	return nics, err
}

func (s sysfs) gpus(bus map[string]function) []GPU {
	gpus := []GPU{}
	for pci, f := range bus {
		if f.vendor == "0x10de" && strings.HasPrefix(f.class, "0x03") {
			gpus = append(gpus, GPU{Index: Unknown, PCI: pci, NUMANode: f.node, NVLinks: []NVLink{}})
		}
	}
	sortGPUs(gpus)
	return gpus
}

func sortGPUs(gpus []GPU) {
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.PCI, b.PCI)) })
}
