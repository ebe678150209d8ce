package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/shim/topology"
)

// transportRDMA, as LIGHTPATH_TRANSPORT: packet planes are ports of RDMA devices.
const transportRDMA = "rdma"

// verbs opens RDMA devices, nil where the program holds no binding.
var verbs rdma.Verbs

// UseVerbs sets what opens RDMA devices, before the first communicator is made.
func UseVerbs(v rdma.Verbs) { verbs = v }

// IB is what NCCL_IB_* variables say.
type IB struct {
	HCAs         topology.HCAs
	GIDIndex     int // -1: chosen
	Timeout      int
	Retries      int
	TrafficClass int
	ServiceLevel int
}

// attachRDMA makes the packet planes of ports of this host. All ranks tell each other their queue
// pairs' numbers through the leader, and no rank returns before all have what they need to receive.
func (c *Comm) attachRDMA() error {
	mine, err := c.rdmaPlanes()
	if err != nil {
		return err
	}
	ib := &c.cfg.IB
	l, err := rdma.Listen(rdma.ListenOptions{
		Rank: c.args.Rank, Ranks: c.args.Ranks, Planes: mine.planes,
		Timeout: uint8(ib.Timeout), Retries: uint8(ib.Retries), TrafficClass: uint8(ib.TrafficClass), ServiceLevel: uint8(ib.ServiceLevel),
	})
	if err != nil {
		return errors.Join(fmt.Errorf("ports %s: %w", mine, err), mine.close())
	}
	addrs, err := exchangePlanes(c, l.Addrs())
	var e *rdma.Endpoint
	if err == nil {
		e, err = rdma.Connect(l, rdma.Options{Addrs: addrs})
	}
	if err != nil {
		return errors.Join(err, l.Close(), mine.close())
	}
	c.log.info(subNet, "rdma: rank %d uses %s", c.args.Rank, mine)
	c.setPacket(&rdmaEndpoint{e, sync.OnceValue(mine.close)})
	return nil
}

// rdmaPorts are a rank's ends of planes and the devices they are on.
type rdmaPorts struct {
	used    []topology.HCA
	devices map[string]rdma.Device
	planes  []rdma.PlaneOptions
}

// rdmaPlanes opens the ports that this rank uses, one for each packet plane.
func (c *Comm) rdmaPlanes() (p *rdmaPorts, err error) {
	if verbs == nil {
		return nil, fmt.Errorf("this program holds no RDMA verbs: %w", ErrInvalidUsage)
	}
	names, err := verbs.Names()
	if err != nil {
		return nil, err
	}
	chosen := c.cfg.IB.HCAs.Select(names)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("none of the RDMA devices of this host %q is one of NCCL_IB_HCA: %w", names, ErrInvalidUsage)
	}
	local := 0
	for i := range c.args.Rank {
		if c.table[i].Host == c.table[c.args.Rank].Host {
			local++
		}
	}
	p = &rdmaPorts{devices: map[string]rdma.Device{}}
	if p.used, err = topology.OnPlanes(chosen, c.cfg.Planes, local); err != nil {
		return nil, fmt.Errorf("NCCL_IB_HCA: %w: %w", err, ErrInvalidUsage)
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
	transport.Endpoint
	devices func() error
}

// Close implements transport.Endpoint.
func (e *rdmaEndpoint) Close() error { return errors.Join(e.Endpoint.Close(), e.devices()) }

// exchangePlanes tells every rank where the others' ends of planes are.
func exchangePlanes[A any](c *Comm, mine A) ([]A, error) {
	if c.args.Rank != 0 {
		body, err := json.Marshal(mine)
		if err != nil {
			return nil, err
		}
		if err := c.star.toLeader(&message{Kind: msgPlanes, Body: body}); err != nil {
			return nil, err
		}
		m, err := c.await(msgPlanes, 0)
		if err != nil {
			return nil, err
		}
		var all []A
		if err := decodeStrict(m.Body, &all); err != nil {
			return nil, err
		}
		if len(all) != c.args.Ranks {
			return nil, fmt.Errorf("%w: planes of %d ranks", errMessage, len(all))
		}
		return all, nil
	}
	all := make([]A, c.args.Ranks)
	all[0] = mine
	for range c.args.Ranks - 1 {
		m, err := c.await(msgPlanes, 0)
		if err != nil {
			return nil, err
		}
		if err := decodeStrict(m.Body, &all[m.From]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", m.From, err)
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	c.star.broadcast(&message{Kind: msgPlanes, Body: body}, -1)
	return all, nil
}
