package shim

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/plans"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/settings"
	"lightpath/shim/topology"
)

// verbs opens RDMA devices, nil where the program holds no binding.
var verbs rdma.Verbs

// UseVerbs sets what opens RDMA devices, before the first communicator is made.
func UseVerbs(v rdma.Verbs) { verbs = v }

// attachRDMA makes the packet planes of ports of this host.
func attachRDMA(c *comm.Core, sec control.Secret) error {
	mine, err := rdmaPlanes(c, c.Cfg.IB.HCAs, c.Cfg.Planes)
	if err != nil {
		return err
	}
	// Without acknowledgements what travels backwards needs another way.
	e, err := connectRDMA(c, mine, rdmaWays{unacknowledged: c.Cfg.IB.Mode == settings.RDMAUC, aside: c.Cfg.IB.Mode == settings.RDMAUC}, sec)
	if err != nil {
		return err
	}
	setPacket(c, e)
	return nil
}

// overRDMA reports whether the fabric file says that all planes end at RDMA ports.
func (f *fabricInfo) overRDMA() bool {
	for j := range f.Planes {
		if f.Planes[j].HCA == "" {
			return false
		}
	}
	return true
}

// attachRDMACircuits makes the planes whose circuits switch of RDMA ports: those that NCCL_IB_HCA
// says, else those of the fabric file. Only circuits that lead both ways can carry acknowledgements, and
// nothing else may travel backwards: it might find the circuit gone.
func (o *optical) attachRDMACircuits(fab *fabricInfo, sec control.Secret) (transport.Endpoint, error) {
	c := o.c
	ways := rdmaWays{aside: true, unacknowledged: fab.Circuits != plans.Duplex || c.Cfg.IB.Mode == settings.RDMAUC}
	hcas := c.Cfg.IB.HCAs
	switch {
	case fab.Forwarding:
		return nil, fmt.Errorf("fabric %s: forwarding: RDMA ports of this host forward nothing: %w", fab.path, errdefs.ErrInvalidUsage)
	case ways.unacknowledged && c.Cfg.IB.Mode == settings.RDMARC:
		return nil, fmt.Errorf("fabric %s: LIGHTPATH_RDMA_MODE=%s: circuits are %s: no way back for acknowledgements: %w", fab.path, settings.RDMARC, fab.Circuits, errdefs.ErrInvalidUsage)
	case len(hcas.Entries) == 0:
		hcas.Exact = true
		for j := range fab.Planes {
			h, err := topology.ParseHCA(fab.Planes[j].HCA)
			if err != nil {
				return nil, fmt.Errorf("fabric %s: plane %s: hca: %w: %w", fab.path, fab.Planes[j].Name, err, errdefs.ErrInvalidUsage)
			}
			h.Plane = j
			hcas.Entries = append(hcas.Entries, h)
		}
	}
	o.hcas = hcas
	if ban := c.Cfg.NCCL.NoRDMA; ban != "" {
		c.Log.Warn("%s is not used: fabric %s comes before it.", ban, fab.path)
	}
	mine, err := rdmaPlanes(c, hcas, len(fab.Planes))
	if err != nil {
		return nil, err
	}
	return connectRDMA(c, mine, ways, sec)
}

// rdmaWays is how queue pairs are used: without acknowledgements or with, and with counts over the
// control network or on the planes.
type rdmaWays struct{ unacknowledged, aside bool }

// connectRDMA joins ports of this rank, which it takes over, to those of the others. All ranks tell
// each other their queue pairs' numbers through the leader, and no rank returns before all have what they
// need to receive.
func connectRDMA(c *comm.Core, mine *rdmaPorts, ways rdmaWays, sec control.Secret) (_ transport.Endpoint, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, mine.close())
		}
	}()
	ib := &c.Cfg.IB
	o := rdma.ListenOptions{
		Rank: c.Rank, Ranks: c.Ranks, Planes: mine.planes, Unacknowledged: ways.unacknowledged,
		Timeout: uint8(ib.Timeout), Retries: uint8(ib.Retries), TrafficClass: uint8(ib.TrafficClass), ServiceLevel: uint8(ib.ServiceLevel),
	}
	if ways.aside {
		ip, err := control.Address(c.Cfg.ControlInterfaces())
		if err != nil {
			return nil, err
		}
		o.Control = netip.AddrPortFrom(ip, 0).String()
	}
	l, err := rdma.Listen(o)
	if err != nil {
		return nil, fmt.Errorf("ports %s: %w", mine, err)
	}
	addrs, err := comm.Exchange(c, l.Addrs())
	var e *rdma.Endpoint
	if err == nil {
		e, err = rdma.Connect(l, rdma.Options{Addrs: addrs, Comm: c.ID, Secret: creditSecret(sec, c.ID)})
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	c.Log.Info(log.Net, "rdma: rank %d uses %s", c.Rank, mine)
	return &rdmaEndpoint{e, sync.OnceValue(func() error {
		t := e.Traffic()
		c.Log.Info(log.Net, "rdma: rank %d has sent %d bytes from registered memory and %d by way of copies", c.Rank, t.Lent, t.Copied)
		return mine.close()
	})}, nil
}

// rdmaPorts are a rank's ends of planes and the devices they are on.
type rdmaPorts struct {
	used    []topology.HCA
	devices map[string]rdma.Device
	planes  []rdma.PlaneOptions
}

// rdmaPlanes opens the ports that this rank uses, one for each plane.
func rdmaPlanes(c *comm.Core, hcas topology.HCAs, planes int) (p *rdmaPorts, err error) {
	if verbs == nil {
		return nil, fmt.Errorf("this program holds no RDMA verbs: %w", errdefs.ErrInvalidUsage)
	}
	names, err := verbs.Names()
	if err != nil {
		return nil, err
	}
	chosen := hcas.Select(names)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none of the RDMA devices of this host %q is one of NCCL_IB_HCA: %w", names, errdefs.ErrInvalidUsage)
	}
	local := 0
	for i := range c.Rank {
		if c.Table[i].Host == c.Table[c.Rank].Host {
			local++
		}
	}
	p = &rdmaPorts{devices: map[string]rdma.Device{}}
	if p.used, err = topology.OnPlanes(chosen, planes, local); err != nil {
		return nil, fmt.Errorf("NCCL_IB_HCA: %w: %w", err, errdefs.ErrInvalidUsage)
	}
	for _, h := range p.used {
		d := p.devices[h.Device]
		if d == nil {
			if d, err = verbs.Open(h.Device); err != nil {
				return nil, errors.Join(err, p.close())
			}
			p.devices[h.Device] = d
		}
		p.planes = append(p.planes, rdma.PlaneOptions{Device: d, Port: h.Port, GIDIndex: c.Cfg.IB.GIDIndex})
	}
	return p, nil
}

func (p *rdmaPorts) String() string {
	s := ""
	for j, h := range p.used {
		if j > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s:%d on plane %d", h.Device, h.Port, j)
	}
	return s
}

func (p *rdmaPorts) close() (err error) {
	for _, d := range p.devices {
		err = errors.Join(err, d.Close())
	}
	return err
}

// rdmaEndpoint closes its devices after itself.
type rdmaEndpoint struct {
	*rdma.Endpoint
	devices func() error
}

var _ transport.Registrar = (*rdmaEndpoint)(nil)

// Close implements transport.Endpoint.
func (e *rdmaEndpoint) Close() error { return errors.Join(e.Endpoint.Close(), e.devices()) }
