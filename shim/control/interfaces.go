package control

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"lightpath/shim/errdefs"
)

// Address returns the address for rendezvous and control: that of an interface which NCCL_SOCKET_IFNAME allows, else of
// the first interface that is up and neither loopback nor Docker's, else loopback.
func Address(ifnames string) (netip.Addr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("shim: list network interfaces: %w", err)
	}
	best, bestRank := netip.Addr{}, 99
	for _, nic := range all {
		if nic.Flags&net.FlagUp == 0 || !ifaceAllowed(nic.Name, ifnames) {
			continue
		}
		rank := 0
		switch {
		case nic.Flags&net.FlagLoopback != 0:
			rank = 4
		case strings.HasPrefix(nic.Name, "docker"):
			rank = 2
		}
		if addr, isV6, ok := UsableAddress(nic); ok {
			if isV6 {
				rank++
			}
			if rank < bestRank {
				best, bestRank = addr, rank
			}
		}
	}
	if bestRank == 99 {
		return netip.Addr{}, fmt.Errorf("shim: no usable network interface (NCCL_SOCKET_IFNAME or NCCL_OOB_NET_IFNAME "+
			"%q): %w", ifnames, errdefs.ErrInvalidUsage)
	}
	return best, nil
}

// PlaneAddresses returns the addresses of the TCP planes: those of the interfaces that NCCL_SOCKET_IFNAME names. If it
// names none, all planes use the address of the control network, because other interfaces may lead nowhere. An
// interface that is down keeps its place if its whole name is in the list, so that planes have the same numbers as on
// other hosts. Its plane has the address of the control network.
func PlaneAddresses(ifnames string, control netip.Addr) ([]netip.Addr, error) {
	if ifnames == "" || strings.HasPrefix(ifnames, "^") {
		return []netip.Addr{control}, nil
	}
	nics, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("shim: list network interfaces: %w", err)
	}
	byName := map[string]net.Interface{}
	for _, nic := range nics {
		if nic.Flags&net.FlagUp != 0 || ifaceAllowed(nic.Name, "="+strings.TrimPrefix(ifnames, "=")) {
			byName[nic.Name] = nic
		}
	}
	var all []netip.Addr
	for _, name := range ifaceOrder(slices.Collect(maps.Keys(byName)), ifnames) {
		if byName[name].Flags&net.FlagUp == 0 {
			all = append(all, control)
		} else if addr, _, ok := UsableAddress(byName[name]); ok && addr.Is4() == control.Is4() {
			all = append(all, addr)
		}
	}
	return all, nil
}

// ifaceOrder returns the names that a list includes, in the order of its items; names with the same prefix are in the
// order of their numbers. So the order is the same on all hosts, in whatever order they find their interfaces.
func ifaceOrder(names []string, list string) []string {
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	list, exact := strings.CutPrefix(list, "=")
	var ordered []string
	for item := range strings.SplitSeq(list, ",") {
		for _, name := range names {
			if item != "" && (name == item || !exact && strings.HasPrefix(name, item)) && !slices.Contains(ordered, name) {
				ordered = append(ordered, name)
			}
		}
	}
	return ordered
}

// UsableAddress returns an interface's address, IPv4 first. It skips link-local addresses, which are valid only with
// the name of an interface.
func UsableAddress(nic net.Interface) (addr netip.Addr, isV6, ok bool) {
	addrs, err := nic.Addrs()
	if err != nil {
		return addr, false, false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if p.Addr().Unmap().Is4() {
			return p.Addr().Unmap(), false, true
		}
		addr, isV6, ok = p.Addr(), true, true
	}
	return addr, isV6, ok
}

// ifaceAllowed interprets NCCL_SOCKET_IFNAME: comma-separated prefixes, "=" for exact
// names, "^" to exclude.
func ifaceAllowed(name, list string) bool {
	if list == "" {
		return true
	}
	list, exclude := strings.CutPrefix(list, "^")
	list, exact := strings.CutPrefix(list, "=")
	for item := range strings.SplitSeq(list, ",") {
		if item != "" && (name == item || !exact && strings.HasPrefix(name, item)) {
			return !exclude
		}
	}
	return exclude
}
