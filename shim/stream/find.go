package stream

import (
	"errors"

	"lightpath/internal/brief"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
)

var (
	// errNoContext is the usual reason why a communicator has no device.
	errNoContext = errors.New("no CUDA context was current on the thread that made it")
	// errNoPeers reports a driver without access to memory of other devices.
	errNoPeers = errors.New("the driver's binding has no memory of peers")
)

// Find sets the communicator's device: the requested one, or the device of the calling thread's context. parent is the
// communicator that it comes from, nil for none. Programs without a device, or with a driver that fails, can still
// communicate.
func Find(c, parent *comm.Core) {
	defer func() { c.Device = max(c.Device, 0) }()
	facts := calls.FactsOf(c)
	if parent != nil && Of(parent) == nil {
		facts.NoDevice = calls.FactsOf(parent).NoDevice
		return
	}
	facts.NoDevice = errNoContext
	if device.Active() == nil {
		return
	}
	current, uses, err := device.Active().Current()
	switch {
	case err != nil:
		facts.NoDevice = err
		return
	case !uses:
		return
	}
	if c.Device < 0 {
		c.Device = current
	}
	if c.Device >= 0 {
		facts.NoDevice = nil
		d := &Device{}
		deviceSlot.Set(c, d)
		d.findContext(c, parent, current)
		d.Pool = PoolOf(d.Context, c.Device)
		addDevice(d)
		c.AddHooks(comm.Hooks{Closed: func() { removeDevice(d) }})
	}
}

// findContext finds the context of the communicator's device and the device's identity, which other ranks need. It
// takes the calling thread's context if that belongs to the device, otherwise the primary context.
func (d *Device) findContext(c, parent *comm.Core, current int) {
	p, ok := device.Active().(device.Peers)
	if !ok {
		d.NoPeers = errNoPeers
		return
	}
	if parent != nil {
		from := Of(parent)
		d.Context, d.Identity, d.NoPeers = from.Context, from.Identity, from.NoPeers
		return
	}
	if current == c.Device {
		d.Context, d.NoPeers = p.Context()
	}
	if d.Context == 0 && d.NoPeers == nil {
		d.Context, d.NoPeers = p.PrimaryContext(c.Device)
	}
	if d.NoPeers != nil {
		return
	}
	if d.NoPeers = p.EnterContext(d.Context); d.NoPeers == nil {
		d.Identity, d.NoPeers = p.Identity()
		p.Leave()
	}
}

// Describe writes into a hello which device the rank has, or why no other rank can access it.
func Describe(c *comm.Core, h *bootstrap.Hello) {
	d := Of(c)
	switch why := calls.FactsOf(c).NoDevice; {
	case d == nil && why != nil:
		h.NoDevice = why.Error()
	case d == nil:
	case d.NoPeers != nil:
		h.NoDevice = d.NoPeers.Error()
	default:
		h.Identity = d.Identity
	}
	h.Device = d != nil
	h.NoDevice = brief.Text(h.NoDevice, 256)
}
