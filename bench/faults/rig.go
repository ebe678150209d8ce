package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal/etcd"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/kernel"
	"lightpath/plans"
	"lightpath/plans/fabric"
	"lightpath/shim"
)

// The fabric of every scenario.
const (
	ranks  = 4
	planes = 2
)

// setup describes the fabric, controllers and ranks of a scenario.
type setup struct {
	standby  bool          // another controller stands by; both share a journal that outlives each of them
	file     bool          // one controller has its journal in a file, also without scpi
	ranks    int           // of the job; 0 is one for each port
	remote   bool          // ranks reach the controllers by gRPC instead of a local socket
	scpi     bool          // the planes' switch is one that speaks SCPI, and not part of the controller
	preset   string        // with scpi: kind of the switch; empty: one that takes exactly the fabric's time
	verify   string        // with scpi: how far moves are verified
	env      []string      // of the ranks
	timeout  time.Duration // LIGHTPATH_TIMEOUT on an idle machine; 0 is longer than any scenario
	phases   []phase
	open     bool          // the job has more operations than the scenario needs
	apart    bool          // ranks meet in collectives only
	ahead    bool          // ranks get the tickets of operations that repeat before they ask
	reconfig time.Duration // 0: 10 ms
	rate     fabric.Rate   // of planes; 0: 200 Mb/s
}

// rig is a running scenario.
type rig struct {
	*Result
	setup
	ctx  context.Context
	o    *Options
	dir  string
	name string // of the fabric

	view        *kernel.View
	down        func() error // of the planes
	store       *etcd.Client // serves the journal
	valve       *valve       // through which controllers reach it
	sw          *process     // the switch, with scpi
	scpiAddress string
	controllers []*process
	listen      []string // by controller
	operator    *rpc.Operator
	job         *job

	injectedAt time.Time
}

var rigs atomic.Int64

// newRig builds the planes and starts switch, controllers and ranks. The caller closes the rig, also
// after an error.
func newRig(ctx context.Context, o *Options, s *scenario, r *Result) (*rig, error) {
	g := &rig{Result: r, setup: s.setup, ctx: ctx, o: o, name: fmt.Sprintf("flt%d-%d", os.Getpid(), rigs.Add(1))}
	var err error
	if g.dir, err = os.MkdirTemp("", "lightpath-faults-"); err != nil {
		return g, err
	}
	for _, step := range []func() error{g.buildPlanes, g.startSwitch, g.startControllers, g.startRanks} {
		if err := step(); err != nil {
			return g, err
		}
	}
	return g, nil
}

func (g *rig) path(file string) string { return filepath.Join(g.dir, file) }

// buildPlanes writes the fabric file and builds its planes.
func (g *rig) buildPlanes() error {
	f := &fabric.Fabric{Version: fabric.Version, Name: g.name, Ranks: ranks, Circuits: plans.Simplex}
	sw := fabric.OCS{Name: "ocs0", Driver: fabric.DriverEmulator, Reconfig: cmp.Or(g.reconfig, 10*time.Millisecond)}
	free, err := freeAddresses()
	if err != nil {
		return err
	}
	if g.scpiAddress, g.listen = free[0], free[1:]; !g.standby {
		g.listen = free[1:2]
	}
	if g.scpi {
		sw.Driver, sw.Endpoint = fabric.DriverPolatis, g.scpiAddress
	}
	f.OCS = []fabric.OCS{sw}
	for j := range planes {
		p := fabric.Plane{Name: fmt.Sprintf("p%d", j), Bandwidth: cmp.Or(g.rate, 200e6), OCS: sw.Name,
			Interface: fmt.Sprintf("p%d", j)}
		for r := range ranks {
			if g.scpi { // ingress ports come first, then those of egress
				p.Ports = append(p.Ports, fmt.Sprintf("%d/%d", j*ranks+r+1, (planes+j)*ranks+r+1))
			}
		}
		f.Planes = append(f.Planes, p)
	}
	f.Controller.Endpoints = []string{"unix:" + g.path("c0.sock")}
	if g.remote {
		f.Controller.Endpoints = g.listen
	}
	if err := os.WriteFile(g.path("fabric.yaml"), f.Encode(), 0o600); err != nil {
		return err
	}
	if f, err = fabric.Load(g.path("fabric.yaml")); err != nil {
		return err
	}
	state, down, err := kernel.Temporary(f, kernel.Options{})
	if err != nil {
		return err
	}
	g.down = down
	g.view, err = kernel.Look(state)
	return err
}

// startSwitch starts the model of the switch that the planes follow, unless the model is part of the controller.
func (g *rig) startSwitch() (err error) {
	if err := os.WriteFile(g.path("faults.yaml"), []byte("[]\n"), 0o600); err != nil || !g.scpi {
		return err
	}
	g.sw, err = start(g.ctx, "the switch", g.o.Lightpath, "ocs", "emulate", "--ports", fmt.Sprint(planes*ranks), "--scpi",
		g.scpiAddress, "--preset", g.preset,
		"--fabric", g.path("fabric.yaml"), "--faults", g.path("faults.yaml"))
	if err == nil {
		_, err = g.sw.await("scpi on", 0)
	}
	return err
}

