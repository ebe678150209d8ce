package shimtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
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

// Break makes later moves of a plane fail with err. Nil repairs the plane.
func (d *table) Break(plane int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken[plane] = err
}

// Site is a fabric whose planes are the loopback interface, so that frames arrive whatever the circuits. It has
// controllers that communicators reach by gRPC. The first is in charge.
type Site struct {
	t           *testing.T
	Device      *table
	Book        *journal
	token       atomic.Uint64
	ports       int
	planes      []controller.PlaneConfig
	Controllers []*controllerServer
}

// controllerServer is a controller and its server. core is nil while the controller is on standby.
type controllerServer struct {
	Site   *Site
	mu     sync.Mutex
	Core   *controller.Core
	server *rpc.Server
	addr   string
}

// SiteOptions are the choices of [UseControllers].
type SiteOptions struct {
	Controllers int         // 0: one
	Version     string      // of the controllers; "": ours
	Rate        fabric.Rate // that the fabric file claims for its planes; 0: 2 Gb/s
	// reconfig is what the file says that a move takes; 0: half a millisecond, which is true.
	Reconfig time.Duration
}

// moveTime is how long a move of a site's planes takes.
const moveTime = 500 * time.Microsecond

// UseControllers starts the controllers of a site and points the environment at its fabric.
func UseControllers(t *testing.T, ranks, planes int, o SiteOptions) *Site {
	t.Helper()
	if o.Rate == 0 {
		o.Rate = 2e9
	}
	if o.Reconfig == 0 {
		o.Reconfig = moveTime
	}
	s := &Site{t: t, Device: &table{}, Book: &journal{}, ports: ranks}
	f := &fabric.Fabric{
		Version: fabric.Version, Name: fmt.Sprintf("tG%d-%d", os.Getpid(), rand.Uint32()), Ranks: ranks,
		Circuits: plans.Simplex,
		OCS:      []fabric.OCS{{Name: "ocs0", Driver: fabric.DriverEmulator, Reconfig: o.Reconfig}},
	}
	for p := range planes {
		f.Planes = append(f.Planes, fabric.Plane{Name: fmt.Sprintf("p%d", p), Bandwidth: o.Rate,
			OCS: "ocs0", Interface: "lo"})
		s.Device.maps = append(s.Device.maps, circuit.AllDark(ranks))
		s.planes = append(s.planes, controller.PlaneConfig{Name: f.Planes[p].Name, BandwidthBitsPerSec: float64(o.Rate),
			Reconfig: moveTime})
	}
	for range max(o.Controllers, 1) {
		r := &controllerServer{Site: s}
		r.serve(cmp.Or(o.Version, shim.Version))
		s.Controllers = append(s.Controllers, r)
		f.Controller.Endpoints = append(f.Controller.Endpoints, r.addr)
		t.Cleanup(r.Stop)
	}
	s.Controllers[0].TakeOver()
	path := filepath.Join(t.TempDir(), "fabric.yaml")
	require.NoError(t, os.WriteFile(path, f.Encode(), 0o600))
	t.Setenv("LIGHTPATH_FABRIC", path)
	t.Setenv("LIGHTPATH_TIMEOUT", "50s")
	t.Setenv("LIGHTPATH_TRANSPORT", settings.TransportEBPF)
	return s
}

func (r *controllerServer) serve(version string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r.Site.t, err)
	r.addr = l.Addr().String()
	var infos []ocsctl.PlaneInfo
	for _, p := range r.Site.planes {
		infos = append(infos, ocsctl.PlaneInfo{Name: p.Name, BandwidthBitsPerSec: p.BandwidthBitsPerSec,
			Reconfig: p.Reconfig})
	}
	r.server, err = rpc.Serve(l, rpc.ServerOptions{
		Controller: r.inCharge, Ports: r.Site.ports, Planes: infos, DataPlane: ocsctl.DataNone,
		Name: r.addr, Version: version,
	})
	require.NoError(r.Site.t, err)
}

func (r *controllerServer) inCharge() (controller.Controller, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Core == nil {
		return nil, ""
	}
	return r.Core, ""
}

// TakeOver puts this controller in charge.
func (r *controllerServer) TakeOver() {
	core, err := controller.Start(controller.Config{
		Name: r.addr, Ports: r.Site.ports, Planes: r.Site.planes, Device: r.Site.Device, Journal: r.Site.Book,
		Recovered: r.Site.Book.recovered(),
		Token:     r.Site.token.Add(1), Grace: 30 * time.Second,
	})
	require.NoError(r.Site.t, err)
	r.mu.Lock()
	r.Core = core
	r.mu.Unlock()
}

// Stop ends the controller at once.
func (r *controllerServer) Stop() {
	r.mu.Lock()
	core := r.Core
	r.Core = nil
	r.mu.Unlock()
	r.server.Close()
	if core != nil {
		core.Close()
	}
}

// journal is the journal that all controllers of a site share. One writes it at a time.
type journal struct {
	mu     sync.Mutex
	Jump   uint32 // of epochs at every takeover
	planes map[int]*controller.Recovered
}

// Intend implements controller.Journal.
func (n *journal) Intend(i controller.Intent, done func(error)) {
	n.mu.Lock()
	n.plane(i.Plane).Intent = &i
	n.mu.Unlock()
	done(nil)
}

// Record implements controller.Journal.
func (n *journal) Record(e controller.Event, done func(error)) {
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

func (n *journal) plane(j int) *controller.Recovered {
	if n.planes == nil {
		n.planes = map[int]*controller.Recovered{}
	}
	if n.planes[j] == nil {
		n.planes[j] = &controller.Recovered{}
	}
	return n.planes[j]
}

// recovered returns the state in which the last controller left the planes.
func (n *journal) recovered() []controller.Recovered {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.planes == nil {
		return nil
	}
	var all []controller.Recovered
	for j := range len(n.planes) {
		r := *n.plane(j)
		r.Epoch += n.Jump
		all = append(all, r)
	}
	return all
}
