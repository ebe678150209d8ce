package endpoints

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/ebpf"
	"lightpath/ocsctl"
	"lightpath/ocsctl/kernel"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// interfaces are this rank's ends of planes over network interfaces.
type interfaces struct {
	planes []ebpf.PlaneOptions
	close  func() error
}

// openInterfaces opens this rank's ends of the planes: the interfaces of `lightpath fabric up` on this host, or the
// ones that the fabric file names.
func openInterfaces(fab *Fabric, at *Controller) (*interfaces, error) {
	port := at.Port()
	state, err := kernel.Load(kernel.NameFor(fab.Fabric, port))
	switch {
	case err == nil && state.Digest != fab.Digest():
		return nil, fmt.Errorf("fabric %s that is up on this host was made from another file (%.12s) than %s (%.12s): %w",
			state.Name, state.Digest, fab.Path, fab.Digest(), errdefs.ErrInvalidUsage)
	case err == nil:
		return openKernel(state, port)
	case !errors.Is(err, kernel.ErrNotUp) || at.DataPlane() == ocsctl.DataKernel:
		return nil, err
	}
	return openNICs(fab)
}

// openKernel opens a port of planes in the kernel.
func openKernel(state *kernel.State, port int) (*interfaces, error) {
	p, err := kernel.Attach(state, port)
	if err != nil {
		return nil, err
	}
	in := &interfaces{close: p.Close}
	for j := range p.Planes {
		rp := &p.Planes[j]
		in.planes = append(in.planes, ebpf.PlaneOptions{FD: rp.FD, MTU: rp.MTU, Counters: rp.Counters,
			BitsPerSecond: float64(state.Planes[j].Rate)})
	}
	return in, nil
}

// openNICs opens sockets on the interfaces of the fabric file. Such planes cannot forward.
func openNICs(fab *Fabric) (*interfaces, error) {
	in := &interfaces{}
	in.close = func() (err error) {
		for _, p := range in.planes {
			err = errors.Join(err, unix.Close(p.FD))
		}
		return err
	}
	if fab.Forwarding {
		return nil, fmt.Errorf("fabric %s: forwarding: interfaces of this host forward nothing, only planes of "+
			"`lightpath fabric up` do: %w", fab.Path, errdefs.ErrInvalidUsage)
	}
	for j := range fab.Planes {
		p, err := openNIC(fab.Planes[j].Interface)
		if err != nil {
			_ = in.close()
			return nil, fmt.Errorf("fabric %s: plane %s: interface %q: %w", fab.Path, fab.Planes[j].Name,
				fab.Planes[j].Interface, err)
		}
		p.BitsPerSecond = float64(fab.Planes[j].Bandwidth)
		in.planes = append(in.planes, p)
	}
	return in, nil
}

// openNIC opens a socket on an interface, at its first address.
func openNIC(name string) (p ebpf.PlaneOptions, err error) {
	if name == "" {
		return p, fmt.Errorf("missing: planes that are not in the controller's memory need one: %w", errdefs.ErrInvalidUsage)
	}
	nic, err := net.InterfaceByName(name)
	if err != nil {
		return p, err
	}
	addr, isV6, ok := control.UsableAddress(*nic)
	if !ok {
		return p, fmt.Errorf("it has no address: %w", errdefs.ErrInvalidUsage)
	}
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: addr.As16()})
	if !isV6 {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Addr: addr.As4()}
	}
	p.MTU = min(nic.MTU, maxDatagram)
	if p.FD, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return p, err
	}
	if unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, nicBuffer) != nil {
		// Without the capability for a larger buffer, the system's limit applies. The windows follow from the size.
		err = unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_RCVBUF, nicBuffer)
	}
	if err == nil {
		err = unix.BindToDevice(p.FD, name)
	}
	if err == nil {
		err = unix.Bind(p.FD, at)
	}
	if err != nil {
		_ = unix.Close(p.FD)
	}
	return p, err
}

const (
	// maxDatagram bounds frames, in bytes, on interfaces without a small MTU, such as loopback.
	maxDatagram = 9000
	// nicBuffer is the size of the receive buffer in bytes.
	nicBuffer = 16 << 20
)

// joinSteered connects planes over network interfaces. Each rank opens its own ends, and all ranks exchange their
// addresses: a rank knows its port only when all ranks have come.
func joinSteered(c *comm.Core, fab *Fabric, at *Controller) (transport.Endpoint, error) {
	in, err := openInterfaces(fab, at)
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d: transport %s: %w", c.Rank, settings.TransportEBPF, err)
	}
	e, err := connectSteered(c, in)
	if err != nil {
		_ = in.close()
		return nil, fmt.Errorf("shim: rank %d: transport %s: %w", c.Rank, settings.TransportEBPF, err)
	}
	return &steeredEndpoint{e, sync.OnceValue(in.close)}, nil
}

func connectSteered(c *comm.Core, in *interfaces) (transport.Endpoint, error) {
	ip, err := control.Address(c.Cfg.ControlInterfaces())
	if err != nil {
		return nil, err
	}
	l, err := ebpf.Listen(ebpf.ListenOptions{Planes: in.planes, Control: netip.AddrPortFrom(ip, 0).String()})
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // sockets that the endpoint has not taken over
	addrs, err := comm.Exchange(c, l.Addrs())
	if err != nil {
		return nil, err
	}
	return ebpf.Connect(l, ebpf.Options{Rank: c.Rank, Addrs: addrs, Comm: c.ID, Secret: creditSecret(c)})
}

// creditSecret returns the secret that authenticates credits between the ends of the planes.
func creditSecret(c *comm.Core) (key [ebpf.SecretSize]byte) {
	copy(key[:], control.Proof(c.Secret, "planes", binary.LittleEndian.AppendUint64(nil, c.ID), nil))
	return key
}

// steeredEndpoint is an endpoint that also closes the sockets of its planes.
type steeredEndpoint struct {
	transport.Endpoint
	interfaces func() error
}

// Close implements transport.Endpoint.
func (e *steeredEndpoint) Close() error { return errors.Join(e.Endpoint.Close(), e.interfaces()) }
