package nic

import (
	"cmp"
	"errors"
	"fmt"

	"lightpath/collectives/transport/rdma/rendezvous"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/steps"
	"lightpath/shim/stream"
)

// errNoExport reports a driver whose memory no port can access.
var errNoExport = errors.New("the driver's binding exports no memory for other devices")

// whyNot returns why ranks cannot try to give ports access to device memory, "" if they can. It is a pure function of
// values that all ranks share. overCircuits says that the planes' circuits switch; see whyNotOverCircuits.
func whyNot(table []bootstrap.Hello, cfg *settings.Config, overCircuits bool) string {
	kind, _ := endpoints.ChooseTransport(table, cfg) // the same choice succeeded before
	switch {
	case len(table) == 1:
		return "the communicator has one rank"
	case !overCircuits && kind != settings.TransportRDMA:
		return "the packet planes are no RDMA ports (LIGHTPATH_TRANSPORT=" + cfg.Transport + ")"
	case cfg.IB.Mode == settings.RDMAUC:
		return "LIGHTPATH_RDMA_MODE=uc: messages need acknowledgements"
	case cfg.Interpose:
		return "LIGHTPATH_FALLBACK=interpose leaves device memory to the other library"
	}
	for i := range table {
		switch h := &table[i]; {
		case h.NoRemote != "":
			return h.Where() + ": " + h.NoRemote
		case h.Identity == "":
			return h.Where() + ": " + h.NoDevice
		}
	}
	return ""
}

// offer is a rank's message to the others: the addresses of its queue pairs, or why it has none.
type offer struct {
	Addrs rendezvous.Addrs
	Why   string
}

// Attach gives the ranks' ports access to device memory, on all ranks or on none. It returns why not.
func Attach(c *comm.Core) (why string, err error) {
	if why := whyNot(c.Table, c.Cfg, circuits.Of(c) != nil); why != "" {
		return why, nil
	}
	if o := circuits.Of(c); o != nil {
		_, overRDMA := o.End.(*endpoints.RDMA)
		if why := whyNotOverCircuits(c.Cfg, o.Template.Circuits, overRDMA); why != "" {
			return why, nil
		}
	}
	x := &Path{c: c, ctx: stream.Of(c).Context, circuits: circuits.Of(c) != nil, sent: make([]uint64, c.Ranks),
		wanted: make([]uint64, c.Ranks)}
	defer func() {
		if err != nil || why != "" {
			x.abandon()
		}
	}()
	addrs, failed := x.offer()
	mine := offer{Addrs: addrs}
	if failed != nil {
		mine = offer{Why: errdefs.Cut(failed.Error(), 1024)}
	}
	offers, err := comm.Exchange(c, mine)
	if err != nil {
		return "", err
	}
	all := make([]rendezvous.Addrs, len(offers))
	for r := range offers {
		if all[r] = offers[r].Addrs; offers[r].Why != "" {
			return c.Table[r].Where() + ": " + offers[r].Why, nil
		}
	}
	if why, err = c.Accord(3, x.end.Connect(all)); why != "" || err != nil {
		return why, err
	}
	x.in = stream.NewIssuer(c, stream.Options{
		Wire: x, Lanes: len(x.rooms), Name: algorithm, Without: "staged through host memory", Every: true, Bounces: true,
		Ordered: x.circuits,
	})
	x.work.over, x.work.idle = make(chan struct{}), make([][]*exchange, len(x.rooms))
	slot.Set(c, x)
	stream.Of(c).Launcher = x
	recorder.Of(c).OnDevice(x.ended.Word())
	c.OnFailure(x.end.Wake)
	go x.run()
	go x.in.Watch()
	return "", nil
}

// offer creates this rank's part of the path, and tests that all its ports can register device memory.
func (x *Path) offer() (addrs rendezvous.Addrs, err error) {
	able := false
	if x.driver, able = device.Active().(device.Remote); !able {
		return nil, errNoExport
	}
	if x.circuits && x.c.NonBlocking {
		return nil, errors.New("its calls do not block, and over circuits the first of a shape waits for its plan")
	}
	if err := x.driver.EnterContext(x.ctx); err != nil {
		return nil, err
	}
	defer x.driver.Leave()
	if x.flush, err = x.driver.RemoteWrites(); err != nil {
		return nil, err
	}
	c, ib := x.c, &x.c.Cfg.IB
	if x.ports, err = x.openPorts(); err != nil {
		return nil, err
	}
	x.end, addrs, err = rendezvous.Listen(rendezvous.Options{
		Rank: c.Rank, Ranks: c.Ranks, Planes: x.ports.Planes, Circuits: x.circuits,
		Timeout: uint8(ib.Timeout), Retries: uint8(ib.Retries), TrafficClass: uint8(ib.TrafficClass),
		ServiceLevel: uint8(ib.ServiceLevel),
	})
	if err != nil {
		return nil, fmt.Errorf("ports %s: %w", x.ports, err)
	}
	x.rooms = make([]stream.Memory, len(x.ports.Planes))
	exchange := cmp.Or(c.Cfg.DeviceExchange, settings.DefaultExchange)
	x.piece = exchange / (2 * steps.Rooms) / int64(len(x.rooms)) &^ (calls.PieceAlign - 1)
	if x.rooms[0], err = x.Alloc(leastMemory); err != nil {
		return nil, fmt.Errorf("ports %s: %w", x.ports, err)
	}
	if x.own, err = x.driver.NewStream(); err != nil {
		return nil, err
	}
	if x.joint, err = device.Active().NewEvent(); err != nil {
		return nil, err
	}
	if x.ended, err = memory.Pin(memory.WordSize); err != nil {
		return nil, err
	}
	*x.ended.Word() = 0
	if x.circuits {
		if err := stream.Of(c).Prepare(); err != nil {
			return nil, err
		}
	}
	return addrs, device.Active().LoadKernels()
}

// abandon frees what a failed attempt has created.
func (x *Path) abandon() {
	if x.end != nil {
		_ = x.end.Close()
	}
	if x.ports != nil {
		_ = x.ports.Close()
	}
	if x.driver == nil {
		return
	}
	for _, m := range x.rooms {
		m.Free(x.driver, x.ctx)
	}
	x.free()
}
