package ebpf

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/internal/counts"
)

// Counters are the kernel's counters of one port, since it was created and for all its users. Each method makes a few
// atomic loads. Package ocsctl/kernel implements it.
type Counters interface {
	// Offered returns the number of frames that entered the port's queues, from this rank and forwarded by the kernel.
	Offered() uint64
	// Sent returns the number of these frames that the switch has taken, so that they have left the wire.
	Sent() uint64
	// Dropped returns the number of sent frames that were lost on a dark circuit and on a wrong circuit.
	Dropped() (dark, misdirected uint64)
	// TransitOp describes the latest operation whose frames the kernel has forwarded at this port. The low 40 bits
	// count its payload bytes; the high 24 bits are its tag (see the frame format). The kernel increments Offered
	// first.
	TransitOp() uint64
}

// PlaneOptions describe one plane of a rank.
type PlaneOptions struct {
	// FD is a UDP socket that is bound to this rank's address on the plane and to a port that only this endpoint uses.
	// The size of its receive buffer determines the window. The caller still owns it; the endpoint duplicates it.
	FD int
	// MTU is the largest IP packet in bytes, the same on all ranks.
	MTU int
	// Counters of the port; nil if it has none, as on a NIC. Then the kernel does not forward, and the plane is drained
	// when the NIC has sent everything.
	Counters Counters
	// BitsPerSecond is the plane's rate, 0 if unknown. It determines how long Wait sleeps before it reads the counters.
	BitsPerSecond float64
}

// ListenOptions are the options of [Listen].
type ListenOptions struct {
	Planes []PlaneOptions
	// Control is "host:port" on the control network; port 0 picks a free one.
	Control string
}

// Addrs are a rank's addresses, which the bootstrap distributes to all ranks.
type Addrs struct {
	Control netip.AddrPort `json:"control"`
	Planes  []PlaneAddr    `json:"planes"`
}

// PlaneAddr is a rank's address on one plane.
type PlaneAddr struct {
	Addr netip.AddrPort `json:"addr"`
	// Buffer is the size of the socket's receive buffer in bytes, as the kernel counts it (SO_RCVBUF).
	Buffer int `json:"buffer"`
	MTU    int `json:"mtu"`
}

// Listener owns a rank's sockets until Connect. It is not safe for concurrent use.
type Listener struct {
	planes  []PlaneOptions // FD is a duplicate, -1 after Connect
	control int
	addrs   Addrs
}

// Listen opens the control socket and duplicates the planes' sockets.
func Listen(o ListenOptions) (_ *Listener, err error) {
	if len(o.Planes) == 0 {
		return nil, fmt.Errorf("ebpf: no planes")
	}
	l := &Listener{control: -1}
	defer func() {
		if err != nil {
			_ = l.Close()
		}
	}()
	for i, p := range o.Planes {
		if p.MTU < minMTU || p.MTU > maxMTU {
			return nil, fmt.Errorf("ebpf: plane %d: MTU %d is outside %d..%d", i, p.MTU, minMTU, maxMTU)
		}
		fd, err := unix.FcntlInt(uintptr(p.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("ebpf: plane %d: socket %d: %w", i, p.FD, err)
		}
		p.FD = fd
		l.planes = append(l.planes, p)
		a, err := inspect(fd)
		if err != nil {
			return nil, fmt.Errorf("ebpf: plane %d: %w", i, err)
		}
		a.MTU = p.MTU
		l.addrs.Planes = append(l.addrs.Planes, a)
	}
	if l.control, l.addrs.Control, err = counts.Listen(o.Control); err != nil {
		return nil, fmt.Errorf("ebpf: %w", err)
	}
	return l, nil
}

// Addrs returns this rank's addresses.
func (l *Listener) Addrs() Addrs { return l.addrs }

// Close closes the sockets, unless Connect has passed them to an endpoint. Idempotent.
func (l *Listener) Close() error {
	var err error
	for i := range l.planes {
		if fd := l.planes[i].FD; fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
			l.planes[i].FD = -1
		}
	}
	if l.control >= 0 {
		err = errors.Join(err, unix.Close(l.control))
		l.control = -1
	}
	return err
}

// inspect returns the address and the receive buffer of a plane's socket.
func inspect(fd int) (PlaneAddr, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_DGRAM {
		return PlaneAddr{}, fmt.Errorf("not a UDP socket (type %d): %w", kind, errors.Join(err, unix.EPROTOTYPE))
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return PlaneAddr{}, fmt.Errorf("socket: %w", err)
	}
	addr, err := counts.AddrPort(sa)
	if err != nil {
		return PlaneAddr{}, err
	}
	if addr.Port() == 0 || addr.Addr().IsUnspecified() {
		return PlaneAddr{}, fmt.Errorf("socket is bound to %s, which peers cannot reach", addr)
	}
	buffer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return PlaneAddr{}, fmt.Errorf("receive buffer: %w", err)
	}
	return PlaneAddr{Addr: addr, Buffer: buffer}, nil
}
