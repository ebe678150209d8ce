package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Buffers of the sockets that Attach opens, in bytes. The kernel also counts its bookkeeping of a frame. Receivers
// never let more frames be in flight than they have room for.
const (
	receiveBuffer = 16 << 20
	sendBuffer    = 4 << 20
)

// Attach opens a rank's end of every plane: the counters, and a UDP socket per plane in the rank's namespace. The
// process stays in its own namespace. Several ends of a rank may be open, each with its own sockets; they share the
// port's counters. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
func Attach(s *State, rank int) (*Port, error) {
	if rank < 0 || rank >= s.Ranks {
		return nil, fmt.Errorf("kernel: fabric %s: rank %d is outside 0..%d", s.Name, rank, s.Ranks-1)
	}
	if !s.local(rank) {
		return nil, fmt.Errorf("kernel: fabric %s: rank %d is not one of host %s", s.Name, rank, s.Host)
	}
	counters, unmap, err := s.mapCounters()
	if err != nil {
		return nil, fmt.Errorf("kernel: fabric %s: rank %d: %w", s.Name, rank, err)
	}
	p := &Port{Rank: rank}
	p.release = func() error {
		var err error
		for _, plane := range p.Planes {
			err = errors.Join(err, unix.Close(plane.FD))
		}
		return errors.Join(err, unmap())
	}
	err = within(s.Namespaces[rank], func() error {
		for j, plane := range s.Planes {
			fd, local, err := bindUDP(plane.Interface, plane.Addrs[rank])
			if err != nil {
				return fmt.Errorf("plane %s: %w", plane.Name, err)
			}
			p.Planes = append(p.Planes, RankPlane{FD: fd, Local: local, MTU: s.MTU, Counters: &counters[s.slot(j, rank)]})
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kernel: fabric %s: rank %d: %w", s.Name, rank, err), p.Close())
	}
	return p, nil
}

// bindUDP opens a socket in the thread's namespace that uses only one interface.
func bindUDP(device string, addr netip.Addr) (int, netip.AddrPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, netip.AddrPort{}, fmt.Errorf("socket: %w", err)
	}
	local, err := func() (netip.AddrPort, error) {
		if err := unix.BindToDevice(fd, device); err != nil {
			return netip.AddrPort{}, fmt.Errorf("interface %s: %w", device, err)
		}
		for _, o := range []struct {
			level, name, value int
		}{
			{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer},
			{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer},
			{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO}, // a datagram is one frame, or an error
		} {
			if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
				return netip.AddrPort{}, fmt.Errorf("socket option %d: %w", o.name, err)
			}
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4()}); err != nil {
			return netip.AddrPort{}, fmt.Errorf("bind %s: %w", addr, err)
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			return netip.AddrPort{}, err
		}
		inet, ok := name.(*unix.SockaddrInet4)
		if !ok {
			return netip.AddrPort{}, fmt.Errorf("bind %s: bound to %T", addr, name)
		}
		return netip.AddrPortFrom(addr, uint16(inet.Port)), nil
	}()
	if err != nil {
		shutFD(fd)
		return -1, netip.AddrPort{}, err
	}
	return fd, local, nil
}

// slot returns the index of a port in every map. The ports of a plane are adjacent.
func (s *State) slot(plane, port int) int { return plane*s.Ranks + port }

// pin returns the path of a pinned object of the fabric.
func (s *State) pin(name string) string { return filepath.Join(pinDir, s.Name, name) }

// mapCounters maps the counters of all ports for reading.
func (s *State) mapCounters() ([]Counters, func() error, error) {
	m, err := ebpf.LoadPinnedMap(s.pin(countersPin), nil)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w (ip netns exec hides it, nsenter --net does not)", s.pin(countersPin), err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("counters: %w", err)
	}
	defer shut(m)
	return mapArray[Counters](m, s.slot(len(s.Planes), 0), unix.PROT_READ)
}

// mapArray maps the values of an array map, which must be n values of T. It opens the map for writing even if the
// memory is read-only, because the kernel does not map objects that are open only for reading.
func mapArray[T any](m *ebpf.Map, n, protection int) ([]T, func() error, error) {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if int(m.ValueSize()) != size || int(m.MaxEntries()) != n {
		return nil, nil, fmt.Errorf("%w: a map has %d values of %d bytes, not %d of %d", ErrVersion, m.MaxEntries(),
			m.ValueSize(), n, size)
	}
	page := unix.Getpagesize()
	data, err := unix.Mmap(m.FD(), 0, (n*size+page-1)/page*page, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap: %w", err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), n), func() error { return unix.Munmap(data) }, nil
}
