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

// Address picks the address for rendezvous and control: an interface allowed by
// NCCL_SOCKET_IFNAME, else the first that is up and not loopback or docker's, else
// loopback.
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
		return netip.Addr{}, fmt.Errorf("shim: no usable network interface (NCCL_SOCKET_IFNAME or NCCL_OOB_NET_IFNAME %q): %w", ifnames, errdefs.ErrInvalidUsage)
	}
	return best, nil
}

// PlaneAddresses picks the addresses of the tcp planes: those of the interfaces that
// NCCL_SOCKET_IFNAME names. Where it names none, for hosts may have interfaces that lead
// nowhere, they are all at the control network's.
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
		if nic.Flags&net.FlagUp != 0 {
			byName[nic.Name] = nic
		}
	}
	var all []netip.Addr
	for _, name := range ifaceOrder(slices.Collect(maps.Keys(byName)), ifnames) {
		if addr, _, ok := UsableAddress(byName[name]); ok && addr.Is4() == control.Is4() {
			all = append(all, addr)
		}
	}
	return all, nil
}

// ifaceOrder returns those of the names that a list includes, in the order of its items, those of
// one prefix with numbers in order: the same on hosts that found their interfaces in another.
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

// UsableAddress returns an interface's address, IPv4 first. Link-local ones are left out:
// they mean nothing without the name of the interface on the other host.
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
