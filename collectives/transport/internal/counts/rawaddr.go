package counts

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// RawAddr is a socket address in the kernel's encoding. It drops the scope of a link-local address.
type RawAddr struct {
	Raw [unix.SizeofSockaddrInet6]byte
	Len uint32
}

// Offsets in a struct sockaddr_in and sockaddr_in6.
const (
	atPort  = 2
	atAddr4 = 4
	atAddr6 = 8
)

// NewRawAddr encodes an address and port.
func NewRawAddr(a netip.AddrPort) RawAddr {
	var n RawAddr
	binary.BigEndian.PutUint16(n.Raw[atPort:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(n.Raw[:], unix.AF_INET)
		b := a.Addr().As4()
		copy(n.Raw[atAddr4:], b[:])
		n.Len = unix.SizeofSockaddrInet4
		return n
	}
	binary.NativeEndian.PutUint16(n.Raw[:], unix.AF_INET6)
	b := a.Addr().As16()
	copy(n.Raw[atAddr6:], b[:])
	n.Len = unix.SizeofSockaddrInet6
	return n
}

// Family returns AF_INET or AF_INET6.
func (n *RawAddr) Family() int { return int(binary.NativeEndian.Uint16(n.Raw[:])) }

// Equal reports whether families, ports and addresses are equal.
func (n *RawAddr) Equal(o *RawAddr) bool {
	if n.Family() == unix.AF_INET {
		return [8]byte(n.Raw[:8]) == [8]byte(o.Raw[:8])
	}
	return [4]byte(n.Raw[:4]) == [4]byte(o.Raw[:4]) && [16]byte(n.Raw[atAddr6:24]) == [16]byte(o.Raw[atAddr6:24])
}

// Sockaddr converts a for package unix.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// AddrPort is the inverse of [Sockaddr]. Addresses that are neither IPv4 nor IPv6 are an error.
func AddrPort(sa unix.Sockaddr) (netip.AddrPort, error) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("not an Internet address: %T", sa)
}
