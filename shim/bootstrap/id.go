package bootstrap

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// UniqueID names a communicator that is being made; it is ncclUniqueId's 128 bytes.
type UniqueID [UniqueIDSize]byte

// UniqueIDSize is NCCL_UNIQUE_ID_BYTES.
const UniqueIDSize = 128

// A unique id holds where the rendezvous root listens and the secret that proves membership: magic, secret, address,
// port and a checksum. Any process that has the id can join, so the id is never logged.
//
//	0 magic [8]   8 secret [16]   24 address [16]   40 port u16 BE   42 zero   120 check [8]
const (
	idMagic                            = "LPUID\x00\x00\x01"
	atSecret, atAddr, atPort, atIDRest = 8, 24, 40, 42
	atCheck                            = 120
)

// makeID packs an id.
func makeID(addr netip.AddrPort, s control.Secret) UniqueID {
	var id UniqueID
	copy(id[:], idMagic)
	copy(id[atSecret:], s[:])
	a := addr.Addr().As16()
	copy(id[atAddr:], a[:])
	binary.BigEndian.PutUint16(id[atPort:], addr.Port())
	check := sha256.Sum256(id[:atCheck])
	copy(id[atCheck:], check[:])
	return id
}

// ParseID unpacks an id. It refuses damaged ids and ids of another library.
func ParseID(id *UniqueID) (netip.AddrPort, control.Secret, error) {
	var s control.Secret
	check := sha256.Sum256(id[:atCheck])
	if string(id[:atSecret]) != idMagic || !bytes.Equal(id[atCheck:], check[:UniqueIDSize-atCheck]) {
		return netip.AddrPort{}, s, fmt.Errorf("shim: commId is not an id that this library made: %w",
			errdefs.ErrInvalidArgument)
	}
	copy(s[:], id[atSecret:])
	addr := netip.AddrFrom16([16]byte(id[atAddr:atPort])).Unmap()
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(id[atPort:])), s, nil
}

// EnvID returns the id that all ranks derive from the address in NCCL_COMM_ID. Its secret protects nothing, because
// anyone who knows the address can derive it.
func EnvID(addr netip.AddrPort) UniqueID {
	sum := sha256.Sum256([]byte("lightpath NCCL_COMM_ID " + addr.String()))
	return makeID(addr, control.Secret(sum[:16]))
}

// parseCommID reads NCCL_COMM_ID: ip:port, [v6]:port or host:port.
func parseCommID(v string) (netip.AddrPort, error) {
	a, err := net.ResolveTCPAddr("tcp", v)
	if err != nil || a.Port == 0 || a.IP == nil {
		return netip.AddrPort{}, fmt.Errorf("shim: environment variable NCCL_COMM_ID: %q is not host:port: %w", v,
			errdefs.ErrInvalidUsage)
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// NewUniqueID makes an id and starts its rendezvous in this process: a listener that ends when every rank has come, or
// LIGHTPATH_TIMEOUT after the first. With NCCL_COMM_ID the id is that address, and rank 0 listens there when it joins.
func NewUniqueID() (UniqueID, error) {
	cfg, err := settings.Load()
	if err != nil {
		return UniqueID{}, err
	}
	if cfg.Sockets.CommID != "" {
		addr, err := parseCommID(cfg.Sockets.CommID)
		if err != nil {
			return UniqueID{}, err
		}
		return EnvID(addr), nil
	}
	return NewID(cfg)
}

// NewID makes an id whose rendezvous this process serves.
func NewID(cfg *settings.Config) (UniqueID, error) {
	var s control.Secret
	if _, err := rand.Read(s[:]); err != nil {
		return UniqueID{}, fmt.Errorf("shim: secret of a unique id: %w", err)
	}
	root, err := StartRoot(cfg, s, netip.AddrPort{})
	if err != nil {
		return UniqueID{}, err
	}
	return makeID(root, s), nil
}

// RandomID draws a communicator id.
func RandomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand does not fail
	return binary.LittleEndian.Uint64(b[:])
}
