package endpoints

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

// verbs opens RDMA devices; nil if the program has no binding of them.
var verbs rdma.Verbs

// UseVerbs sets the binding that opens RDMA devices, and returns the previous one. Call it before the first
// communicator is made.
func UseVerbs(v rdma.Verbs) (before rdma.Verbs) {
	before, verbs = verbs, v
	return before
}

// packetRDMA makes packet planes from ports of this host.
func packetRDMA(c *comm.Core) (transport.Endpoint, error) {
	mine, err := OpenPorts(c, c.Cfg.IB.HCAs, c.Cfg.Planes)
	if err != nil {
		return nil, err
	}
	// Without acknowledgements, counts need another way back.
	uc := c.Cfg.IB.Mode == settings.RDMAUC
	return connectRDMA(c, mine, rdmaWays{unacknowledged: uc, aside: uc})
}

// overRDMA reports whether all planes of the fabric file end at RDMA ports.
func (f *Fabric) overRDMA() bool {
	for j := range f.Planes {
		if f.Planes[j].HCA == "" {
			return false
		}
	}
	return true
}

// circuitsRDMA makes planes with circuits from RDMA ports: those of NCCL_IB_HCA, else those of the fabric file. Only
// duplex circuits can carry acknowledgements. No other data may travel back, because the circuit might have moved.
func circuitsRDMA(c *comm.Core, fab *Fabric) (_ transport.Endpoint, hcas topology.HCAs, err error) {
	ways := rdmaWays{aside: true, unacknowledged: fab.Circuits != plans.Duplex || c.Cfg.IB.Mode == settings.RDMAUC}
	hcas = c.Cfg.IB.HCAs
	switch {
	case fab.Forwarding:
		return nil, hcas, fmt.Errorf("fabric %s: forwarding: RDMA ports of this host forward nothing: %w", fab.Path,
			errdefs.ErrInvalidUsage)
	case ways.unacknowledged && c.Cfg.IB.Mode == settings.RDMARC:
		return nil, hcas, fmt.Errorf("fabric %s: LIGHTPATH_RDMA_MODE=%s: circuits are %s: no way back for "+
			"acknowledgements: %w", fab.Path, settings.RDMARC, fab.Circuits, errdefs.ErrInvalidUsage)
	case len(hcas.Entries) == 0:
		hcas.Exact = true
		for j := range fab.Planes {
			h, err := topology.ParseHCA(fab.Planes[j].HCA)
			if err != nil {
				return nil, hcas, fmt.Errorf("fabric %s: plane %s: hca: %w: %w", fab.Path, fab.Planes[j].Name, err,
					errdefs.ErrInvalidUsage)
			}
			h.Plane = j
			hcas.Entries = append(hcas.Entries, h)
		}
	}
	if ban := c.Cfg.NCCL.NoRDMA; ban != "" {
		c.Log.Warn("%s is not used: fabric %s comes before it.", ban, fab.Path)
	}
	mine, err := OpenPorts(c, hcas, len(fab.Planes))
	if err != nil {
		return nil, hcas, err
	}
	e, err := connectRDMA(c, mine, ways)
	return e, hcas, err
}

// rdmaWays says how queue pairs are used: with or without acknowledgements, and with counts over the control network
// (aside) or on the planes.
type rdmaWays struct{ unacknowledged, aside bool }

// RDMAService returns the settings for packets of RDMA.
func RDMAService(c *comm.Core) rdma.Service {
	ib := &c.Cfg.IB
	return rdma.Service{
		Timeout: uint8(ib.Timeout), Retries: uint8(ib.Retries), TrafficClass: uint8(ib.TrafficClass),
		ServiceLevel: uint8(ib.ServiceLevel),
	}
}

// connectRDMA connects ports of this rank, which it takes over, to the ports of the other ranks. The ranks exchange the
// numbers of their queue pairs through the leader. No rank returns before all are ready to receive.
func connectRDMA(c *comm.Core, mine *Ports, ways rdmaWays) (_ transport.Endpoint, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, mine.Close())
		}
	}()
	o := rdma.ListenOptions{
		Rank: c.Rank, Ranks: c.Ranks, Planes: mine.Planes, Unacknowledged: ways.unacknowledged, Service: RDMAService(c),
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
		e, err = rdma.Connect(l, rdma.Options{Addrs: addrs, Comm: c.ID, Secret: creditSecret(c), Lost: c.Spread})
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	c.Log.Info(log.Net, "rdma: rank %d uses %s", c.Rank, mine)
	return &RDMA{e, sync.OnceValue(func() error {
		t := e.Traffic()
		c.Log.Info(log.Net, "rdma: rank %d has sent %d bytes from registered memory and %d by way of copies",
			c.Rank, t.Lent, t.Copied)
		return mine.Close()
	})}, nil
}

// Ports are a rank's ends of planes, and their devices.
type Ports struct {
	used    []topology.HCA
	devices map[string]rdma.Device
	Planes  []rdma.PlaneOptions
}

// OpenPorts opens the ports that this rank uses, one for each plane.
func OpenPorts(c *comm.Core, hcas topology.HCAs, planes int) (p *Ports, err error) {
	if verbs == nil {
		return nil, fmt.Errorf("this program holds no RDMA verbs: %w", errdefs.ErrInvalidUsage)
	}
	names, err := verbs.Names()
	if err != nil {
		return nil, err
	}
	chosen := hcas.Select(names)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none of the RDMA devices of this host %q is one of NCCL_IB_HCA: %w", names,
			errdefs.ErrInvalidUsage)
	}
	p = &Ports{devices: map[string]rdma.Device{}}
	if p.used, err = topology.OnPlanes(chosen, planes, localRank(c)); err != nil {
		return nil, fmt.Errorf("NCCL_IB_HCA: %w: %w", err, errdefs.ErrInvalidUsage)
	}
	for _, h := range p.used {
		d := p.devices[h.Device]
		if d == nil {
			if d, err = verbs.Open(h.Device); err != nil {
				return nil, errors.Join(err, p.Close())
			}
			p.devices[h.Device] = d
		}
		p.Planes = append(p.Planes, rdma.PlaneOptions{Device: d, Port: h.Port, GIDIndex: c.Cfg.IB.GIDIndex})
	}
	return p, nil
}

// localRank returns the number of lower ranks on this host.
func localRank(c *comm.Core) (local int) {
	for i := range c.Rank {
		if c.Table[i].Host == c.Table[c.Rank].Host {
			local++
		}
	}
	return local
}

func (p *Ports) String() string {
	s := ""
	for j, h := range p.used {
		if j > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s:%d on plane %d", h.Device, h.Port, j)
	}
	return s
}

// Close closes the devices.
func (p *Ports) Close() (err error) {
	for _, d := range p.devices {
		err = errors.Join(err, d.Close())
	}
	return err
}

// RDMA is an endpoint that also closes its devices.
type RDMA struct {
	*rdma.Endpoint
	devices func() error
}

var _ transport.Registrar = (*RDMA)(nil)

// Close implements transport.Endpoint.
func (e *RDMA) Close() error { return errors.Join(e.Endpoint.Close(), e.devices()) }
