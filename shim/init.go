package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"

	"lightpath/collectives/exec"
	"lightpath/shim/bootstrap"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/settings"
)

// Init makes communicators of this process, all at once: ranks of one communicator may be
// among them. On failure nothing stays behind and the error is the first by position. Where
// a rank gets none (a split without a colour) the result is nil. The environment is read here
// and stays what it was for the communicator's life.
//
// Communicators that do not block are returned with [errdefs.ErrInProgress]; [Comm.State] tells when
// they can be used, or why not. All of one Init are of one kind.
func Init(args []InitArgs) ([]*Comm, error) {
	cfg, err := settings.Load()
	if err != nil {
		return nil, err
	}
	fab, err := loadFabric(cfg)
	if err != nil {
		return nil, err
	}
	for i := range args {
		if err := args[i].check(); err != nil {
			return nil, err
		}
		if args[i].NonBlocking != args[0].NonBlocking {
			return nil, fmt.Errorf("shim: a group cannot hold blocking and nonblocking communicators: %w", errdefs.ErrInvalidArgument)
		}
	}
	comms := make([]*Comm, len(args))
	for i := range args {
		if comms[i], err = newComm(args[i], cfg); err != nil {
			for _, c := range comms[:i] {
				c.drop()
			}
			return nil, err
		}
	}
	if args[0].NonBlocking {
		for i, c := range comms {
			c.start(fab)
			if !c.wanted() {
				comms[i] = nil
			}
		}
		return comms, errdefs.ErrInProgress
	}
	if err := initAndWait(comms, fab); err != nil {
		return nil, err
	}
	return comms, nil
}

// initAndWait makes communicators, all or none.
func initAndWait(comms []*Comm, fab *fabricInfo) error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		ended := c.start(fab)
		wg.Go(func() { errs[i] = <-ended })
	}
	wg.Wait()
	failed := slices.IndexFunc(errs, func(e error) bool { return e != nil })
	for i, c := range comms {
		switch {
		case failed >= 0 && errs[i] == nil && c.wanted():
			_ = c.Abort() // the reason is errs[failed]
		case !c.wanted():
			comms[i] = nil
		}
	}
	if failed >= 0 {
		return errs[failed]
	}
	return nil
}

func (a *InitArgs) check() error {
	if a.From != nil {
		return a.From.check()
	}
	switch {
	case a.Ranks < 1 || a.Ranks > bootstrap.MaxRanks:
		return fmt.Errorf("shim: nranks %d is not in 1..%d: %w", a.Ranks, bootstrap.MaxRanks, errdefs.ErrInvalidArgument)
	case a.Rank < 0 || a.Rank >= a.Ranks:
		return fmt.Errorf("shim: rank %d is not in 0..%d: %w", a.Rank, a.Ranks-1, errdefs.ErrInvalidArgument)
	case len(a.More) >= a.Ranks:
		return fmt.Errorf("shim: nId %d is not in 1..%d, the ranks: %w", len(a.More)+1, a.Ranks, errdefs.ErrInvalidArgument)
	}
	for i := range a.More {
		if _, _, err := bootstrap.ParseID(&a.More[i]); err != nil {
			return err
		}
	}
	_, _, err := bootstrap.ParseID(&a.ID)
	return err
}

// wanted: this rank gets a communicator.
func (c *Comm) wanted() bool { return !c.unwanted }

