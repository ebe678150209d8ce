package switches

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/device"
	devicegnmi "lightpath/ocsctl/device/gnmi"
	devicenetconf "lightpath/ocsctl/device/netconf"
	devicescpi "lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/registry"
	"lightpath/ocsctl/internal/memnet"
	"lightpath/plans/circuit"
)

// patience is how long a test waits for what has to happen.
const patience = 60 * time.Second

// protocols serve a device in memory and return its target.
var protocols = map[string]func(t *testing.T, d *device.Device) driver.Target{
	"polatis-scpi": serveSCPI, "gnmi": serveGNMI, "netconf": serveNETCONF,
}

func serveSCPI(t *testing.T, d *device.Device) driver.Target {
	l := memnet.Listen()
	await.Background(t, func(ctx context.Context) error { return devicescpi.Serve(ctx, l, d) })
	return driver.Target{Endpoint: l.Addr().String(), Dial: l.Dial}
}

func serveGNMI(t *testing.T, d *device.Device) driver.Target {
	l := memnet.Listen()
	await.Background(t, func(ctx context.Context) error { return devicegnmi.Serve(ctx, l, d, devicegnmi.Options{}) })
	return driver.Target{Endpoint: l.Addr().String(), Dial: l.Dial}
}

func serveNETCONF(t *testing.T, d *device.Device) driver.Target {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	users := map[string]devicenetconf.User{"lightpath": {Keys: []ssh.PublicKey{key}}}
	s, err := devicenetconf.New(d, devicenetconf.Config{Mode: device.Bulk, Users: users})
	require.NoError(t, err)
	l := memnet.Listen()
	await.Background(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { s.Close() }) //nolint:errcheck // it returns nil
		defer stop()
		return s.Serve(l)
	})
	o := driver.Target{
		Endpoint: l.Addr().String(), Dial: l.Dial, User: "lightpath",
		KeyFile: filepath.Join(t.TempDir(), "key"), KnownHostsFile: filepath.Join(t.TempDir(), "hosts"),
	}
	write := func(path string, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	write(o.KeyFile, pem.EncodeToMemory(block))
	write(o.KnownHostsFile, []byte(knownhosts.Line([]string{o.Endpoint}, s.HostKey())+"\n"))
	return o
}

// rig is a device of one model, with planes of four ranks each.
type rig struct {
	*testing.T
	model *device.Device
	dev   *Device
	spy   *spy
	news  chan int // planes that the device has told of
	epoch atomic.Uint32
	idle  bool // moves are an operator's
}

const ranks = 4

// quick are the delays of a test's switch.
var quick = device.Delays{Min: time.Millisecond, Max: 3 * time.Millisecond}

func newModel(t *testing.T, ports int) *device.Device {
	t.Helper()
	d, err := device.New(device.Config{Ports: ports, Delays: &quick, Seed: 5})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	d.SetAveraging(10 * time.Millisecond)
	return d
}

// planesOf are so many planes on the ports of a model, one after the other.
func planesOf(d *device.Device, n int) []Plane {
	var all []Plane
	for j := range n {
		p := Plane{Name: string(rune('a' + j)), Switch: "sw"}
		for r := range ranks {
			p.Ports.In = append(p.Ports.In, d.Label(j*ranks+r, device.Ingress))
			p.Ports.Out = append(p.Ports.Out, d.Label(j*ranks+r, device.Egress))
		}
		all = append(all, p)
	}
	return all
}

// newRig opens a device of so many planes; change may alter the configuration.
func newRig(t *testing.T, protocol string, planes int, change func(*Config)) *rig {
	t.Helper()
	return newRigWaiting(t, calm, protocol, planes, change)
}

// waits are a driver's: for one answer, and until circuits are up.
type waits struct{ timeout, settle time.Duration }

// No host is so slow that a calm driver takes it for a fault; a hasty one is for tests of what comes after
// the wait.
var (
	calm  = waits{30 * time.Second, 30 * time.Second}
	hasty = waits{time.Second, 3 * time.Second}
	rash  = waits{100 * time.Millisecond, 200 * time.Millisecond} // for tests whose moves may fail
)

func newRigWaiting(t *testing.T, w waits, protocol string, planes int, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, model: newModel(t, planes*ranks), spy: &spy{}, news: make(chan int, 1024)}
	target := protocols[protocol](t, r.model)
	target.Timeout = w.timeout
	target.Tolerance = driver.Tolerance{Settle: w.settle, Averaging: 20 * time.Millisecond}
	c := Config{
		Planes: planesOf(r.model, planes), DriftInterval: 20 * time.Millisecond, MoveTimeout: patience,
		LookTimeout: 30 * time.Second, Averaging: 50 * time.Millisecond,
	}
	c.Open = func(ctx context.Context, _ string, ports driver.Ports) (driver.Switch, error) {
		o := target
		o.Ports = ports
		sw, err := registry.Open(ctx, protocol, o)
		if err != nil {
			return nil, err
		}
		return r.spy.on(sw), nil
	}
	if change != nil {
		change(&c)
	}
	r.start(c)
	return r
}

