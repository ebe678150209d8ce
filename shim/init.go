package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lightpath/collectives/exec"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/onesided"
	"lightpath/shim/path/host"
	"lightpath/shim/path/optical"
	"lightpath/shim/path/peer"
	"lightpath/shim/path/staged"
	"lightpath/shim/planeset"
	"lightpath/shim/recorder"
	"lightpath/shim/session"
	"lightpath/shim/settings"
	"lightpath/shim/shares"
	"lightpath/shim/stall"
	"lightpath/shim/stream"
)

// Init makes communicators of this process, all at once: ranks of one communicator may be
// among them. On failure nothing stays behind and the error is the first by position. Where
// a rank gets none (a split without a colour) the result is nil. The environment is read here
// and stays what it was for the communicator's life.
//
// Communicators that do not block are returned with [errdefs.ErrInProgress]; [Comm.State] tells when
// they can be used, or why not. All of one Init are of one kind.
func Init(args []InitArgs) ([]*comm.Core, error) {
	cfg, err := settings.Load()
	if err != nil {
		return nil, err
	}
	fab, err := endpoints.LoadFabric(cfg)
	if err == nil {
		err = fab.Pin(cfg)
	}
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
	comms := make([]*comm.Core, len(args))
	for i := range args {
		if comms[i], err = newComm(args[i], cfg); err != nil {
			for _, c := range comms[:i] {
				dropNew(c)
			}
			return nil, err
		}
	}
	if args[0].NonBlocking {
		for i, c := range comms {
			start(c, fab)
			if !wanted(c) {
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
func initAndWait(comms []*comm.Core, fab *endpoints.Fabric) error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		ended := start(c, fab)
		wg.Go(func() { errs[i] = <-ended })
	}
	wg.Wait()
	failed := slices.IndexFunc(errs, func(e error) bool { return e != nil })
	for i, c := range comms {
		switch {
		case failed >= 0 && errs[i] == nil && wanted(c):
			_ = c.Abort() // the reason is errs[failed]
		case !wanted(c):
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
func wanted(c *comm.Core) bool { return !birthOf(c).unwanted }

// newComm prepares a communicator; start makes it.
func newComm(args InitArgs, cfg *settings.Config) (*comm.Core, error) {
	if o := args.From; o != nil {
		p := o.Parent
		args.Device, args.Ranks, args.Rank = p.Device, 0, 0
		switch o.How {
		case ByShrink:
			ranks := o.survivors()
			args.Ranks, args.Rank = len(ranks), slices.Index(ranks, p.Rank)
		case ByGrow:
			args.Ranks, args.Rank = o.Ranks, p.Rank
		}
	}
	c := comm.New(comm.Identity{Rank: args.Rank, Ranks: args.Ranks, Name: args.Name, Device: args.Device, NonBlocking: args.NonBlocking, Cfg: cfg})
	birthSlot.Set(c, &birthState{args: args})
	calls.Setup(c)
	recorder.New(c, cfg.FlightRecorder)
	probesSlot.Set(c, &probes{})
	handleMessages(c)
	addHooks(c)
	findDevice(c)
	c.Log = cfg.NewLog(c.Device)
	birthOf(c).asked = askedOf(&args)
	for _, line := range cfg.Variables() {
		c.Log.Info(log.Env, "%s", line)
	}
	if o := args.From; o != nil {
		birthOf(c).unwanted = o.How == BySplit && o.Color == NoColor
	}
	return c, nil
}

// dropNew gives back a communicator that was never started.
func dropNew(c *comm.Core) {
	c.Cancel()
	c.Log.Close()
}

// handleMessages registers what handles control messages.
func handleMessages(c *comm.Core) {
	c.HandleAccords()
	stall.Handle(c)
	live.Handle(c)
	handleProbes(c)
	peer.Handle(c)
	handleBirths(c)
	circuits.HandleVacating(c)
	stream.Handle(c)
	shares.Handle(c)
}

// addHooks registers what the parts of a communicator do as it ends.
func addHooks(c *comm.Core) {
	c.AddHooks(comm.Hooks{Ending: func() { memory.LeaveAll(c) }})
	c.AddHooks(comm.Hooks{Ending: func() { unwatch(c) }, Closed: func() { birthOf(c).door.Leave() }})
	c.AddHooks(comm.Hooks{Close: live.Of(c).Close})
	c.AddHooks(comm.Hooks{Detach: func() { onesided.Of(c).End() }, Close: func() { onesided.Of(c).End() }})
	session.Setup(c)
	host.Setup(c)
	c.AddHooks(comm.Hooks{
		Quiet:  func() { circuits.Of(c).Quiesce(comm.Linger) },
		Detach: func() { departCircuits(c) },
		Close:  func() { circuits.Of(c).Close() },
	})
}

// findDevice gives the communicator its device, if it has one.
func findDevice(c *comm.Core) {
	var parent *comm.Core
	if o := birthOf(c).args.From; o != nil {
		parent = o.Parent
	}
	stream.Find(c, parent)
	if stream.Of(c) != nil {
		staged.Setup(c)
	}
}

// start makes the communicator in the background. Its lock is held until it is made or has
// failed; the channel then has the error.
func start(c *comm.Core, fab *endpoints.Fabric) <-chan error {
	ended := make(chan error, 1)
	var birth uint64
	var before <-chan struct{}
	over := func() {}
	if o := birthOf(c).args.From; o != nil {
		if c.NonBlocking {
			o.Parent.Occupy()
		}
		if o.How == ByShrink {
			birth, before, over = birthOf(o.Parent).kin.turn()
		} else {
			birth = birthOf(o.Parent).kin.next()
		}
	}
	watch(c)
	c.Turn.Lock()
	go func() {
		err := waitTurn(c, before)
		if err == nil {
			err = joinRanks(c, fab, birth)
		}
		over()
		if err != nil {
			echo := c.Joined() && comm.IsEcho(err)
			if echo {
				c.AwaitCause()
			}
			if first := c.Fail(err); echo || errors.Is(err, context.Canceled) {
				err = first // what ended the wait
			}
			c.Leave()
			c.Release(0)
		} else if !wanted(c) {
			c.Release(0)
		}
		c.SetAlive()
		if o := birthOf(c).args.From; o != nil && c.NonBlocking {
			o.Parent.Vacate()
		}
		birthOf(c).args.From = nil // else what has been destroyed would stay in memory
		c.Turn.Unlock()
		ended <- err
	}()
	return ended
}

// initOne makes one communicator and waits for it.
func initOne(args InitArgs, cfg *settings.Config, fab *endpoints.Fabric) (*comm.Core, error) {
	c, err := newComm(args, cfg)
	if err != nil {
		return nil, err
	}
	if err := <-start(c, fab); err != nil {
		return nil, err
	}
	return c, nil
}

// joinRanks meets the other ranks and connects to them. Every step is bounded by the timeout and
// by ctx, and from the moment that the control star stands a failure on one rank fails all.
func joinRanks(c *comm.Core, fab *endpoints.Fabric, birth uint64) error {
	leader, alone := c.Rank == 0, c.Ranks == 1
	if o := birthOf(c).args.From; o != nil && o.How == BySplit {
		leader, alone = o.Color != NoColor, o.Color == NoColor || o.Parent.Ranks == 1
	}
	l, err := endpoints.Listen(c.Cfg, leader, alone)
	if err != nil {
		return err
	}
	defer l.Close()
	if !single(c) {
		if birthOf(c).door, err = bootstrap.EnterDoor(c.Cfg); err != nil {
			return err
		}
	}
	h := helloOf(c, l, fab)
	if err := gatherRanks(c, &h, birth); err != nil || !wanted(c) {
		return err
	}
	settleCut(c)
	session.Of(c).Pairs = exec.NewPairs(c.Ranks)
	leaderAt := c.Table[0].Control
	star, err := control.NewStar(c.Context(), c.Rank, c.Ranks, l.Control, leaderAt, c.Secret, c.Cfg.Timeout)
	if err != nil {
		return err
	}
	c.Join(star)
	onesided.Attach(c, birthOf(c).door)
	return attachPlanes(c, l, fab)
}

// settleCut decides how long calls of the communicator may be in one piece.
func settleCut(c *comm.Core) {
	calls.FactsOf(c).Cut = 0
	for i := range c.Table {
		if c.Table[i].Device && c.Table[i].Fabric == "" {
			calls.FactsOf(c).Cut = c.Cfg.Staging
		}
	}
}

// single: the communicator will have this rank alone.
func single(c *comm.Core) bool {
	if o := birthOf(c).args.From; o != nil && o.How == BySplit {
		return o.Parent.Ranks == 1
	}
	return c.Ranks == 1
}

// gatherRanks finds out who the communicator's ranks are: its number, table and secret.
func gatherRanks(c *comm.Core, h *bootstrap.Hello, birth uint64) error {
	o := birthOf(c).args.From
	switch {
	case o == nil:
		return meetByID(c, h)
	case o.How == BySplit:
		return meetBySplit(c, h, birth)
	case o.How == ByShrink:
		return meetSurvivors(c, h, birth)
	}
	ask := &kinAsk{Ranks: o.Ranks}
	if o.ID != nil {
		ask.ID = o.ID[:]
	}
	a, err := agreeWithParent(c, birth, ask)
	if err != nil {
		return err
	}
	if len(a.ID) != UniqueIDSize {
		return fmt.Errorf("shim: %v: %w: id of %d bytes", o.How, control.ErrMessage, len(a.ID))
	}
	birthOf(c).args.ID = UniqueID(a.ID)
	birthOf(o.Parent).kin.spend(&birthOf(c).args.ID)
	return meetByID(c, h)
}

// meetByID meets the other ranks where their ids say.
func meetByID(c *comm.Core, h *bootstrap.Hello) error {
	ids := append([]UniqueID{birthOf(c).args.ID}, birthOf(c).args.More...)
	places := make([]bootstrap.Place, len(ids))
	for i := range ids {
		addr, sec, err := bootstrap.ParseID(&ids[i])
		if err != nil {
			return err
		}
		// An address that everyone knows beforehand may be listened on later.
		shared := ids[i] == bootstrap.EnvID(addr)
		places[i] = bootstrap.Place{Addr: addr, Secret: sec, Patience: shared}
		if c.Cfg.CommID != "" && c.Rank == 0 && shared {
			if _, err := bootstrap.StartRoot(c.Cfg, sec, addr); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
				return err
			}
		}
	}
	c.Secret = places[0].Secret
	if len(places) > 1 {
		h.Places = len(places)
	}
	var err error
	c.ID, c.Table, err = bootstrap.Meet(c.Context(), places, h, c.Cfg.Timeout)
	return err
}

// meetBySplit has the parent's leader say who belongs together.
func meetBySplit(c *comm.Core, h *bootstrap.Hello, birth uint64) error {
	o := birthOf(c).args.From
	a, err := agreeWithParent(c, birth, &kinAsk{Color: o.Color, Key: o.Key, Hello: *h})
	if err != nil || o.Color == NoColor {
		return err
	}
	h.Rank, h.Ranks = a.Rank, len(a.Table)
	if a.Rank < 0 || a.Rank >= len(a.Table) {
		return fmt.Errorf("shim: %v: %w", o.How, control.ErrMessage)
	}
	c.Rank, c.Ranks = h.Rank, h.Ranks
	c.ID, c.Table = a.Comm, a.Table
	c.Secret = o.Parent.Secret.Derive("split", o.Parent.ID, birth, uint64(o.Color))
	return bootstrap.CheckTable(a.Table, h)
}

// attachPlanes connects the planes, and returns when every rank has.
func attachPlanes(c *comm.Core, l *endpoints.Listeners, fab *endpoints.Fabric) error {
	c.CountLocal()
	kind, err := endpoints.ChooseTransport(c.Table, c.Cfg)
	if err == nil {
		session.Of(c).Packet, session.Of(c).Arena, err = endpoints.Packet(c, kind, l)
	}
	if err == nil {
		var parent *comm.Core
		if o := birthOf(c).args.From; o != nil {
			parent = o.Parent
		}
		err = circuits.Attach(c, fab, parent)
	}
	if p := circuits.Of(c); err == nil && p != nil && c.Rank == 0 {
		err = live.Attach(c, p)
	}
	if f := calls.FactsOf(c); err == nil {
		f.Planes = planeset.All(len(session.Of(c).Packet.Planes()))
		if o := circuits.Of(c); o != nil {
			f.Circuits, f.Planes, f.CircuitKind = true, o.All(), o.Template.Circuits
		}
	}
	if err == nil {
		shares.Attach(c, kind, len(session.Of(c).Packet.Planes()), circuits.Of(c) != nil)
	}
	if err == nil {
		err = attachDevice(c)
	}
	if err != nil {
		return err // fail tells the others
	}
	optical.Attach(c)
	if c.Rank == 0 {
		live.Of(c).Start()
	}
	if err := c.AwaitAll(); err != nil {
		return err
	}
	c.Log.Version("Lightpath version %s, %s", Version, libraryPath())
	c.Log.Info(log.Init, "comm %#x rank %d nranks %d name %q transport %s planes %d fabric %s - Init COMPLETE",
		c.ID, c.Rank, c.Ranks, c.Name, kind, len(session.Of(c).Packet.Planes()), circuits.Of(c).Describe())
	return nil
}

// helloOf is this rank's entry in the table.
func helloOf(c *comm.Core, l *endpoints.Listeners, fab *endpoints.Fabric) bootstrap.Hello {
	h := bootstrap.Hello{
		Rank: c.Rank, Ranks: c.Ranks, Host: hostID(), Name: c.Log.Host, PID: c.Log.PID, Process: processID(), PIDs: pidNamespace(),
		Version: Version, Settings: c.Cfg.Agreed(), Fabric: fab.Digest(), Port: c.Cfg.LauncherRank,
	}
	if c.Cfg.FabricRank >= 0 {
		h.Port, h.PortGiven = c.Cfg.FabricRank, true
	}
	if o := birthOf(c).args.From; o != nil && circuits.Of(o.Parent) != nil {
		h.Port, h.PortGiven = circuits.Of(o.Parent).Ports[o.Parent.Rank], true
	}
	if l.Control != nil {
		h.Control = l.Control.Addr().String()
	}
	h.TCP, h.Door = l.TCPAddr(), birthOf(c).door.Address()
	stream.Describe(c, &h)
	h.NoDirect, h.NoRemote = c.Cfg.NCCL.NoDirect, c.Cfg.NCCL.NoRemote
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

// departWait is how long the leader's Destroy waits for the other ranks, whose tickets it issues.
const departWait = 50 * time.Millisecond

// departCircuits takes leave of the controller before a process may end. A process that ends without is, to the controller
// and to its operator, a rank that died. Nothing is on its way to this rank any more.
func departCircuits(c *comm.Core) {
	p := circuits.Of(c)
	if p == nil || c.Failed() {
		return
	}
	if c.Rank == 0 {
		select {
		case <-c.Star.EveryoneLeft():
			live.Of(c).Close()
		case <-time.After(departWait):
			return // the Close hook takes leave
		}
	}
	p.Close()
}
