package shim

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/planeset"
	"lightpath/shim/result"
	"lightpath/shim/settings"
)

// table is a cross-connect that moves at once, and does as it is told until it is broken.
type table struct {
	mu     sync.Mutex
	maps   []circuit.Permutation
	broken [64]error
}

// Switch implements controller.Device.
func (d *table) Switch(plane int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.broken[plane]; err != nil {
		return err
	}
	d.maps[plane] = m.To.Clone()
	return nil
}

// Map implements controller.Device.
func (d *table) Map(plane int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.maps[plane].Clone(), nil
}

// breaks has every later move of a plane fail; nil mends it.
func (d *table) breaks(plane int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken[plane] = err
}

// site is a fabric whose planes are the loopback interface, so that frames reach everyone whatever
// the circuits: with controllers that are reached over gRPC, the first of them in charge.
type site struct {
	t      *testing.T
	device *table
	book   *notebook
	token  atomic.Uint64
	ports  int
	planes []controller.PlaneConfig
	rulers []*ruler
}

// ruler is a controller and its server; core is nil while it stands by.
type ruler struct {
	site   *site
	mu     sync.Mutex
	core   *controller.Core
	server *rpc.Server
	addr   string
}

// siteOptions are what a site may have of its own.
type siteOptions struct {
	controllers int         // 0: one
	version     string      // of the controllers; "": ours
	rate        fabric.Rate // that the fabric file claims for its planes; 0: 2 Gb/s
	// reconfig is what the file says that a move takes; 0: half a millisecond, which is true.
	reconfig time.Duration
}

// moveTime is how long a move of a site's planes takes.
const moveTime = 500 * time.Microsecond

// newSite starts the controllers and points the environment at the fabric.
func newSite(t *testing.T, ranks, planes int, o siteOptions) *site {
	t.Helper()
	if o.rate == 0 {
		o.rate = 2e9
	}
	if o.reconfig == 0 {
		o.reconfig = moveTime
	}
	s := &site{t: t, device: &table{}, book: &notebook{}, ports: ranks}
	f := &fabric.Fabric{
		Version: fabric.Version, Name: fmt.Sprintf("tG%d-%d", os.Getpid(), rand.Uint32()), Ranks: ranks, Circuits: plans.Simplex,
		OCS: []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Reconfig: o.reconfig}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: o.rate, OCS: "ocs0", Interface: "lo"})
		s.device.maps = append(s.device.maps, circuit.AllDark(ranks))
		s.planes = append(s.planes, controller.PlaneConfig{Name: f.Planes[p].Name, BandwidthBitsPerSec: float64(o.rate), Reconfig: moveTime})
	}
	for range max(o.controllers, 1) {
		r := &ruler{site: s}
		r.serve(cmp.Or(o.version, Version))
		s.rulers = append(s.rulers, r)
		f.Controller.Endpoints = append(f.Controller.Endpoints, r.addr)
		t.Cleanup(r.stop)
	}
	s.rulers[0].takeOver()
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(path, f.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	t.Setenv("LIGHTPATH_TRANSPORT", settings.TransportEBPF)
	return s
}

func (r *ruler) serve(version string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.site.t.Fatal(err)
	}
	r.addr = l.Addr().String()
	var infos []ocsctl.PlaneInfo
	for _, p := range r.site.planes {
		infos = append(infos, ocsctl.PlaneInfo{Name: p.Name, BandwidthBitsPerSec: p.BandwidthBitsPerSec, Reconfig: p.Reconfig})
	}
	r.server, err = rpc.Serve(l, rpc.ServerOptions{
		Controller: r.inCharge, Ports: r.site.ports, Planes: infos, DataPlane: ocsctl.DataNone, Name: r.addr, Version: version,
	})
	if err != nil {
		r.site.t.Fatal(err)
	}
}

func (r *ruler) inCharge() (controller.Controller, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.core == nil {
		return nil, ""
	}
	return r.core, ""
}

// takeOver makes r the controller in charge.
func (r *ruler) takeOver() {
	core, err := controller.Start(controller.Config{
		Name: r.addr, Ports: r.site.ports, Planes: r.site.planes, Device: r.site.device, Journal: r.site.book, Recovered: r.site.book.recovered(),
		Token: r.site.token.Add(1), Grace: 30 * time.Second,
	})
	if err != nil {
		r.site.t.Fatal(err)
	}
	r.mu.Lock()
	r.core = core
	r.mu.Unlock()
}

// stop ends the controller, whatever it is in the middle of.
func (r *ruler) stop() {
	r.mu.Lock()
	core := r.core
	r.core = nil
	r.mu.Unlock()
	r.server.Close()
	if core != nil {
		core.Close()
	}
}

