// Package nic reads from the kernel whether network interfaces can carry frames.
//
// Layer: below the transports, without imports of the project.
package nic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// FaultOfSocket returns a fault of the interface to which a socket is bound (SO_BINDTODEVICE), "" for none. The
// interface may be in another network namespace than the caller, as the socket is.
func FaultOfSocket(fd int) string {
	name, err := unix.GetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	if errors.Is(err, unix.ENODEV) {
		return "its interface does not exist any more"
	}
	if err != nil || name == "" {
		return ""
	}
	r, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r)
	}
	if err != nil {
		return ""
	}
	return fault(name, r.Uint16()&unix.IFF_UP != 0, r.Uint16()&unix.IFF_RUNNING != 0)
}

// FaultOfAddress returns a fault of the interface with a local address, "" for none. It looks in the network namespace
// of the caller. Loopback addresses have none.
func FaultOfAddress(local netip.Addr) string {
	all, err := net.Interfaces()
	if err != nil || local.IsUnspecified() || local.IsLoopback() {
		return ""
	}
	for i := range all {
		addrs, err := all[i].Addrs()
		if err != nil {
			return ""
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == local.Unmap().WithZone("") {
				return fault(all[i].Name, all[i].Flags&net.FlagUp != 0, all[i].Flags&net.FlagRunning != 0)
			}
		}
	}
	return fmt.Sprintf("no interface has its address %s any more", local)
}

func fault(name string, up, running bool) string {
	switch {
	case !up:
		return fmt.Sprintf("interface %s is down", name)
	case !running:
		return fmt.Sprintf("interface %s has no carrier", name)
	}
	return ""
}
