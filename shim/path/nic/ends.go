package nic

import (
	"errors"
	"fmt"

	"lightpath/collectives/transport/messages"
	"lightpath/collectives/transport/netplugin"
	"lightpath/collectives/transport/rdma/rendezvous"
	"lightpath/shim/circuits"
	"lightpath/shim/device"
	"lightpath/shim/endpoints"
)

// ends are a rank's ends of the lanes: RDMA ports, or devices of a network plugin.
type ends interface {
	fmt.Stringer
	// listen opens the ends. It returns their addresses and the number of lanes.
	listen(x *Path) (mine offer, lanes int, err error)
	// connect connects them to those of all ranks. failed is why this rank stages; err, why the communicator ends.
	connect(x *Path, all []offer) (e messages.Endpoint, failed, err error)
	// ways returns how the ends can register device memory, the best way first: by its address, or as a dma-buf.
	ways(a device.RemoteAccess) (byAddress []bool)
	// Close closes the ends. The caller closes the endpoint of connect before.
	Close() error
}

// offer is a rank's message to the others: the addresses of its ends, or why it has none.
type offer struct {
	Ports  rendezvous.Addrs
	Plugin netplugin.Addrs
	Why    string
}

var errNoBuf = errors.New("the CUDA driver gives no dma-buf of this device's memory (the open kernel modules do)")

// ports are ends at RDMA ports.
type ports struct {
	*endpoints.Ports
	end *rendezvous.Endpoint
}

func (p *ports) listen(x *Path) (mine offer, lanes int, err error) {
	switch {
	case !x.access.DMABufs:
		return mine, 0, errNoBuf
	case !x.access.Ordered && !x.access.Flushes:
		return mine, 0, errors.New("this device does not order what others write to its memory, and the CUDA driver cannot " +
			"flush it")
	}
	c, hcas, planes := x.c, x.c.Cfg.IB.HCAs, x.c.Cfg.Planes
	if x.circuits {
		hcas, planes = circuits.Of(c).HCAs, len(circuits.Of(c).Site.Planes)
	}
	if p.Ports, err = endpoints.OpenPorts(c, hcas, planes); err != nil {
		return mine, 0, err
	}
	p.end, mine.Ports, err = rendezvous.Listen(rendezvous.Options{
		Rank: c.Rank, Ranks: c.Ranks, Planes: p.Planes, Circuits: x.circuits, Service: endpoints.RDMAService(c),
	})
	if err != nil {
		return mine, 0, fmt.Errorf("%s: %w", p, err)
	}
	x.access.flush = !x.access.Ordered
	return mine, planes, nil
}

func (p *ports) connect(_ *Path, all []offer) (e messages.Endpoint, failed, err error) {
	addrs := make([]rendezvous.Addrs, len(all))
	for r := range all {
		addrs[r] = all[r].Ports
	}
	return p.end, p.end.Connect(addrs), nil
}

func (p *ports) ways(device.RemoteAccess) []bool { return []bool{false} }

func (p *ports) String() string { return "ports " + p.Ports.String() }

func (p *ports) Close() (err error) {
	if p.end != nil {
		err = p.end.Close()
	}
	if p.Ports != nil {
		err = errors.Join(err, p.Ports.Close())
	}
	return err
}

// plugin are ends at devices of a network plugin. The plugin flushes received data, and not the driver.
type plugin struct{ *endpoints.PluginPorts }

func (p *plugin) listen(x *Path) (mine offer, lanes int, err error) {
	if p.PluginPorts, err = endpoints.OpenPlugin(x.c); err != nil {
		return mine, 0, err
	}
	switch {
	case !p.DMABufs && !p.Addresses:
		return mine, 0, fmt.Errorf("%s: its devices reach memory of hosts only", p)
	case len(p.ways(x.access.RemoteAccess)) == 0:
		return mine, 0, fmt.Errorf("%s: its devices reach memory of GPUs by dma-bufs only, and %w", p, errNoBuf)
	}
	mine.Plugin = p.Addrs()
	return mine, x.c.Cfg.Planes, nil
}

func (p *plugin) connect(x *Path, all []offer) (e messages.Endpoint, failed, err error) {
	addrs := make([]netplugin.Addrs, len(all))
	for r := range all {
		addrs[r] = all[r].Plugin
	}
	m, err := p.Connect(x.c, addrs, !x.access.Ordered || p.MustFlush)
	if err != nil {
		return nil, nil, fmt.Errorf("shim: rank %d: device memory over %s: %w", x.c.Rank, p, err)
	}
	return m, nil, nil
}

func (p *plugin) ways(a device.RemoteAccess) (byAddress []bool) {
	if a.DMABufs && p.DMABufs {
		byAddress = append(byAddress, false)
	}
	if p.Addresses {
		byAddress = append(byAddress, true)
	}
	return byAddress
}

func (p *plugin) Close() error {
	if p.PluginPorts == nil {
		return nil
	}
	return p.PluginPorts.Close()
}
