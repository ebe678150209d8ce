package nic

import (
	"cmp"
	"errors"
	"fmt"

	"lightpath/internal/brief"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/endpoints"
	"lightpath/shim/log"
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
	plugin := !overCircuits && kind == settings.TransportNet
	switch {
	case len(table) == 1:
		return "the communicator has one rank"
	case !overCircuits && !plugin && kind != settings.TransportRDMA:
		return "the packet planes are neither RDMA ports nor devices of a network plugin (LIGHTPATH_TRANSPORT=" +
			cfg.Transport + ")"
	case !plugin && cfg.IB.Mode == settings.RDMAUC:
		return "LIGHTPATH_RDMA_MODE=uc: messages need acknowledgements"
	case cfg.Other.Interpose:
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

// Attach gives the ranks' ports access to device memory, on all ranks or on none. It returns why not.
func Attach(c *comm.Core) (why string, err error) {
	if why := whyNot(c.Table, c.Cfg, circuits.Of(c) != nil); why != "" {
		return why, nil
	}
	if o := circuits.Of(c); o != nil {
		_, overRDMA := o.End.(*endpoints.RDMA)
		if why := whyNotOverCircuits(c.Cfg, o.Site.Template.Circuits, overRDMA); why != "" {
			return why, nil
		}
	}
	x := &Path{c: c, ctx: stream.Of(c).Context, circuits: circuits.Of(c) != nil}
	x.group.sent, x.group.wanted = make([]uint64, c.Ranks), make([]uint64, c.Ranks)
	kind, _ := endpoints.ChooseTransport(c.Table, c.Cfg)
	x.ends = &ports{}
	if !x.circuits && kind == settings.TransportNet {
		x.ends = &plugin{}
	}
	defer func() {
		if err != nil || why != "" {
			x.abandon()
		}
	}()
	mine, failed := x.offer()
	if failed != nil {
		mine = offer{Why: brief.Text(failed.Error(), 1024)}
	}
	offers, err := comm.Exchange(c, mine)
	if err != nil {
		return "", err
	}
	for r := range offers {
		if offers[r].Why != "" {
			return c.Table[r].Where() + ": " + offers[r].Why, nil
		}
	}
	failed, err = x.connect(offers)
	if err != nil {
		return "", err
	}
	if why, err = c.Accord(3, failed); why != "" || err != nil {
		return why, err
	}
	x.in = stream.NewIssuer(c, stream.Options{
		Wire: x, Lanes: len(x.memory.rooms), Name: algorithm, Without: "staged through host memory", Alone: true,
	})
	x.work.over, x.work.known.idle = make(chan struct{}), make([][]*exchange, len(x.memory.rooms))
	slot.Set(c, x)
	stream.Of(c).Launcher = x
	recorder.Of(c).OnDevice(x.ended.Word())
	c.OnFailure(x.end.Wake)
	go x.run()
	go x.in.Watch()
	return "", nil
}

// offer opens this rank's ends of the lanes, and creates the rest of this rank's part of the path.
func (x *Path) offer() (mine offer, err error) {
	able := false
	if x.driver, able = device.Active().(device.Remote); !able {
		return mine, errNoExport
	}
	if x.circuits && x.c.NonBlocking {
		return mine, errors.New("its calls do not block, and over circuits the first of a shape waits for its plan")
	}
	if err := x.driver.EnterContext(x.ctx); err != nil {
		return mine, err
	}
	defer x.driver.Leave()
	if x.access.RemoteAccess, err = x.driver.RemoteAccess(); err != nil {
		return mine, err
	}
	lanes := 0
	if mine, lanes, err = x.ends.listen(x); err != nil {
		return mine, err
	}
	x.memory.rooms = make([]stream.Memory, lanes)
	exchange := cmp.Or(x.c.Cfg.Device.Exchange, settings.DefaultExchange)
	x.memory.piece = exchange / (2 * steps.Rooms) / int64(lanes) &^ (calls.PieceAlign - 1)
	if x.own, err = x.driver.NewStream(); err != nil {
		return mine, err
	}
	if x.ended, err = memory.Pin(memory.WordSize); err != nil {
		return mine, err
	}
	*x.ended.Word() = 0
	return mine, device.Active().LoadKernels()
}

// connect connects this rank to the others, and tests that its ends of all lanes can register device memory. failed is
// why this rank stages; err, why the communicator cannot go on.
func (x *Path) connect(all []offer) (failed, err error) {
	if err := x.driver.EnterContext(x.ctx); err != nil {
		return nil, err
	}
	defer x.driver.Leave()
	if x.end, failed, err = x.ends.connect(x, all); failed != nil || err != nil {
		return failed, err
	}
	for _, x.access.byAddress = range x.ends.ways(x.access.RemoteAccess) {
		if x.memory.rooms[0], failed = x.Alloc(leastMemory); failed == nil {
			way := "as dma-bufs"
			if x.access.byAddress {
				way = "by its address"
			}
			x.c.Log.Info(log.Net, "rank %d: memory of its device is registered %s with %s", x.c.Rank, way, x.ends)
			return nil, nil
		}
		x.c.Log.Info(log.Net, "rank %d: %v", x.c.Rank, failed)
	}
	return fmt.Errorf("%s: %w", x.ends, failed), nil
}

// abandon frees what a failed attempt has created.
func (x *Path) abandon() {
	if x.end != nil {
		_ = x.end.Close()
	}
	_ = x.ends.Close()
	if x.driver == nil {
		return
	}
	for _, m := range x.memory.rooms {
		m.Free(x.driver, x.ctx)
	}
	x.free()
}
