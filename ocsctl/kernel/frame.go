package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// The hardware address of a port is 02:4c:50 (local, "LP"), the plane, and the rank in two bytes. Programs compare the
// first four bytes and the last two.
const (
	macPrefix = 0x024c50
	maxPlanes = 64
	maxRanks  = 4096
)

// rankMAC returns the hardware address of a rank on a plane.
func rankMAC(plane, rank int) net.HardwareAddr {
	return net.HardwareAddr{macPrefix >> 16, macPrefix >> 8 & 0xff, macPrefix & 0xff, byte(plane), byte(rank >> 8),
		byte(rank)}
}

// wirePrefix begins the addresses of ports on the Ethernet between hosts. They end like the addresses of ranks. A frame
// there goes from the port where its last circuit began to the port where that circuit ends.
const wirePrefix = 0x024c51

// wireMAC returns the hardware address of a port on the Ethernet between hosts.
func wireMAC(plane, rank int) net.HardwareAddr {
	return net.HardwareAddr{wirePrefix >> 16, wirePrefix >> 8 & 0xff, wirePrefix & 0xff, byte(plane), byte(rank >> 8),
		byte(rank)}
}

// rankAddr returns the IP address of a rank on a plane, in 10.(100+plane).0.0/16.
func rankAddr(plane, rank int) netip.Addr {
	host := rank + 1
	return netip.AddrFrom4([4]byte{10, byte(100 + plane), byte(host >> 8), byte(host)})
}

const addrBits = 16

// Ethernet types. Tokens have IEEE's first experimental type.
const (
	ethHeader  = 14
	etherIPv4  = 0x0800
	etherARP   = 0x0806
	etherToken = 0x88b5
)

// native returns the value that a program on this machine reads for a big-endian 16-bit field of a frame.
func native(field uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], field)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

// macWords returns a hardware address as programs compare it: bytes 0..3 and 4..5 in memory order.
func macWords(a net.HardwareAddr) (head, tail int32) {
	return int32(binary.NativeEndian.Uint32(a[:4])), int32(binary.NativeEndian.Uint16(a[4:6]))
}
