package shim

import (
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
)

// Init makes communicators of this process, all at once: ranks of one communicator may be
// among them. On failure nothing stays behind and the error is the first by position.
// The environment is read here and stays what it was for the communicator's life.
func Init(args []InitArgs) ([]*Comm, error) {
	cfg, err := LoadConfig()
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
	}
	comms := make([]*Comm, len(args))
	errs := make([]error, len(args))
	var wg sync.WaitGroup
	for i := range args {
		wg.Go(func() { comms[i], errs[i] = initOne(args[i], cfg, fab) })
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(e error) bool { return e != nil }); i >= 0 {
		for _, c := range comms {
			if c != nil {
				_ = c.Abort() // the reason is errs[i]
			}
		}
		return nil, errs[i]
	}
	return comms, nil
}

func (a *InitArgs) check() error {
	switch {
	case a.Ranks < 1 || a.Ranks > maxRanks:
		return fmt.Errorf("shim: nranks %d is not in 1..%d: %w", a.Ranks, maxRanks, ErrInvalidArgument)
	case a.Rank < 0 || a.Rank >= a.Ranks:
		return fmt.Errorf("shim: rank %d is not in 0..%d: %w", a.Rank, a.Ranks-1, ErrInvalidArgument)
	}
	_, _, err := parseID(&a.ID)
	return err
}

// initOne makes one communicator. Every step is bounded by the timeout, and from the
// moment that the control star stands a failure on one rank fails all.
func initOne(args InitArgs, cfg *Config, fab *fabricInfo) (c *Comm, err error) {
	log, err := newLogger(cfg, args.Device)
	if err != nil {
		return nil, err
	}
	c = &Comm{
		args: args, cfg: cfg, log: log, serial: serials.Add(1),
		poisonCh: make(chan struct{}), released: make(chan struct{}), inbox: make(chan *message, 64),
	}
	for _, line := range cfg.variables {
		log.info(subEnv, "%s", line)
	}
	c.pairs = exec.NewPairs(args.Ranks)
	defer func() {
		if err != nil {
			c.spread(err)
			_ = c.Abort()
			<-c.released
			c = nil
		}
	}()
	addr, sec, err := parseID(&args.ID)
	if err != nil {
		return c, err
	}
	l, err := listen(args, cfg)
	if err != nil {
		return c, err
	}
	defer l.close()
	if cfg.CommID != "" && args.Rank == 0 && args.ID == envID(addr) {
		if _, err := startRoot(cfg, sec, addr); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			return c, err
		}
	}
	h := c.hello(l, fab)
	if c.id, c.table, err = meet(addr, sec, &h, cfg.Timeout); err != nil {
		return c, err
	}
	leaderAt := c.table[0].Control
	if c.star, err = newStar(args.Rank, args.Ranks, l.control, leaderAt, sec, cfg.Timeout); err != nil {
		c.star = nil
		return c, err
	}
	if args.Rank == 0 {
		c.leader = newLeader(c)
	}
	c.star.start(c.deliver, c.peerLost)
	return c, c.attach(l, sec, fab)
}

// attach connects the planes, and returns when every rank has.
func (c *Comm) attach(l *listeners, sec secret, fab *fabricInfo) error {
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
	kind, err := chooseTransport(c.table, c.cfg.Transport)
	if err == nil {
		err = c.attachPacket(kind, l, sec)
	}
	if err == nil {
		err = c.attachOptical(fab, sec)
	}
	if err != nil {
		return err // fail tells the others
	}
	if c.leader != nil {
		c.leader.start()
	}
	ready := &message{Kind: msgReady}
	if err := c.star.toLeader(ready); err != nil {
		return err
	}
	if _, err := c.await(msgGo, 0); err != nil {
		return err
	}
	c.log.version("Lightpath version %s, %s", Version, libraryPath())
	c.log.info(subInit, "comm %#x rank %d nranks %d name %q transport %s planes %d fabric %s - Init COMPLETE",
		c.id, c.args.Rank, c.args.Ranks, c.args.Name, kind, len(c.packet.Planes()), c.light.describe())
	return nil
}

// hello is this rank's entry in the table.
func (c *Comm) hello(l *listeners, fab *fabricInfo) hello {
	h := hello{
		Rank: c.args.Rank, Ranks: c.args.Ranks, Host: hostID(), Name: c.log.host, PID: c.log.pid, Process: processID(),
		Version: Version, Settings: c.cfg.settings(), Fabric: fab.digest(), Port: c.cfg.launcherRank,
	}
	if c.cfg.FabricRank >= 0 {
		h.Port, h.PortGiven = c.cfg.FabricRank, true
	}
	if l.control != nil {
		h.Control = l.control.Addr().String()
	}
	h.TCP = l.tcpAddr()
	return h
}

// settings are what ranks must agree on to make the same choices.
func (c *Config) settings() string {
	var items []string
	for coll, name := range c.Algorithms {
		items = append(items, coll+":"+name)
	}
	slices.Sort(items)
	s := fmt.Sprintf("LIGHTPATH_TRANSPORT=%s LIGHTPATH_PLANES=%d", c.Transport, c.Planes)
	if len(items) > 0 {
		s += " LIGHTPATH_ALGORITHM=" + strings.Join(items, ",")
	}
	if c.PlanCurrent {
		s += " LIGHTPATH_PLAN_INITIAL=current"
	}
	if c.BarrierTime {
		s += fmt.Sprintf(" LIGHTPATH_BARRIER=time LIGHTPATH_BARRIER_SLACK=%g%%+%v", 100*c.BarrierSlack.Part, c.BarrierSlack.Fixed)
	}
	return s
}

// processID tells processes apart, those of different containers too.
var processID = sync.OnceValue(randomID)

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
func listenTCP(cfg *Config) (net.Listener, error) {
	ip, err := controlAddr(cfg.controlIf())
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", netip.AddrPortFrom(ip, 0).String())
	if err != nil {
		return nil, fmt.Errorf("shim: control listener: %w", err)
	}
	return ln, nil
}
