package shim

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"lightpath/collectives/sharedmem"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/inproc"
	"lightpath/collectives/transport/shm"
	"lightpath/collectives/transport/tcp"
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/settings"
)

// listeners are what a rank opens before it can say where it is.
type listeners struct {
	control net.Listener  // leader only
	tcp     *tcp.Listener // where the tcp planes may be wanted
}

func listen(args InitArgs, cfg *settings.Config) (*listeners, error) {
	l := &listeners{}
	leader, alone := args.Rank == 0, args.Ranks == 1
	if o := args.From; o != nil && o.How == BySplit {
		leader, alone = o.Color != NoColor, o.Color == NoColor || o.Parent.Ranks == 1
	}
	if leader && !alone {
		ln, err := listenTCP(cfg)
		if err != nil {
			return nil, err
		}
		l.control = ln
	}
	if !alone && (cfg.Transport == "tcp" || cfg.Transport == "auto" || cfg.Transport == settings.TransportEBPF) {
		var err error
		if l.tcp, err = listenPlanes(cfg); err != nil {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// listenPlanes listens for the tcp planes, on no more addresses than there are planes.
func listenPlanes(cfg *settings.Config) (*tcp.Listener, error) {
	own, err := control.Address(cfg.SocketIf)
	if err != nil {
		return nil, err
	}
	ips, err := control.PlaneAddresses(cfg.SocketIf, own)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, ip := range ips[:min(len(ips), cfg.Planes)] {
		addrs = append(addrs, netip.AddrPortFrom(ip, 0).String())
	}
	return tcp.Listen(addrs...)
}

func (l *listeners) tcpAddr() string {
	if l.tcp == nil {
		return ""
	}
	return l.tcp.Addr()
}

// close closes what has not been handed over; idempotent.
func (l *listeners) close() {
	if l.control != nil {
		l.control.Close()
	}
	if l.tcp != nil {
		_ = l.tcp.Close()
	}
}

// chooseTransport decides how the packet planes are carried: a pure function of what
// every rank has in its table.
func chooseTransport(table []bootstrap.Hello, cfg *settings.Config) (string, error) {
	first, setting := &table[0], cfg.Transport
	var otherProcess, otherHost *bootstrap.Hello
	for i := range table {
		h := &table[i]
		if h.Process != first.Process && otherProcess == nil {
			otherProcess = h
		}
		if h.Host != first.Host && otherHost == nil {
			otherHost = h
		}
	}
	if setting == settings.TransportEBPF {
		setting = "auto" // it is about the planes with circuits; see attachOptical
	}
	switch {
	case len(table) == 1:
		return "inproc", nil
	case setting == "inproc" && otherProcess != nil:
		return "", fmt.Errorf("shim: LIGHTPATH_TRANSPORT=inproc, but %s and %s are different processes: %w", first.Where(), otherProcess.Where(), errdefs.ErrInvalidUsage)
	case setting == "shm" && otherHost != nil:
		return "", fmt.Errorf("shim: LIGHTPATH_TRANSPORT=shm, but %s and %s share no memory: %w", first.Where(), otherHost.Where(), errdefs.ErrInvalidUsage)
	case setting != "auto":
		return setting, nil
	case otherProcess == nil:
		return "inproc", nil
	case otherHost == nil && cfg.NCCL.NoShared == "":
		return "shm", nil
	default:
		return cfg.Network(), nil
	}
}

// attachPacket makes the packet endpoint.
func attachPacket(c *comm.Core, kind string, l *listeners, sec control.Secret) (err error) {
	switch kind {
	case "inproc":
		var e transport.Endpoint
		if e, err = joinProcess(c.ID, c.Ranks, c.Cfg.Planes, c.Rank); err == nil {
			setPacket(c, e)
		}
	case "shm":
		err = attachShm(c)
	case settings.TransportRDMA:
		err = attachRDMA(c, sec)
	default:
		err = attachTCP(c, l, sec)
	}
	if err != nil {
		if setting := c.Cfg.WantsRDMA(); kind == settings.TransportRDMA {
			kind += " (" + setting + ")"
		}
		return fmt.Errorf("shim: rank %d: transport %s: %w", c.Rank, kind, err)
	}
	return nil
}

func setPacket(c *comm.Core, e transport.Endpoint) {
	hostOf(c).packet = e
	c.OnFailure(e.Wake)
}

// attachShm joins the segment that the leader creates.
func attachShm(c *comm.Core) error {
	o := shm.Options{Ranks: c.Ranks, Planes: c.Cfg.Planes, Rank: c.Rank}
	if c.Ranks <= sharedmem.MaxRanks {
		o.Shared = sharedmem.Size(c.Ranks)
	}
	if c.Rank == 0 {
		name, e, err := shm.Create(o)
		if err != nil {
			return err
		}
		setShm(c, e)
		c.Star.Broadcast(&control.Message{Kind: control.MsgSegment, Body: []byte(name)}, -1)
		return nil
	}
	m, err := c.Await(control.MsgSegment, 0)
	if err != nil {
		return err
	}
	e, err := shm.Attach(string(m.Body), o)
	if err != nil {
		return err
	}
	setShm(c, e)
	return nil
}

func setShm(c *comm.Core, e transport.Endpoint) {
	setPacket(c, e)
	if s, ok := e.(transport.Sharer); ok {
		hostOf(c).arena = sharedmem.New(s, c.Ranks, c.Rank)
		if hostOf(c).arena != nil && c.Cfg.LargePages {
			hostOf(c).arena.UseLargePages()
		}
		if hostOf(c).arena != nil {
			hostOf(c).arena.UseRegions(sharedRegion, func(rank int, err error) { cannotMap(c, rank, err) })
		}
	}
}

// attachTCP joins the mesh of connections.
func attachTCP(c *comm.Core, l *listeners, sec control.Secret) error {
	o := tcp.Options{Rank: c.Rank, Planes: c.Cfg.Planes, Comm: c.ID, Secret: sec, Congestion: c.Cfg.Congestion}
	for i := range c.Table {
		o.Addrs = append(o.Addrs, c.Table[i].TCP)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Cfg.Timeout)
	defer cancel()
	go func() { // a failure elsewhere ends the wait for connections here
		select {
		case <-c.FailedChan():
			cancel()
		case <-ctx.Done():
		}
	}()
	e, err := tcp.Connect(ctx, l.tcp, o)
	if err != nil {
		return err
	}
	setPacket(c, e)
	return nil
}

// gatherings holds the endpoints of communicators that are being made within this
// process, until each rank has taken its own.
var gatherings struct {
	sync.Mutex
	open map[uint64][]transport.Endpoint
}

// joinProcess returns one rank's endpoint of a communicator whose ranks are all here.
func joinProcess(id uint64, ranks, planes, rank int) (transport.Endpoint, error) {
	gatherings.Lock()
	defer gatherings.Unlock()
	group := gatherings.open[id]
	if group == nil {
		var err error
		if group, err = inproc.NewGroup(ranks, planes, inproc.Options{}); err != nil {
			return nil, err
		}
		if gatherings.open == nil {
			gatherings.open = map[uint64][]transport.Endpoint{}
		}
		gatherings.open[id] = group
	}
	e := group[rank]
	group[rank] = nil
	for _, left := range group {
		if left != nil {
			return e, nil
		}
	}
	delete(gatherings.open, id)
	return e, nil
}
