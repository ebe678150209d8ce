package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// indexBase is the interface index of slot 0 in the switch's namespace. The indices of ports are consecutive, so the
// program needs no table of them. A new namespace has only a few interfaces.
const indexBase = 1000

// portIndex returns the interface index of the switch's end of a port, by its slot.
func portIndex(slot int) int { return indexBase + slot }

// linkGroup is the link group by which the switch's ends are removed.
const linkGroup = 0x4c50

// switchLink returns the name of the switch's end of a port.
func switchLink(plane, rank int) string { return fmt.Sprintf("p%dr%d", plane, rank) }

// Names of pinned links.
func switchPin(plane, rank int) string  { return fmt.Sprintf("switch-p%d-r%d", plane, rank) }
func ingressPin(plane, rank int) string { return fmt.Sprintf("ingress-p%d-r%d", plane, rank) }
func egressPin(plane, rank int) string  { return fmt.Sprintf("egress-p%d-r%d", plane, rank) }

// buildSwitch makes the namespaces and the ports of the switch: links whose other ends are in the namespaces of the
// ranks. The ports are dark until a Board makes circuits.
func buildSwitch(s *State, o *objects) error {
	for _, namespace := range s.everyNamespace() {
		if err := makeNamespace(namespace); err != nil {
			return fmt.Errorf("namespace %s: %w", namespace, err)
		}
		if err := within(namespace, setSysctls); err != nil {
			return fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	return within(s.Switch, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for j := range s.Planes {
			p, err := load(switchProgram(s, o.tables, j))
			if err != nil {
				return fmt.Errorf("plane %s: %w", s.Planes[j].Name, err)
			}
			for r := range s.locals() {
				if err = buildPort(s, h, p, j, r); err != nil {
					err = fmt.Errorf("plane %s: port %d: %w", s.Planes[j].Name, r, err)
					break
				}
			}
			shut(p)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// everyNamespace returns the namespaces of the switch and of this host's ranks.
func (s *State) everyNamespace() []string {
	return append([]string{s.Switch}, s.Namespaces[s.First:s.First+s.Count]...)
}

// buildPort makes the link of a port, and attaches the program to the switch's end.
func buildPort(s *State, h *netlink.Handle, p *ebpf.Program, plane, rank int) error {
	peer, err := os.Open(filepath.Join(netnsDir, s.Namespaces[rank]))
	if err != nil {
		return err
	}
	defer peer.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index, attrs.MTU = switchLink(plane, rank), portIndex(s.slot(plane, rank)), s.MTU
	attrs.Group = linkGroup
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr = s.Planes[plane].Interface, rankMAC(plane, rank)
	veth.PeerNamespace, veth.PeerMTU, veth.PeerTxQLen = netlink.NsFd(peer.Fd()), uint32(s.MTU), queueLength
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	if err := attach(p, attrs.Index, ebpf.AttachTCXIngress, s.pin(switchPin(plane, rank))); err != nil {
		return err
	}
	return h.LinkSetUp(veth)
}

// buildRank prepares a rank's end of every plane.
func buildRank(s *State, o *objects, rank int) error {
	return within(s.Namespaces[rank], func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		if lo, err := h.LinkByName("lo"); err != nil {
			return err
		} else if err := h.LinkSetUp(lo); err != nil {
			return err
		}
		for j, plane := range s.Planes {
			if err := buildEnd(s, o, h, j, rank); err != nil {
				return fmt.Errorf("plane %s: %w", plane.Name, err)
			}
		}
		return nil
	})
}

// buildEnd prepares a rank's end of one plane. It activates the interface last.
func buildEnd(s *State, o *objects, h *netlink.Handle, plane, rank int) error {
	name := s.Planes[plane].Interface
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	index := l.Attrs().Index
	if err := singleFrames(name); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	in, err := load(ingressProgram(o.tables, plane, rank, s.slot(plane, rank), s.Forwarding))
	if err != nil {
		return err
	}
	defer shut(in)
	if err := attach(in, index, ebpf.AttachTCXIngress, s.pin(ingressPin(plane, rank))); err != nil {
		return err
	}
	out, err := load(egressProgram(o.tables, plane, rank, s.slot(plane, rank), s.queues()))
	if err != nil {
		return err
	}
	defer shut(out)
	if err := attach(out, index, ebpf.AttachTCXEgress, s.pin(egressPin(plane, rank))); err != nil {
		return err
	}
	if err := shape(h, index, s.wireRate(plane), s.MTU, s.queues()); err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: s.Planes[plane].Addrs[rank].AsSlice(),
		Mask: net.CIDRMask(addrBits, 32)}}
	if err := h.AddrAdd(l, address); err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return err
	}
	for r, a := range s.Planes[plane].Addrs {
		if r == rank {
			continue
		}
		if err := h.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: a.AsSlice(), HardwareAddr: rankMAC(plane, r),
		}); err != nil {
			return fmt.Errorf("neighbour rank %d: %w", r, err)
		}
	}
	return nil
}

// load loads a program into the kernel.
func load(in asm.Instructions) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lightpath", Type: ebpf.SchedCLS, Instructions: in,
		License: "Apache-2.0"})
	if err != nil {
		return nil, fmt.Errorf("eBPF program: %w", err)
	}
	return p, nil
}

// attach attaches a program to an interface of the thread's namespace, until the pin is removed.
func attach(p *ebpf.Program, index int, where ebpf.AttachType, pin string) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: where})
	if err != nil {
		return fmt.Errorf("TCX (Linux 6.6): %w", err)
	}
	defer shut(l)
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return nil
}

// setSysctls stops unrequested traffic in the thread's namespace, and enlarges the buffers of its sockets. It skips
// settings that a kernel lacks.
func setSysctls() error {
	for _, s := range []struct{ name, value string }{
		{"ipv6/conf/all/disable_ipv6", "1"},
		{"ipv6/conf/default/disable_ipv6", "1"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/ip_default_ttl", "255"}, // every rank on the route decrements it
		{"ipv4/tcp_slow_start_after_idle", "0"},
		{"ipv4/tcp_no_metrics_save", "1"},
		{"ipv4/tcp_rmem", "4096 1048576 33554432"},
		{"ipv4/tcp_wmem", "4096 1048576 33554432"},
	} {
		err := os.WriteFile("/proc/sys/net/"+s.name, []byte(s.value), 0o644)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("sysctl %s: %w", s.name, err)
		}
	}
	return nil
}

// singleFrames switches off offloads that join or split frames, so that the programs count the frames of the sockets.
func singleFrames(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer shutFD(fd)
	for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_SGRO} {
		value := struct{ command, off uint32 }{command: command}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:], name)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("ethtool command %#x: %w", command, errno)
		}
	}
	return nil
}
