package endpoints

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"unsafe"

	"lightpath/collectives/sharedmem"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/inproc"
	"lightpath/collectives/transport/shm"
	"lightpath/collectives/transport/tcp"
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/settings"
)

// Listeners are the sockets that a rank opens before it can publish its addresses.
type Listeners struct {
	Control net.Listener  // leader only
	tcp     *tcp.Listener // for TCP planes, if ranks may use them; else nil
}

// Listen opens the sockets of a rank: for control connections if it may be the leader, and for planes unless it is
// alone.
func Listen(cfg *settings.Config, leader, alone bool) (*Listeners, error) {
	l := &Listeners{}
	if leader && !alone {
		ln, err := listenTCP(cfg)
		if err != nil {
			return nil, err
		}
		l.Control = ln
	}
	if !alone && (cfg.Transport == "tcp" || cfg.Transport == "auto" || cfg.Transport == settings.TransportEBPF) {
		var err error
		if l.tcp, err = listenPlanes(cfg); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// listenPlanes listens for TCP planes, on at most one address per plane.
func listenPlanes(cfg *settings.Config) (*tcp.Listener, error) {
	own, err := control.Address(cfg.Sockets.If)
	if err != nil {
		return nil, err
	}
	ips, err := control.PlaneAddresses(cfg.Sockets.If, own)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, ip := range ips[:min(len(ips), cfg.Planes)] {
		addrs = append(addrs, netip.AddrPortFrom(ip, 0).String())
	}
	return tcp.Listen(addrs...)
}

// TCPAddr returns the address of the TCP listener, "" without one.
func (l *Listeners) TCPAddr() string {
	if l.tcp == nil {
		return ""
	}
	return l.tcp.Addr()
}

// Close closes the sockets that no endpoint has taken over. Idempotent.
func (l *Listeners) Close() {
	if l.Control != nil {
		l.Control.Close()
	}
	if l.tcp != nil {
		_ = l.tcp.Close()
	}
}

// ChooseTransport returns the transport of the packet planes. It is a pure function of the table and the settings,
// which are equal on all ranks.
func ChooseTransport(table []bootstrap.Hello, cfg *settings.Config) (string, error) {
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
		setting = "auto" // it selects the transport of planes with circuits; see Circuits
	}
	switch {
	case len(table) == 1:
		return "inproc", nil
	case setting == "inproc" && otherProcess != nil:
		return "", fmt.Errorf("shim: LIGHTPATH_TRANSPORT=inproc, but %s and %s are different processes: %w", first.Where(),
			otherProcess.Where(), errdefs.ErrInvalidUsage)
	case setting == "shm" && otherHost != nil:
		return "", fmt.Errorf("shim: LIGHTPATH_TRANSPORT=shm, but %s and %s share no memory: %w", first.Where(),
			otherHost.Where(), errdefs.ErrInvalidUsage)
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

// Packet makes the packet endpoint, and the memory that the ranks share, nil if they share none.
func Packet(c *comm.Core, kind string, l *Listeners) (e transport.Endpoint, shared *sharedmem.Arena, err error) {
	switch kind {
	case "inproc":
		e, err = joinProcess(c)
	case "shm":
		if e, err = joinSegment(c); err == nil {
			shared = sharedMemory(c, e)
		}
	case settings.TransportRDMA:
		e, err = packetRDMA(c)
	case settings.TransportNet:
		e, err = joinPlugin(c)
	default:
		e, err = joinTCP(c, l)
	}
	if err != nil {
		if kind == settings.TransportRDMA || kind == settings.TransportNet {
			kind += " (" + c.Cfg.Wants(kind) + ")"
		}
		return nil, nil, fmt.Errorf("shim: rank %d: transport %s: %w", c.Rank, kind, err)
	}
	c.OnFailure(e.Wake)
	return e, shared, nil
}

// joinSegment joins the segment of shared memory that the leader creates.
func joinSegment(c *comm.Core) (transport.Endpoint, error) {
	o := shm.Options{Ranks: c.Ranks, Planes: c.Cfg.Planes, Rank: c.Rank}
	if c.Ranks <= sharedmem.MaxRanks {
		o.Shared = sharedmem.Size(c.Ranks)
	}
	if c.Rank == 0 {
		name, e, err := shm.Create(o)
		if err == nil {
			c.Star.Broadcast(&control.Message{Kind: control.MsgSegment, Body: []byte(name)}, -1)
		}
		return e, err
	}
	m, err := c.Await(control.MsgSegment, 0)
	if err != nil {
		return nil, err
	}
	return shm.Attach(string(m.Body), o)
}

// sharedMemory returns the part of a segment that collectives use, nil if there is none.
func sharedMemory(c *comm.Core, e transport.Endpoint) *sharedmem.Arena {
	s, ok := e.(transport.Sharer)
	if !ok {
		return nil
	}
	a := sharedmem.New(s, c.Ranks, c.Rank)
	if a == nil {
		return nil
	}
	if c.Cfg.LargePages {
		a.UseLargePages()
	}
	a.UseRegions(sharedRegion, func(rank int, err error) {
		c.Log.Info(log.Net, "rank %d: memory of rank %d cannot be mapped, and is copied: %v", c.Rank, rank, err)
	})
	return a
}

// sharedRegion is memory.Find for memory that other processes can map.
func sharedRegion(p unsafe.Pointer, n int64) (sharedmem.Region, int64, bool) {
	r, offset, ok := memory.Find(p, n)
	return sharedmem.Region{Number: r.Number, FD: r.FD, Size: int64(r.Size)}, offset, ok && r.FD >= 0
}

// sharedInterface returns a text if planes of a rank share a network interface, so that more planes are not faster. ""
// stands for one interface per plane.
func sharedInterface(table []bootstrap.Hello, planes int) string {
	for i := range table {
		if n := 1 + strings.Count(table[i].TCP, ","); n < planes {
			return fmt.Sprintf("the %d planes of %s (LIGHTPATH_PLANES) use %d interface(s): planes that share an "+
				"interface add no "+
				"bandwidth. NCCL_SOCKET_IFNAME lists the interfaces to use in turn, such as =eth0,eth1", planes,
				table[i].Where(), n)
		}
	}
	return ""
}

// joinTCP joins the mesh of connections.
func joinTCP(c *comm.Core, l *Listeners) (transport.Endpoint, error) {
	o := tcp.Options{
		Rank: c.Rank, Planes: c.Cfg.Planes, Comm: c.ID, Secret: c.Secret, Congestion: c.Cfg.Sockets.Congestion,
	}
	for i := range c.Table {
		o.Addrs = append(o.Addrs, c.Table[i].TCP)
	}
	if why := sharedInterface(c.Table, c.Cfg.Planes); why != "" && c.Rank == 0 {
		c.Log.Notice("%s", why)
	}
	ctx, cancel := connecting(c)
	defer cancel()
	o.Failover = failover(c)
	e, err := tcp.Connect(ctx, l.tcp, o)
	if err == nil && o.Heartbeat > 0 {
		l.tcp = nil // the endpoint closes it
	}
	return e, err
}

// failover logs the planes that streams leave, each once at every level of NCCL_DEBUG, and fails the communicator if no
// plane reaches a rank.
func failover(c *comm.Core) tcp.Failover {
	left := make([]sync.Once, c.Cfg.Planes)
	return tcp.Failover{
		Heartbeat: c.Cfg.Sockets.Heartbeat,
		Moved: func(rank, plane, via int, cause error) {
			say := c.Log.Warn
			left[plane].Do(func() { say = c.Log.Notice })
			say("comm %#x rank %d: data of plane %d to and from %s now uses plane %d: %v", c.ID, c.Rank, plane,
				c.Table[rank].Where(), via, cause)
		},
		Lost: func(rank int, err error) {
			c.Spread(fmt.Errorf("shim: lost %s: %w: %w", c.Table[rank].Where(), err, errdefs.ErrRemote))
		},
	}
}

// gatherings holds the endpoints of communicators that are being made within this process, until each rank has taken
// its own, or one of them ends.
var gatherings struct {
	sync.Mutex
	open map[uint64][]transport.Endpoint
}

// joinProcess returns one rank's endpoint of a communicator whose ranks are all in this process.
func joinProcess(c *comm.Core) (transport.Endpoint, error) {
	gatherings.Lock()
	defer gatherings.Unlock()
	group := gatherings.open[c.ID]
	if group == nil {
		var err error
		if group, err = inproc.NewGroup(c.Ranks, c.Cfg.Planes, inproc.Options{}); err != nil {
			return nil, err
		}
		if gatherings.open == nil {
			gatherings.open = map[uint64][]transport.Endpoint{}
		}
		gatherings.open[c.ID] = group
	}
	c.AddHooks(comm.Hooks{Closed: func() {
		gatherings.Lock()
		defer gatherings.Unlock()
		delete(gatherings.open, c.ID) // if a rank fails, it may not come
	}})
	e := group[c.Rank]
	group[c.Rank] = nil
	for _, left := range group {
		if left != nil {
			return e, nil
		}
	}
	delete(gatherings.open, c.ID)
	return e, nil
}

// listenTCP opens a listener for control connections.
func listenTCP(cfg *settings.Config) (net.Listener, error) {
	ip, err := control.Address(cfg.ControlInterfaces())
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", netip.AddrPortFrom(ip, 0).String())
	if err != nil {
		return nil, fmt.Errorf("shim: control listener: %w", err)
	}
	return ln, nil
}

// connecting returns a context that ends after LIGHTPATH_TIMEOUT, with [errdefs.ErrTimeout] as its cause, or if the
// communicator fails elsewhere.
func connecting(c *comm.Core) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.Cfg.Timeout,
		fmt.Errorf("%w after %v", errdefs.ErrTimeout, c.Cfg.Timeout))
	go func() {
		select {
		case <-c.FailedChan():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
