// Package ebpf is the transport over interfaces whose circuits switch: planes in the kernel
// (package ocsctl/kernel), or NICs behind real switches. A frame is one UDP datagram, sent and
// received in batches by system calls that never block, from the goroutine that drives the rank.
//
// Layer: inside collectives/transport. It knows neither circuits nor the kernel's programs: it
// is given sockets, addresses and counters. It must not send anything but data on a plane, since
// circuits lead one way: what travels backwards goes over the control network.
//
// # Lossless by credits
//
// A receiver's socket has room for a window of frames from each rank. It tells each sender how
// many it has consumed, as a cumulative count, over one UDP socket per endpoint on the control
// network; a sender is never further ahead than the window. Counts may be lost, repeated or
// late: a sender that stands still for want of one asks again. They carry a MAC under the
// communicator's secret, and a count that goes beyond what was sent is no count.
//
// # Order
//
// Frames of one flow can overtake each other where several processors serve one queue, so every
// frame carries a sequence number and is put in its place.
//
// # Loss
//
// The switch's counters say what has left this rank's wire, its own frames and those that the
// kernel steered through it: [transport.Plane.Drained] compares. A count of frames dropped, or of
// a full socket, is [transport.ErrDark]. Nobody answers for a peer that is gone: that is the
// control star's to notice, and an ICMP error is no loss.
package ebpf

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport/internal/counts"
)

// Counters is what the kernel counts at one port, over its life and for all who use it. All
// methods are a few atomic loads. Implemented by ocsctl/kernel.
type Counters interface {
	// Offered is how many frames have been given to the port's queues: this rank's own, and
	// those steered through it.
	Offered() uint64
	// Sent is how many of them the switch has taken: they have left the wire, whatever became
	// of them then.
	Sent() uint64
	// Dropped is how many of those were lost, on a dark circuit and on a wrong one.
	Dropped() (dark, misdirected uint64)
	// TransitOp says how much the rank has steered of one operation, the latest: the payload
	// bytes in the low 40 bits, the operation's tag (see the frame format) in the high 24. A
	// frame is in Offered before it is in here.
	TransitOp() uint64
}

// PlaneOptions are a rank's end of one plane.
type PlaneOptions struct {
	// FD is a UDP socket, bound to this rank's address on the plane and to a port that is this
	// endpoint's alone. Its receive buffer decides the window. It stays the caller's: the
	// endpoint works on a duplicate.
	FD int
	// MTU is the most bytes of an IP packet, the same on all ranks.
	MTU int
	// Counters of the port; nil where there are none, as on a NIC. Nothing is steered then, and
	// drained means that the NIC has sent everything.
	Counters Counters
	// BitsPerSecond is the plane's rate, 0 if unknown: it tells how soon a look at the
	// counters may pay.
	BitsPerSecond float64
}

// ListenOptions describe a rank before it knows the others.
type ListenOptions struct {
	Planes []PlaneOptions
	// Control is "host:port" on the control network; port 0 picks a free one.
	Control string
}

// Addrs is what other ranks must know of one; the bootstrap carries it.
type Addrs struct {
	Control netip.AddrPort `json:"control"`
	Planes  []PlaneAddr    `json:"planes"`
}

// PlaneAddr is a rank's end of one plane as others see it.
type PlaneAddr struct {
	Addr netip.AddrPort `json:"addr"`
	// Buffer is the socket's receive buffer in bytes, bookkeeping included (SO_RCVBUF).
	Buffer int `json:"buffer"`
	MTU    int `json:"mtu"`
}

// Listener holds a rank's sockets until it is connected. Not safe for concurrent use.
type Listener struct {
	planes  []PlaneOptions // FD: duplicates, -1 once an endpoint has them
	control int
	addrs   Addrs
}

// Listen opens the control socket and takes over the planes' sockets.
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

// Addrs returns what the other ranks must know.
func (l *Listener) Addrs() Addrs { return l.addrs }

// Close closes the sockets that no endpoint has taken over. Idempotent.
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

// inspect reads a plane's socket.
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
		return PlaneAddr{}, fmt.Errorf("socket is bound to %s, which others cannot reach", addr)
	}
	buffer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return PlaneAddr{}, fmt.Errorf("receive buffer: %w", err)
	}
	return PlaneAddr{Addr: addr, Buffer: buffer}, nil
}
