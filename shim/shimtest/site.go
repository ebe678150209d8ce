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
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/settings"
)

// table is a cross-connect that moves at once and correctly, until a test breaks it.
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
	Book        *book
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
	pen    *pen // of Core
	server *rpc.Server
	addr   string
}

// SiteOptions are the choices of [UseControllers].
type SiteOptions struct {
	Controllers int         // 0: one
	Version     string      // of the controllers; "": ours
	Rate        fabric.Rate // that the fabric file claims for its planes; 0: 2 Gb/s
	// Reconfig is the reconfiguration time in the file; 0: half a millisecond, the real one.
	Reconfig time.Duration
}

// moveTime is how long a move of a site's planes takes.
const moveTime = 500 * time.Microsecond

// UseControllers starts the controllers of a site and points the environment at its fabric.
func UseControllers(t *testing.T, ranks, planes int, o SiteOptions) *Site {
	t.Helper()
	o.Rate = cmp.Or(o.Rate, 2e9)
	o.Reconfig = cmp.Or(o.Reconfig, moveTime)
	s := &Site{t: t, Device: &table{}, ports: ranks}
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
	s.Book = newBook(s.Device.maps)
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
		infos = append(infos, p.Info())
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
	p := &pen{book: r.Site.Book}
	core, err := controller.Start(controller.Config{
		Name: r.addr, Ports: r.Site.ports, Planes: r.Site.planes, Device: r.Site.Device, Journal: p,
		Recovered: r.Site.Book.recovered(),
		Token:     r.Site.token.Add(1), Grace: 30 * time.Second,
	})
	require.NoError(r.Site.t, err)
	r.mu.Lock()
	r.Core, r.pen = core, p
	r.mu.Unlock()
}

// Stop ends the controller at once, like a crash: the journal does not get what it does about ranks that are gone.
func (r *controllerServer) Stop() {
	r.mu.Lock()
	core, p := r.Core, r.pen
	r.Core = nil
	r.mu.Unlock()
	if core != nil {
		p.cut()
	}
	r.server.Close()
	if core != nil {
		core.Close()
	}
}

// book is what the journal of a site has.
type book struct {
	mu     sync.Mutex
	Jump   uint32 // of epochs at every takeover
	planes []journal.State
	ruled  bool // a controller has begun
}

// newBook returns a journal that knows the maps of the planes.
func newBook(maps []circuit.Permutation) *book {
	b := &book{planes: make([]journal.State, len(maps))}
	for j, m := range maps {
		b.planes[j].Baseline(controller.Recovered{Map: m})
	}
	return b
}

// pen is the journal of one controller.
type pen struct {
	book *book
	over bool // the book's lock guards it
}

// Intend implements controller.Journal.
func (p *pen) Intend(i controller.Intent, done func(error)) {
	done(p.write(func() { p.book.planes[i.Plane].Intend(i) }))
}

// Record implements controller.Journal.
func (p *pen) Record(e controller.Event, done func(error)) {
	err := p.write(func() {
		if e.Plane >= 0 {
			p.book.planes[e.Plane].Apply(&e)
		}
	})
	if done != nil {
		done(err)
	}
}

func (p *pen) write(change func()) error {
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	if p.over {
		return controller.ErrNotLeader
	}
	change()
	return nil
}

// cut ends the controller's rule.
func (p *pen) cut() {
	p.book.mu.Lock()
	defer p.book.mu.Unlock()
	p.over = true
}

// recovered returns the state in which the last controller left the planes, nil for the first controller.
func (b *book) recovered() (all []controller.Recovered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ruled {
		b.ruled = true
		return nil
	}
	for j := range b.planes {
		r := b.planes[j].Next()
		r.Epoch += b.Jump
		all = append(all, r)
	}
	return all
}
