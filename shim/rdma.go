package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/plans"
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
func (c *Comm) attachRDMA(sec control.Secret) error {
	mine, err := c.rdmaPlanes(c.cfg.IB.HCAs, c.cfg.Planes)
	if err != nil {
		return err
	}
	// Without acknowledgements what travels backwards needs another way.
	e, err := c.connectRDMA(mine, rdmaWays{unacknowledged: c.cfg.IB.Mode == settings.RDMAUC, aside: c.cfg.IB.Mode == settings.RDMAUC}, sec)
	if err != nil {
		return err
	}
	c.setPacket(e)
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
	ways := rdmaWays{aside: true, unacknowledged: fab.Circuits != plans.Duplex || c.cfg.IB.Mode == settings.RDMAUC}
	hcas := c.cfg.IB.HCAs
	switch {
	case fab.Forwarding:
		return nil, fmt.Errorf("fabric %s: forwarding: RDMA ports of this host forward nothing: %w", fab.path, errdefs.ErrInvalidUsage)
	case ways.unacknowledged && c.cfg.IB.Mode == settings.RDMARC:
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
	if ban := c.cfg.NCCL.NoRDMA; ban != "" {
		c.log.Warn("%s is not used: fabric %s comes before it.", ban, fab.path)
	}
	mine, err := c.rdmaPlanes(hcas, len(fab.Planes))
	if err != nil {
		return nil, err
	}
	return c.connectRDMA(mine, ways, sec)
}

// rdmaWays is how queue pairs are used: without acknowledgements or with, and with counts over the
// control network or on the planes.
type rdmaWays struct{ unacknowledged, aside bool }

// connectRDMA joins ports of this rank, which it takes over, to those of the others. All ranks tell
// each other their queue pairs' numbers through the leader, and no rank returns before all have what they
// need to receive.
func (c *Comm) connectRDMA(mine *rdmaPorts, ways rdmaWays, sec control.Secret) (_ transport.Endpoint, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, mine.close())
		}
	}()
	ib := &c.cfg.IB
	o := rdma.ListenOptions{
		Rank: c.args.Rank, Ranks: c.args.Ranks, Planes: mine.planes, Unacknowledged: ways.unacknowledged,
		Timeout: uint8(ib.Timeout), Retries: uint8(ib.Retries), TrafficClass: uint8(ib.TrafficClass), ServiceLevel: uint8(ib.ServiceLevel),
	}
	if ways.aside {
		ip, err := control.Address(c.cfg.ControlInterfaces())
		if err != nil {
			return nil, err
		}
		o.Control = netip.AddrPortFrom(ip, 0).String()
	}
	l, err := rdma.Listen(o)
	if err != nil {
		return nil, fmt.Errorf("ports %s: %w", mine, err)
	}
	addrs, err := exchangePlanes(c, l.Addrs())
	var e *rdma.Endpoint
	if err == nil {
		e, err = rdma.Connect(l, rdma.Options{Addrs: addrs, Comm: c.id, Secret: creditSecret(sec, c.id)})
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	c.log.Info(log.Net, "rdma: rank %d uses %s", c.args.Rank, mine)
	return &rdmaEndpoint{e, sync.OnceValue(func() error {
		t := e.Traffic()
		c.log.Info(log.Net, "rdma: rank %d has sent %d bytes from registered memory and %d by way of copies", c.args.Rank, t.Lent, t.Copied)
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
func (c *Comm) rdmaPlanes(hcas topology.HCAs, planes int) (p *rdmaPorts, err error) {
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
	for i := range c.args.Rank {
		if c.table[i].Host == c.table[c.args.Rank].Host {
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
		p.planes = append(p.planes, rdma.PlaneOptions{Device: d, Port: h.Port, GIDIndex: c.cfg.IB.GIDIndex})
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

// exchangePlanes tells every rank where the others' ends of planes are.
func exchangePlanes[A any](c *Comm, mine A) ([]A, error) {
	if c.args.Rank != 0 {
		body, err := json.Marshal(mine)
		if err != nil {
			return nil, err
		}
		if err := c.star.ToLeader(&control.Message{Kind: control.MsgPlanes, Body: body}); err != nil {
			return nil, err
		}
		m, err := c.await(control.MsgPlanes, 0)
		if err != nil {
			return nil, err
		}
		var all []A
		if err := control.DecodeStrict(m.Body, &all); err != nil {
			return nil, err
		}
		if len(all) != c.args.Ranks {
			return nil, fmt.Errorf("%w: planes of %d ranks", control.ErrMessage, len(all))
		}
		return all, nil
	}
	all := make([]A, c.args.Ranks)
	all[0] = mine
	for range c.args.Ranks - 1 {
		m, err := c.await(control.MsgPlanes, 0)
		if err != nil {
			return nil, err
		}
		if err := control.DecodeStrict(m.Body, &all[m.From]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", m.From, err)
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	c.star.Broadcast(&control.Message{Kind: control.MsgPlanes, Body: body}, -1)
	return all, nil
}