// newComm prepares a communicator; start makes it.
func newComm(args InitArgs, cfg *settings.Config) (*Comm, error) {
	if o := args.From; o != nil {
		p := o.Parent
		args.Device, args.Ranks, args.Rank = p.args.Device, 0, 0
		switch o.How {
		case ByShrink:
			ranks := o.survivors()
			args.Ranks, args.Rank = len(ranks), slices.Index(ranks, p.args.Rank)
		case ByGrow:
			args.Ranks, args.Rank = o.Ranks, p.args.Rank
		}
	}
	c := &Comm{
		args: args, cfg: cfg, serial: serials.Add(1),
		poisonCh: make(chan struct{}), released: make(chan struct{}), inbox: make(chan *control.Message, 64),
	}
	c.findDevice()
	c.log = cfg.NewLog(c.args.Device)
	c.asked = askedOf(&args)
	c.flight.setUp(cfg.FlightRecorder)
	for _, line := range cfg.Variables() {
		c.log.Info(log.Env, "%s", line)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if o := args.From; o != nil {
		c.unwanted = o.How == BySplit && o.Color == NoColor
		if o.Parent.light != nil {
			c.parent = o.Parent
		}
	}
	return c, nil
}

// drop gives back a communicator that was never started.
func (c *Comm) drop() {
	c.cancel()
	c.log.Close()
}

// start makes the communicator in the background. Its lock is held until it is made or has
// failed; the channel then has the error.
func (c *Comm) start(fab *fabricInfo) <-chan error {
	ended := make(chan error, 1)
	var birth uint64
	var before <-chan struct{}
	over := func() {}
	if o := c.args.From; o != nil {
		if c.args.NonBlocking {
			o.Parent.pending.Add(1)
		}
		if o.How == ByShrink {
			birth, before, over = o.Parent.kin.turn()
		} else {
			birth = o.Parent.kin.next()
		}
	}
	c.watch()
	c.mu.Lock()
	go func() {
		err := c.waitTurn(before)
		if err == nil {
			err = c.join(fab, birth)
		}
		over()
		if err != nil {
			echo := c.joined.Load() && isEcho(err)
			if echo {
				c.hearCause()
			}
			if first := c.fail(err); echo || errors.Is(err, context.Canceled) {
				err = first // what ended the wait
			}
			c.leave()
			c.release(0)
		} else if !c.wanted() {
			c.release(0)
		}
		c.life.CompareAndSwap(int32(making), int32(alive))
		if o := c.args.From; o != nil && c.args.NonBlocking {
			o.Parent.pending.Add(-1)
		}
		c.args.From = nil // else what has been destroyed would stay in memory
		c.mu.Unlock()
		ended <- err
	}()
	return ended
}

// initOne makes one communicator and waits for it.
func initOne(args InitArgs, cfg *settings.Config, fab *fabricInfo) (*Comm, error) {
	c, err := newComm(args, cfg)
	if err != nil {
		return nil, err
	}
	if err := <-c.start(fab); err != nil {
		return nil, err
	}
	return c, nil
}

// join meets the other ranks and connects to them. Every step is bounded by the timeout and
// by ctx, and from the moment that the control star stands a failure on one rank fails all.
func (c *Comm) join(fab *fabricInfo, birth uint64) error {
	l, err := listen(c.args, c.cfg)
	if err != nil {
		return err
	}
	defer l.close()
	if !c.single() {
		if c.door, err = bootstrap.EnterDoor(c.cfg); err != nil {
			return err
		}
	}
	h := c.hello(l, fab)
	if err := c.gatherRanks(&h, birth); err != nil || !c.wanted() {
		return err
	}
	c.settleCut()
	c.pairs = exec.NewPairs(c.args.Ranks)
	leaderAt := c.table[0].Control
	if c.star, err = control.NewStar(c.ctx, c.args.Rank, c.args.Ranks, l.control, leaderAt, c.secret, c.cfg.Timeout); err != nil {
		c.star = nil
		return err
	}
	if c.args.Rank == 0 {
		c.leader = newLeader(c)
	}
	c.star.Start(c.deliver, c.peerLost)
	c.joined.Store(true)
	c.side = newOneSided(c)
	return c.attach(l, c.secret, fab)
}

// single: the communicator will have this rank alone.
func (c *Comm) single() bool {
	if o := c.args.From; o != nil && o.How == BySplit {
		return o.Parent.args.Ranks == 1
	}
	return c.args.Ranks == 1
}

// gatherRanks finds out who the communicator's ranks are: its number, table and secret.
func (c *Comm) gatherRanks(h *bootstrap.Hello, birth uint64) error {
	o := c.args.From
	switch {
	case o == nil:
		return c.meetByID(h)
	case o.How == BySplit:
		return c.meetBySplit(h, birth)
	case o.How == ByShrink:
		return c.meetAtDoor(h, birth)
	}
	ask := &kinAsk{Ranks: o.Ranks}
	if o.ID != nil {
		ask.ID = o.ID[:]
	}
	a, err := c.agree(birth, ask)
	if err != nil {
		return err
	}
	if len(a.ID) != UniqueIDSize {
		return fmt.Errorf("shim: %v: %w: id of %d bytes", o.How, control.ErrMessage, len(a.ID))
	}
	c.args.ID = UniqueID(a.ID)
	o.Parent.kin.spend(&c.args.ID)
	return c.meetByID(h)
}

// meetByID meets the other ranks where their ids say.
func (c *Comm) meetByID(h *bootstrap.Hello) error {
	ids := append([]UniqueID{c.args.ID}, c.args.More...)
	places := make([]bootstrap.Place, len(ids))
	for i := range ids {
		addr, sec, err := bootstrap.ParseID(&ids[i])
		if err != nil {
			return err
		}
		// An address that everyone knows beforehand may be listened on later.
		shared := ids[i] == bootstrap.EnvID(addr)
		places[i] = bootstrap.Place{Addr: addr, Secret: sec, Patience: shared}
		if c.cfg.CommID != "" && c.args.Rank == 0 && shared {
			if _, err := bootstrap.StartRoot(c.cfg, sec, addr); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				return err
			}
		}
	}
	c.secret = places[0].Secret
	if len(places) > 1 {
		h.Places = len(places)
	}
	var err error
	c.id, c.table, err = bootstrap.Meet(c.ctx, places, h, c.cfg.Timeout)
	return err
}