// notebook is the journal of all controllers of a site, which rule one after the other.
type notebook struct {
	mu     sync.Mutex
	jump   uint32 // of epochs at every takeover
	planes map[int]*controller.Recovered
}

// Intend implements controller.Journal.
func (n *notebook) Intend(i controller.Intent, done func(error)) {
	n.mu.Lock()
	n.plane(i.Plane).Intent = &i
	n.mu.Unlock()
	done(nil)
}

// Record implements controller.Journal.
func (n *notebook) Record(e controller.Event, done func(error)) {
	if done != nil {
		defer done(nil)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.Kind == controller.Switched {
		p := n.plane(e.Plane)
		p.Epoch, p.Map = e.Epoch, e.To
		if p.Intent != nil && p.Intent.Epoch < e.Epoch {
			p.Intent = nil
		}
	}
}

func (n *notebook) plane(j int) *controller.Recovered {
	if n.planes == nil {
		n.planes = map[int]*controller.Recovered{}
	}
	if n.planes[j] == nil {
		n.planes[j] = &controller.Recovered{}
	}
	return n.planes[j]
}

// recovered is where the controller before has left the planes of which anything is known.
func (n *notebook) recovered() []controller.Recovered {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.planes == nil {
		return nil
	}
	var all []controller.Recovered
	for j := range len(n.planes) {
		r := *n.plane(j)
		r.Epoch += n.jump
		all = append(all, r)
	}
	return all
}

// TestControllerElsewhere runs every collective with a controller that is reached over gRPC, on
// planes that are interfaces.
func TestControllerElsewhere(t *testing.T) {
	for _, name := range []string{"swot", "auto"} {
		t.Run(name, func(t *testing.T) {
			newSite(t, 4, 2, siteOptions{})
			t.Setenv("LIGHTPATH_PLANNER", name)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			w := newWorld(t, 4)
			rng := rand.New(rand.NewPCG(4, 4))
			for _, count := range []int{1, 1000, 40001} {
				w.runAll(t, rng, count)
			}
		})
	}
}

// TestPlaneDisabled: what an operator takes out of service two communicators leave out, and use
// again when it is back; the log says whose doing it is.
func TestPlaneDisabled(t *testing.T) {
	log := logTo(t, "WARN")
	s := newSite(t, 4, 2, siteOptions{})
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	a, b := newWorld(t, 4), newWorld(t, 4)
	core := s.rulers[0].core
	uses := func(use planeset.Set) bool {
		return settled(func() bool {
			for i, err := range concurrently(t, 8, func(i int) error {
				buf := []float32{float32(i % 4), 1}
				err := Run([]calls.Call{allReduce([]*world{a, b}[i/4].comms[i%4], buf)})
				if err == nil && (buf[0] != 6 || buf[1] != 4) {
					err = fmt.Errorf("%v", buf)
				}
				return err
			}) {
				if err != nil {
					t.Fatalf("rank %d: %v", i%4, err)
				}
			}
			return circuits.Of(a.comms[1]).Granted().Use == use && circuits.Of(b.comms[2]).Granted().Use == use
		})
	}
	if !uses(0b11) {
		t.Error("not all planes are in use")
	}
	for _, c := range []struct{ disable, enable, use planeset.Set }{{0b10, 0, 0b01}, {0b01, 0, 0}, {0, 0b10, 0b10}, {0, 0b01, 0b11}} {
		for j := range c.disable.Each() {
			if err := core.Disable(j, "mirrors are being cleaned", "ops"); err != nil {
				t.Fatal(err)
			}
		}
		for j := range c.enable.Each() {
			if err := core.Enable(j, "ops"); err != nil {
				t.Fatal(err)
			}
		}
		if !uses(c.use) {
			t.Errorf("planes %#b are in service, %#b in use", c.use, circuits.Of(a.comms[1]).Granted().Use)
		}
	}
	for _, want := range []string{"plane p1 is out of service", "disabled by ops: mirrors are being cleaned", "going on with 1 of 2 planes", "plane p0 is back in service"} {
		if !strings.Contains(log(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log())
		}
	}
}

// TestPlaneBreaks: a switch that fails in the middle of an operation ends that with the rank, the
// plane, the epoch and the reason. A communicator that was between two operations goes on without
// it, also where it shares the attachments, as do later ones, until an operator puts it back.
func TestPlaneBreaks(t *testing.T) {
	s := newSite(t, 4, 2, siteOptions{})
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w, other := newWorld(t, 4), newWorld(t, 4)
	rng := rand.New(rand.NewPCG(1, 1))
	w.runAll(t, rng, 1000)
	other.runAll(t, rng, 1000)
	for _, c := range append(w.comms, other.comms...) {
		circuits.Of(c).Quiesce(10 * time.Second) // what nobody waits for would fail between two operations
	}
	s.device.breaks(1, errors.New("mirror 7 is stuck"))
	for r, err := range w.each(func(c *Comm) error { return Run([]calls.Call{allReduce(c, make([]float32, 5000))}) }) {
		wantError(t, err, ocsctl.ErrReconfFailed, "rank ", "plane 1 epoch", "mirror 7 is stuck")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d", r, result.Of(err))
		}
	}
	w.destroy()
	uses := func(w *world, want planeset.Set) {
		t.Helper()
		w.runAll(t, rng, 777)
		if use := circuits.Of(w.comms[3]).Granted().Use; use != want {
			t.Errorf("planes %#b are in use, want %#b", use, want)
		}
	}
	uses(other, 0b01)
	uses(newWorld(t, 4), 0b01)
	s.device.breaks(1, nil)
	if err := s.rulers[0].core.Set(1, circuit.AllDark(4), "ops"); err != nil {
		t.Fatal(err)
	}
	givenBack(t, s.rulers[0].core)
	uses(other, 0b11)
}

