package shim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"lightpath/shim/arbiter/live"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/endpoints"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/membership"
	"lightpath/shim/memory"
	"lightpath/shim/onesided"
	"lightpath/shim/path/host"
	"lightpath/shim/path/optical"
	"lightpath/shim/path/peer"
	"lightpath/shim/path/staged"
	"lightpath/shim/planeset"
	"lightpath/shim/recorder"
	"lightpath/shim/report"
	"lightpath/shim/session"
	"lightpath/shim/settings"
	"lightpath/shim/shares"
	"lightpath/shim/stall"
	"lightpath/shim/stream"
)

// Init makes several communicators of this process at once, also several ranks of one communicator. If one fails, Init
// frees all and returns the first error by position. If a rank gets no communicator (a split without a color) the
// result is nil. Init reads the environment; later changes have no effect on its communicators.
//
// Communicators that do not block are returned with [errdefs.ErrInProgress]; [Comm.State] tells when they can be used,
// or why not. All of one Init are of one kind.
func Init(args []InitArgs) ([]*comm.Core, error) {
	cfg, err := settings.Load()
	if err != nil {
		membership.Refuse(args, err)
		return nil, err
	}
	return InitWith(cfg, args)
}

// InitWith is [Init] with settings of the caller instead of the environment. The communicators share cfg, which no
// caller may change afterwards.
func InitWith(cfg *settings.Config, args []InitArgs) ([]*comm.Core, error) {
	fab, err := endpoints.LoadFabric(cfg)
	if err == nil {
		err = fab.Pin(cfg)
	}
	if err == nil {
		err = checkArgs(args)
	}
	if err != nil {
		membership.Refuse(args, err)
		return nil, err
	}
	comms := make([]*comm.Core, len(args))
	for i := range args {
		comms[i] = newComm(args[i], cfg)
	}
	if args[0].NonBlocking {
		for i, c := range comms {
			start(c, fab)
			if !membership.Of(c).Wanted() {
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

// checkArgs checks the arguments of a group.
func checkArgs(args []InitArgs) error {
	for i := range args {
		if err := args[i].Check(); err != nil {
			return err
		}
		if args[i].NonBlocking != args[0].NonBlocking {
			return fmt.Errorf("shim: a group cannot hold blocking and nonblocking communicators: %w",
				errdefs.ErrInvalidArgument)
		}
	}
	return nil
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
		case failed >= 0 && errs[i] == nil && membership.Of(c).Wanted():
			_ = c.Abort() // the reason is errs[failed]
		case !membership.Of(c).Wanted():
			comms[i] = nil
		}
	}
	if failed >= 0 {
		return errs[failed]
	}
	return nil
}

// newComm prepares a communicator; start makes it.
func newComm(args InitArgs, cfg *settings.Config) *comm.Core {
	c := membership.New(args, cfg)
	calls.Setup(c)
	recorder.New(c, cfg.Flight.Recorder)
	report.Setup(c, requestOf(&membership.Of(c).Args))
	handleMessages(c)
	addHooks(c)
	findDevice(c)
	c.Log = cfg.NewLog(c.Device)
	for _, line := range cfg.Variables() {
		c.Log.Info(log.Env, "%s", line)
	}
	return c
}

// requestOf describes a request for a communicator. The id itself is a secret.
func requestOf(a *InitArgs) report.Request {
	r := report.Request{Name: a.Name, Ranks: a.Ranks, Rank: a.Rank, Device: a.Device}
	if o := a.From; o != nil {
		r.Key = fmt.Sprintf("%v-of-%x", o.How, o.Parent.ID)
		if o.How != membership.ByShrink {
			r.Ranks, r.Rank = o.Ranks, o.Parent.Rank
		}
		return r
	}
	sum := sha256.Sum256(a.ID[:])
	r.Key = "id-" + hex.EncodeToString(sum[:4])
	return r
}

// handleMessages registers the handlers of control messages.
func handleMessages(c *comm.Core) {
	stall.Handle(c)
	live.Handle(c)
	peer.Handle(c)
	circuits.Handle(c)
	stream.Handle(c)
	shares.Handle(c)
}

// addHooks registers the hooks that end the parts of a communicator.
func addHooks(c *comm.Core) {
	c.AddHooks(comm.Hooks{Ending: func() { memory.LeaveAll(c) }})
	c.AddHooks(comm.Hooks{Departed: live.Of(c).Departed, Detach: live.Of(c).Departed, Close: live.Of(c).Close})
	c.AddHooks(comm.Hooks{Detach: func() { onesided.Of(c).End() }, Close: func() { onesided.Of(c).End() }})
	session.Setup(c)
	host.Setup(c)
	c.AddHooks(comm.Hooks{
		Quiet:  func() { circuits.Of(c).Quiesce() },
		Detach: func() { departCircuits(c) },
		Close:  func() { circuits.Of(c).Close() },
	})
}

// findDevice gives the communicator its device, if it has one.
func findDevice(c *comm.Core) {
	stream.Find(c, membership.Of(c).Parent())
	if stream.Of(c) != nil {
		staged.Setup(c)
	}
}

// start makes the communicator in the background. It holds the communicator's lock until that has succeeded or failed,
// and then sends the error, nil for success.
func start(c *comm.Core, fab *endpoints.Fabric) <-chan error {
	ended := make(chan error, 1)
	m := membership.Of(c)
	m.Begin()
	report.Watch(c)
	c.Turn.Lock()
	go func() {
		err := m.Await(c.Context())
		if err == nil {
			err = joinRanks(c, fab)
		}
		if err != nil {
			echo := c.Joined() && comm.IsEcho(err)
			if echo {
				c.AwaitCause()
			}
			if first := c.Fail(err); echo || errors.Is(err, context.Canceled) {
				err = first // what ended the wait
			}
			m.Withdraw(err)
			c.Leave()
			c.Release(0)
		} else if !m.Wanted() {
			c.Release(0)
		}
		m.EndTurn()
		c.SetAlive()
		m.End()
		c.Turn.Unlock()
		ended <- err
	}()
	return ended
}

// joinRanks meets the other ranks and connects to them. Every step is bounded by the timeout and the communicator's
// context. As soon as the control star stands, a failure of one rank fails all.
func joinRanks(c *comm.Core, fab *endpoints.Fabric) error {
	m := membership.Of(c)
	leader, alone := m.Roles(c)
	l, err := endpoints.Listen(c.Cfg, leader, alone)
	if err != nil {
		return err
	}
	defer l.Close()
	rendezvous, err := m.OpenRendezvous(c)
	if err != nil {
		return err
	}
	h := helloOf(c, l, fab, rendezvous)
	if err := membership.Meet(c, &h); err != nil || !m.Wanted() {
		return err
	}
	settleCut(c)
	session.Of(c).CountMessages()
	var star *control.Star
	if c.Rank == 0 {
		star, err = control.Lead(c.Context(), c.Ranks, l.Control, c.Secret, c.Cfg.Timeout,
			func(rank int) error { return membership.Ended(c, rank) })
	} else {
		star, err = control.Join(c.Context(), c.Rank, c.Ranks, c.Table[0].Control, c.Secret, c.Cfg.Timeout)
	}
	if star == nil {
		return err
	}
	membership.ExchangeFailures(c)
	if err == nil && c.Cfg.Sockets.Heartbeat > 0 {
		err = star.Probe(c.Cfg.Sockets.Heartbeat)
	}
	c.Join(star)
	if err != nil {
		return err // the ranks that have joined are told
	}
	onesided.Attach(c, rendezvous)
	return attachPlanes(c, l, fab)
}

// settleCut decides the largest size of calls that are made in one piece.
func settleCut(c *comm.Core) {
	calls.FactsOf(c).Cut = 0
	for i := range c.Table {
		if c.Table[i].Device && c.Table[i].Fabric == "" {
			calls.FactsOf(c).Cut = c.Cfg.Device.Staging
		}
	}
}

// attachPlanes connects the planes, and returns when all ranks have.
func attachPlanes(c *comm.Core, l *endpoints.Listeners, fab *endpoints.Fabric) error {
	c.CountLocal()
	kind, err := endpoints.ChooseTransport(c.Table, c.Cfg)
	if kind == "tcp" {
		session.Of(c).MinPiece = endpoints.MinPiece(c.Table)
	}
	if err == nil {
		session.Of(c).Packet, session.Of(c).Arena, err = endpoints.Packet(c, kind, l)
	}
	if err == nil {
		err = circuits.Attach(c, fab)
	}
	if p := circuits.Of(c); err == nil && p != nil && c.Rank == 0 {
		err = live.Attach(c, p)
	}
	if f := calls.FactsOf(c); err == nil {
		f.Planes = planeset.All(len(session.Of(c).Packet.Planes()))
		if o := circuits.Of(c); o != nil {
			f.Circuits, f.Planes, f.CircuitKind = true, o.Site.All(), o.Site.Template.Circuits
		}
	}
	if err == nil {
		session.Of(c).Shares = shares.Attach(c, kind, len(session.Of(c).Packet.Planes()), circuits.Of(c) != nil)
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
	tuned, err := c.AwaitAll(tune(c, kind))
	if err == nil {
		err = dispatch.Adopt(c, kind, tuned)
	}
	if err != nil {
		return err
	}
	recorder.Profile(c)
	report.WriteMetrics(c)
	c.Log.Version("Lightpath version %s, %s", Version, libraryPath())
	c.Log.Info(log.Init, "comm %#x rank %d nranks %d name %q transport %s planes %d fabric %s - Init COMPLETE",
		c.ID, c.Rank, c.Ranks, c.Name, kind, len(session.Of(c).Packet.Planes()), circuits.Of(c).Describe())
	return nil
}

// tune returns the leader's answers of a tuner plugin for all ranks, if such answers have a meaning.
func tune(c *comm.Core, kind string) []byte {
	why := ""
	switch {
	case c.Rank != 0 || c.Ranks == 1:
		return nil
	case circuits.Of(c) != nil:
		why = "plans choose the algorithms of a communicator with circuits"
	case session.Of(c).Arena != nil:
		why = "ranks that share memory have one algorithm"
	default:
		return dispatch.Tune(c, kind == settings.TransportNet)
	}
	if c.Cfg.Plugins.Tuner != "" {
		c.Log.Info(log.Init, "NCCL_TUNER_PLUGIN has no effect: %s", why)
	}
	return nil
}

// helloOf returns this rank's entry in the table.
func helloOf(c *comm.Core, l *endpoints.Listeners, fab *endpoints.Fabric,
	rendezvous *bootstrap.Rendezvous) bootstrap.Hello {
	h := bootstrap.Hello{
		Rank: c.Rank, Ranks: c.Ranks, Host: bootstrap.HostID(), Name: c.Log.Host, PID: c.Log.PID,
		Process: bootstrap.ProcessID(), PIDs: bootstrap.PIDNamespace(),
		Version: Version, Settings: c.Cfg.Agreed(), Fabric: fab.Digest(), Port: c.Cfg.LauncherRank,
	}
	if c.Cfg.FabricRank >= 0 {
		h.Port, h.PortGiven = c.Cfg.FabricRank, true
	}
	if p := membership.Of(c).Parent(); p != nil && circuits.Of(p) != nil {
		h.Port, h.PortGiven = circuits.Of(p).Site.Places.Ports()[p.Rank], true
	}
	if l.Control != nil {
		h.Control = l.Control.Addr().String()
	}
	h.TCP, h.Rendezvous = l.TCPAddr(), rendezvous.Address()
	h.PlaneMbps = endpoints.PlaneMbps(c.Cfg, fab, h.TCP)
	stream.Describe(c, &h)
	h.NoDirect, h.NoRemote = c.Cfg.NCCL.NoDirect, c.Cfg.NCCL.NoRemote
	return h
}

// libraryPath returns the file that this code was loaded from. It tells a user which of several libraries a program
// uses.
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

// departCircuits detaches from the controller before the process may end. Otherwise the controller reports to its
// operator that a rank died. No more data is on its way to this rank.
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
			return // the Close hook detaches
		}
	}
	p.Close()
}
