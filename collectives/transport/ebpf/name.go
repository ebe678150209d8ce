package ebpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// name is a socket address as the kernel reads and writes it. The scope of a link-local address
// is not kept.
type name struct {
	raw [unix.SizeofSockaddrInet6]byte
	len uint32
}

// Offsets in a struct sockaddr_in and sockaddr_in6.
const (
	atPort  = 2
	atAddr4 = 4
	atAddr6 = 8
)

func newName(a netip.AddrPort) name {
	var n name
	binary.BigEndian.PutUint16(n.raw[atPort:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(n.raw[:], unix.AF_INET)
		b := a.Addr().As4()
		copy(n.raw[atAddr4:], b[:])
		n.len = unix.SizeofSockaddrInet4
		return n
	}
	binary.NativeEndian.PutUint16(n.raw[:], unix.AF_INET6)
	b := a.Addr().As16()
	copy(n.raw[atAddr6:], b[:])
	n.len = unix.SizeofSockaddrInet6
	return n
}

func (n *name) family() int { return int(binary.NativeEndian.Uint16(n.raw[:])) }

// same compares families, ports and addresses.
func (n *name) same(o *name) bool {
	if n.family() == unix.AF_INET {
		return [8]byte(n.raw[:8]) == [8]byte(o.raw[:8])
	}
	return [4]byte(n.raw[:4]) == [4]byte(o.raw[:4]) && [16]byte(n.raw[atAddr6:24]) == [16]byte(o.raw[atAddr6:24])
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) (netip.AddrPort, error) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("not an Internet address: %T", sa)
}