// startControllers starts them one after the other, so that the first is in charge.
func (g *rig) startControllers() (err error) {
	if g.standby {
		// Served from here, the journal outlives every controller, as a cluster would.
		c := etcd.Config{Name: "witness", Software: shim.Version, Dir: g.path("journal"), Lease: lease}
		if g.store, err = etcd.Open(g.ctx, c); err != nil {
			return err
		}
		if g.valve, err = newValve(g.path("valve.sock"), g.path("journal/etcd.sock")); err != nil {
			return err
		}
	}
	for i := range g.listen {
		if err := g.startController(i); err != nil {
			return err
		}
	}
	if g.operator, err = rpc.DialOperator(g.listen, rpc.Options{Version: shim.Version}); err != nil {
		return err
	}
	return wait(g.ctx, "a controller is in charge of both planes", patience, func() (bool, error) {
		s, err := g.operator.Status(g.ctx)
		if isClosed(g.controllers[0].done) {
			return false, fmt.Errorf("%w: %s", errEnded, g.controllers[0].last())
		}
		return err == nil && s.Planes[0].State == controller.Resident && s.Planes[1].State == controller.Resident, nil
	})
}

// stretched returns d, lengthened for a loaded machine by less than Slack: scenarios wait until such times have passed.
func (g *rig) stretched(d time.Duration) time.Duration {
	return d * time.Duration(min(max(1, g.o.Slack), 3))
}

// replyTimeout is how long a controller waits for an answer of the switch, stretched.
const replyTimeout = 500 * time.Millisecond

// lease is how long a silent controller stays in charge.
const lease = 2 * time.Second

func (g *rig) startController(i int) error {
	c := fabric.OCSD{
		Version: fabric.Version, Name: controllerName(i), Fabric: g.path("fabric.yaml"), DataPlane: fabric.DataKernel,
		Listen: g.listen[i],
		Device: fabric.DeviceConfig{Faults: g.path("faults.yaml")},
	}
	if !g.remote {
		c.Socket = g.path("c0.sock")
	}
	if g.scpi {
		c.DataPlane, c.Device = fabric.DataNone, fabric.DeviceConfig{}
		c.Switches = fabric.SwitchesConfig{Verify: g.verify, DriftInterval: 100 * time.Millisecond,
			Settle: g.stretched(time.Second), ReplyTimeout: g.stretched(replyTimeout)}
	}
	switch {
	case g.store != nil:
		c.Journal = fabric.JournalConfig{
			Kind: fabric.JournalEtcd, Endpoints: []string{"unix:" + g.path("valve.sock")}, Lease: lease,
		}
	case g.file:
		c.Journal = fabric.JournalConfig{Kind: fabric.JournalFile}
	}
	config := g.path(c.Name + ".yaml")
	if err := os.WriteFile(config, c.Encode(), 0o600); err != nil {
		return err
	}
	g.controllers = append(g.controllers, nil)
	if err := g.runController(i); err != nil || i == 0 {
		return err
	}
	p := g.controllers[i]
	op, err := rpc.DialOperator(g.listen[i:i+1], rpc.Options{Version: shim.Version})
	if err != nil {
		return err
	}
	err = wait(g.ctx, p.what+" stands by", patience, func() (bool, error) {
		_, err := op.History(g.ctx, controller.AllEvents())
		return err == nil, nil
	})
	return errors.Join(err, op.Close())
}

// controllerName returns the name by which a controller answers, and of its configuration file.
func controllerName(i int) string { return fmt.Sprintf("c%d", i) }

// runController starts the process of a controller, for the first time or again. The first controller must become the
// leader.
func (g *rig) runController(i int) (err error) {
	name := controllerName(i)
	g.controllers[i], err = start(g.ctx, "controller "+name, g.o.Lightpath, "ocsd", "--config", g.path(name+".yaml"))
	if err == nil && i == 0 {
		_, err = g.controllers[i].await(inCharge, 0)
	}
	return err
}

func (g *rig) startRanks() error {
	timeout := patience
	if g.timeout > 0 {
		timeout = g.stretched(g.timeout)
	}
	phases := slices.Clone(g.phases)
	for i := range phases {
		phases[i].pause = g.stretched(phases[i].pause)
	}
	iteration := "off" // then ranks give planes back between operations
	if g.ahead {
		iteration = "auto"
	}
	g.job = startJob(g.ctx, g.o.Worker, append([]string{
		"LIGHTPATH_FABRIC=" + g.path("fabric.yaml"), "LIGHTPATH_PLANNER=perstep", "LIGHTPATH_PLAN_WAIT=1",
		"LIGHTPATH_ALGORITHM=alltoall:pairwise",
		"LIGHTPATH_ITERATION=" + iteration,
		"LIGHTPATH_TIMEOUT=" + timeout.String(), "NCCL_DEBUG=WARN", "NCCL_DEBUG_FILE=" + g.path("log.%p"),
	}, g.env...), cmp.Or(g.ranks, ranks), phases, g.apart)
	return nil
}

// addressings counts the calls of freeAddresses.
var addressings atomic.Uint32

// freeAddresses returns addresses of this host that no socket has, for a switch and two controllers. Each call uses a
// loopback address of its own. The outgoing connections of other processes have ports of 127.0.0.1, so they cannot take
// one of these ports before the listener does.
func freeAddresses() ([]string, error) {
	pid := os.Getpid()
	host := fmt.Sprintf("127.%d.%d.%d:0", 64+pid%128, pid/128%256, 1+addressings.Add(1)%254)
	var all []string
	for range 3 {
		l, err := net.Listen("tcp", host)
		if err != nil {
			return nil, err
		}
		defer l.Close() // at the end: the addresses must differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// close ends everything and leaves nothing behind.
func (g *rig) close() error {
	if g.job != nil {
		g.job.stop()
	}
	for _, p := range append(slices.Clone(g.controllers), g.sw) {
		if p != nil {
			p.kill()
		}
	}
	var errs []error
	if g.operator != nil {
		errs = append(errs, g.operator.Close())
	}
	if g.valve != nil {
		errs = append(errs, g.valve.close())
	}
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	if g.view != nil {
		errs = append(errs, g.view.Close())
	}
	if g.down != nil {
		errs = append(errs, g.down())
	}
	return errors.Join(append(errs, os.RemoveAll(g.dir))...)
}