func (r *rig) start(c Config) {
	r.Helper()
	d, err := New(c)
	require.NoError(r, err)
	r.dev = d
	r.Cleanup(func() {
		if err := d.Close(); err != nil {
			r.Error(err)
		}
		if r.spy.overlaps.Load() > 0 {
			r.Errorf("%d changes of one switch overlapped", r.spy.overlaps.Load())
		}
	})
	d.OnSettled(func(plane int) {
		select {
		case r.news <- plane:
		default: // one unread notification is enough
		}
	})
}

// move asks for a move from what the plane has and waits for its end.
func (r *rig) move(plane int, to circuit.Permutation) error {
	r.Helper()
	from, err := r.dev.Map(plane)
	if err != nil {
		from = nil
	}
	return r.moveFrom(plane, from, to)
}

func (r *rig) moveFrom(plane int, from, to circuit.Permutation) error {
	r.Helper()
	m := controller.Move{Epoch: r.epoch.Add(1), From: from, To: to, Token: 3, Idle: r.idle}
	if err := r.dev.Switch(plane, m); err != nil {
		r.Fatalf("switch: %v", err)
	}
	r.settled(plane)
	_, unwell := r.dev.Report(plane)
	if unwell != nil && (strings.Contains(unwell.Error(), "\n") || len(unwell.Error()) > 1000) {
		r.Errorf("not one clear line: %q", unwell)
	}
	return unwell
}

// settled waits until a plane does not move.
func (r *rig) settled(plane int) {
	r.Helper()
	r.until(func() bool {
		_, err := r.dev.Map(plane)
		return !errors.Is(err, controller.ErrMoving)
	})
}

// until waits for a condition, looking at it whenever the device tells of something.
func (r *rig) until(ok func() bool) {
	r.Helper()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-r.news:
		case <-time.After(100 * time.Millisecond): // news may have come before
		case <-deadline:
			for j := range r.dev.planes {
				m, err := r.dev.Map(j)
				_, unwell := r.dev.Report(j)
				r.Logf("plane %d: map %v, %v; unwell: %v", j, m, err, unwell)
			}
			r.Fatal("it does not happen")
		}
	}
}

// must makes a move that has to succeed.
func (r *rig) must(plane int, to circuit.Permutation) {
	r.Helper()
	if err := r.move(plane, to); err != nil {
		r.Fatalf("plane %d to %v: %v", plane, to, err)
	}
	r.has(plane, to)
}

// has holds the model's own table, and the device's view of it, against a plane's map.
func (r *rig) has(plane int, want circuit.Permutation) {
	r.Helper()
	table := r.model.Map()
	for rank, to := range want {
		if to != circuit.Dark {
			to += plane * ranks
		}
		if table[plane*ranks+rank] != to {
			r.Fatalf("plane %d: the switch has %v, want %v", plane, table, want)
		}
	}
	if got, err := r.dev.Map(plane); err != nil || !got.Equal(want) {
		r.Fatalf("plane %d: map %v, %v; want %v", plane, got, err, want)
	}
}

func (r *rig) inject(f device.Fault) {
	r.Helper()
	require.NoError(r, r.model.Inject(f))
}

// unwell waits until a plane is unwell because of target, nil for well.
func (r *rig) unwell(plane int, target error) {
	r.Helper()
	r.until(func() bool {
		_, err := r.dev.Report(plane)
		return target == nil && err == nil || target != nil && errors.Is(err, target)
	})
}

// drifts waits until a plane has another map than the one given.
func (r *rig) drifts(plane int, from circuit.Permutation) {
	r.Helper()
	r.until(func() bool {
		m, err := r.dev.Map(plane)
		return err == nil && !m.Equal(from)
	})
}

// spy sees whether changes of a switch overlap, and can make them fail.
type spy struct {
	applying, overlaps, applied atomic.Int32
	looked                      atomic.Int32
	mu                          sync.Mutex
	before                      func(c driver.Change) error // of every change
}

func (s *spy) on(sw driver.Switch) driver.Switch {
	seen := &spied{Switch: sw, spy: s}
	if w, ok := sw.(driver.Watcher); ok {
		return &spiedWatcher{seen, w}
	}
	return seen
}

func (s *spy) set(f func(c driver.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

type spied struct {
	driver.Switch
	spy *spy
}

type spiedWatcher struct {
	*spied
	watcher driver.Watcher
}

func (w *spiedWatcher) Watch(ctx context.Context, changed func()) error {
	return w.watcher.Watch(ctx, changed)
}

func (s *spied) Read(ctx context.Context) (circuit.Permutation, error) {
	defer s.spy.looked.Add(1)
	return s.Switch.Read(ctx)
}

func (s *spied) Apply(ctx context.Context, c driver.Change) ([]driver.Circuit, error) {
	if s.spy.applying.Add(1) > 1 {
		s.spy.overlaps.Add(1)
	}
	defer s.spy.applying.Add(-1)
	s.spy.applied.Add(1)
	s.spy.mu.Lock()
	f := s.spy.before
	s.spy.mu.Unlock()
	if f != nil {
		if err := f(c); err != nil {
			return nil, err
		}
	}
	return s.Switch.Apply(ctx, c)
}