// TestTakeover: a controller ends while collectives run, and another takes over. The ranks notice
// nothing but the time.
func TestTakeover(t *testing.T) {
	s := newSite(t, 4, 2, siteOptions{controllers: 3})
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	w := newWorld(t, 4)
	var stop sync.WaitGroup
	done := make(chan struct{})
	stop.Go(func() {
		defer close(done)
		for i := range s.rulers[1:] {
			time.Sleep(100 * time.Millisecond)
			s.rulers[i].stop()
			s.rulers[i+1].takeOver()
		}
		time.Sleep(300 * time.Millisecond)
	})
	rng := rand.New(rand.NewPCG(9, 9))
	for n := 0; ; n++ {
		w.runAll(t, rng, 1000+n)
		select {
		case <-done:
			t.Logf("%d rounds", n+1)
			stop.Wait()
			return
		default:
		}
	}
}

// TestTakeoverBetweenOperations: a controller that knows no more than below which epoch the planes
// are begins there; a communicator that holds them goes along.
func TestTakeoverBetweenOperations(t *testing.T) {
	s := newSite(t, 3, 2, siteOptions{controllers: 2})
	s.book.jump = 1000
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := newWorld(t, 3)
	rng := rand.New(rand.NewPCG(9, 9))
	w.runAll(t, rng, 100)
	for _, c := range w.comms {
		circuits.Of(c).Quiesce(10 * time.Second)
	}
	s.rulers[0].stop()
	s.rulers[1].takeOver()
	if !settled(func() bool { return circuits.Of(w.comms[0]).Controller.State(0).Epoch >= 1000 }) {
		t.Fatal("the leader has not found the other controller")
	}
	w.runAll(t, rng, 101)
	if e := circuits.Of(w.comms[2]).Now()[0].Epoch; e < 1000 {
		t.Errorf("plane 0 is at epoch %d", e)
	}
}

// TestNobodyTakesOver: without a controller every call ends when the client has given up, or the operation.
func TestNobodyTakesOver(t *testing.T) {
	s := newSite(t, 2, 1, siteOptions{})
	t.Setenv("LIGHTPATH_TIMEOUT", "3s")
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := newWorld(t, 2)
	time.AfterFunc(50*time.Millisecond, s.rulers[0].stop)
	for r, err := range w.each(func(c *Comm) error {
		for {
			if err := Run([]calls.Call{allReduce(c, make([]float32, 5000))}); err != nil {
				return err
			}
		}
	}) {
		// An operation that was under way may give up before the client does.
		if result.Of(err) != result.Timeout && !errors.Is(err, ocsctl.ErrControlLost) {
			t.Errorf("rank %d: %v, result %d", r, err, result.Of(err))
		}
	}
}

// TestControllerOfAnotherVersion: refused at the beginning, naming both.
func TestControllerOfAnotherVersion(t *testing.T) {
	newSite(t, 2, 1, siteOptions{version: "9.9.9"})
	id, err := NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Init([]InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}})
	wantError(t, err, ocsctl.ErrVersion, "9.9.9", Version)
}

// TestPlanesLeaveNothing: communicators on interfaces, with a controller elsewhere, give back
// sockets, memory and goroutines.
func TestPlanesLeaveNothing(t *testing.T) {
	newSite(t, 2, 2, siteOptions{})
	cycle := func() {
		w := newWorld(t, 2)
		w.must(func(c *Comm) error { return Run([]calls.Call{allReduce(c, make([]float32, 10))}) })
		w.destroy()
	}
	cycle() // what is made once per process
	before := census(t)
	for range 10 {
		cycle()
	}
	var after resources
	if !settled(func() bool { after = census(t); return after.within(before) }) {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