// meetBySplit has the parent's leader say who belongs together.
func (c *Comm) meetBySplit(h *bootstrap.Hello, birth uint64) error {
	o := c.args.From
	a, err := c.agree(birth, &kinAsk{Color: o.Color, Key: o.Key, Hello: *h})
	if err != nil || o.Color == NoColor {
		return err
	}
	h.Rank, h.Ranks = a.Rank, len(a.Table)
	if a.Rank < 0 || a.Rank >= len(a.Table) {
		return fmt.Errorf("shim: %v: %w", o.How, control.ErrMessage)
	}
	c.args.Rank, c.args.Ranks = h.Rank, h.Ranks
	c.id, c.table = a.Comm, a.Table
	c.secret = o.Parent.secret.Derive("split", o.Parent.id, birth, uint64(o.Color))
	return bootstrap.CheckTable(a.Table, h)
}

// attach connects the planes, and returns when every rank has.
func (c *Comm) attach(l *listeners, sec control.Secret, fab *fabricInfo) error {
	me := &c.table[c.args.Rank]
	c.alone = true
	for i := range c.table {
		if c.table[i].Host == me.Host {
			c.localRanks++
		}
		if i != c.args.Rank && c.table[i].Host == me.Host && c.table[i].Process == me.Process {
			c.alone = false
		}
	}
	kind, err := chooseTransport(c.table, c.cfg)
	if err == nil {
		err = c.attachPacket(kind, l, sec)
	}
	if err == nil {
		err = c.attachOptical(fab, sec)
	}
	c.attachShares(kind)
	if err == nil {
		err = c.attachDevice()
	}
	if err != nil {
		return err // fail tells the others
	}
	if c.leader != nil {
		c.leader.start()
	}
	ready := &control.Message{Kind: control.MsgReady}
	if err := c.star.ToLeader(ready); err != nil {
		return err
	}
	if _, err := c.await(control.MsgGo, 0); err != nil {
		return err
	}
	c.log.Version("Lightpath version %s, %s", Version, libraryPath())
	c.log.Info(log.Init, "comm %#x rank %d nranks %d name %q transport %s planes %d fabric %s - Init COMPLETE",
		c.id, c.args.Rank, c.args.Ranks, c.args.Name, kind, len(c.packet.Planes()), c.light.describe())
	return nil
}

// hello is this rank's entry in the table.
func (c *Comm) hello(l *listeners, fab *fabricInfo) bootstrap.Hello {
	h := bootstrap.Hello{
		Rank: c.args.Rank, Ranks: c.args.Ranks, Host: hostID(), Name: c.log.Host, PID: c.log.PID, Process: processID(), PIDs: pidNamespace(),
		Version: Version, Settings: c.cfg.Agreed(), Fabric: fab.digest(), Port: c.cfg.LauncherRank, Device: c.dev != nil,
	}
	if c.cfg.FabricRank >= 0 {
		h.Port, h.PortGiven = c.cfg.FabricRank, true
	}
	if o := c.args.From; o != nil && o.Parent.light != nil {
		h.Port, h.PortGiven = o.Parent.light.ports[o.Parent.args.Rank], true
	}
	if l.control != nil {
		h.Control = l.control.Addr().String()
	}
	h.TCP, h.Door = l.tcpAddr(), c.door.Address()
	c.dev.describe(&h, c.noDevice)
	h.NoDirect, h.NoRemote = c.cfg.NCCL.NoDirect, c.cfg.NCCL.NoRemote
	return h
}

// processID tells processes apart, those of different containers too.
var processID = sync.OnceValue(bootstrap.RandomID)

// hostID is the same for ranks that can share memory: the kernel's boot and the mount of
// /dev/shm, which containers may have of their own.
func hostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		// Without it, only ranks of this process are known to be on this host.
		boot = fmt.Appendf(nil, "%x", processID())
	}
	id := strings.TrimSpace(string(boot))
	var st syscall.Stat_t
	if err := syscall.Stat("/dev/shm", &st); err == nil {
		id += fmt.Sprintf(" %x:%x", st.Dev, st.Ino)
	}
	return id
}

// libraryPath is the file that this code was loaded from, for the identity line: the
// one thing that tells a user which of several libraries the program really uses.
func libraryPath() string {
	pc := uint64(reflect.ValueOf(libraryPath).Pointer())
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return "unknown path"
	}
	for line := range strings.Lines(string(maps)) {
		var from, to, offset, inode uint64
		var access, device, path string
		// The path is last and may be missing.
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %d %s", &from, &to, &access, &offset, &device, &inode, &path)
		if n == 7 && from <= pc && pc < to {
			return path
		}
	}
	return "unknown path"
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
