// Package switches makes one controller.Device of the real switches behind the planes of a fabric.
// One goroutine per switch owns its session and is the only writer: it carries out the moves that the
// controller asks for, in the background, and in between looks whether the switch still has the circuits
// that were made and the ports still carry light.
//
// Layer: ocsctl, between controller and driver. It decides nothing: whether a plane is in service,
// what its map shall be and who may move it belong to the controller; how a switch is spoken to
// belongs to its driver.
package switches

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// ErrClosed is what calls after Close get.
var ErrClosed = errors.New("switches: closed")

// Defaults of [Config].
const (
	DefaultDriftInterval = 5 * time.Second
	DefaultMoveTimeout   = 30 * time.Second
	DefaultLookTimeout   = 10 * time.Second
	DefaultProbeTimeout  = time.Second
	DefaultMisses        = 3
	DefaultAveraging     = 1500 * time.Millisecond
)

// Plane is a plane of the fabric: part of the ports of a switch.
type Plane struct {
	Name   string       // as the fabric file has it
	Switch string       // planes that name the same are on one switch, and share its session
	Ports  driver.Ports // rank r sends into In[r] and receives from Out[r]
	// Reconfig is how long circuits are dark after they have been asked for, where the switch does
	// not say when they are up, or is not asked: a move is not over before.
	Reconfig time.Duration
}

// Config describes the device. Planes and Open are required.
type Config struct {
	Planes []Plane
	// Open connects to a switch by its name in Planes, with the ports of all planes on it, in the
	// order of Planes. The context bounds connecting. It is called again after a failure.
	Open func(ctx context.Context, name string, ports driver.Ports) (driver.Switch, error)
	// Verify is how far moves are verified, as far as each switch can; Unverified stands for Light.
	Verify driver.Level
	// Prober verifies to driver.Token; nil where nothing can, then Light is as far as it goes.
	Prober Prober

	DriftInterval time.Duration // between two looks at a switch that does not move
	MoveTimeout   time.Duration // for one move, verification and all
	LookTimeout   time.Duration // for connecting and one look
	ProbeTimeout  time.Duration // for tokens to come out
	Misses        int           // looks in a row that may fail before the switch counts as lost
	LightDBm      float64       // received power below which a circuit is dark
	Averaging     time.Duration // the longest window of the power meters: see [driver.Rule]

	Logger *slog.Logger // is told once of every change of what is known; nil: nothing is logged
}

// Prober sends a token over each of the circuits of a plane and says, circuit by circuit, whether it
// came out where it should. An error means that it could not tell.
type Prober interface {
	Probe(ctx context.Context, plane int, circuits []circuit.Pair) ([]bool, error)
}

// Device is a [controller.Timed] and [controller.Reporter] made of real switches. Methods may be called
// from any goroutine and return at once.
type Device struct {
	cfg    Config
	planes []*plane
	units  []*unit
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex // guards the state of planes, and what follows
	settled func(plane int)
	closed  bool
}

// plane is the state of one plane; Device.mu guards all but the first group.
type plane struct {
	index, first int // of the fabric; its first port on the switch
	name         string
	ports        driver.Ports
	reconfig     time.Duration
	unit         *unit

	move     *move               // under way; nil when settled
	observed circuit.Permutation // nil: unknown
	unknown  error               // why observed is nil
	verified string              // how far the circuits are verified
	unlit    []int               // ranks whose light does not arrive
	failure  error               // of the last move, until the circuits are seen to be good again
	ended    time.Time           // the last move
	watch    error               // what is wrong with the circuits and ports, as last seen
}

// move is a task of a plane.
type move struct {
	controller.Move
	only bool // verify only, and leave the circuits as they are
}

var (
	_ controller.Verifier   = (*Device)(nil)
	_ controller.Reporter   = (*Device)(nil)
	_ controller.LightMeter = (*Device)(nil)
)

// New connects to all switches, side by side, and looks at them once. A switch that does not answer is
// no error: its planes are unwell until it does. What is wrong with the configuration is one.
func New(c Config) (*Device, error) {
	c.setDefaults()
	d := &Device{cfg: c}
	if err := d.group(); err != nil {
		return nil, fmt.Errorf("switches: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	var looked sync.WaitGroup
	for _, u := range d.units {
		looked.Add(1)
		d.ended.Add(1)
		go func() {
			defer d.ended.Done()
			u.look(ctx)
			looked.Done()
			u.run(ctx)
		}()
	}
	looked.Wait()
	return d, nil
}

func (c *Config) setDefaults() {
	if c.Verify == driver.Unverified {
		c.Verify = driver.Light
	}
	if c.DriftInterval <= 0 {
		c.DriftInterval = DefaultDriftInterval
	}
	if c.MoveTimeout <= 0 {
		c.MoveTimeout = DefaultMoveTimeout
	}
	if c.LookTimeout <= 0 {
		c.LookTimeout = DefaultLookTimeout
	}
	if c.ProbeTimeout <= 0 {
		c.ProbeTimeout = DefaultProbeTimeout
	}
	if c.Misses <= 0 {
		c.Misses = DefaultMisses
	}
	if c.Averaging <= 0 {
		c.Averaging = DefaultAveraging
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// rule is how circuits are judged. Tokens are sent by the Device.
func (c *Config) rule() driver.Rule {
	return driver.Rule{Want: min(c.Verify, driver.Light), LightDBm: c.LightDBm, Window: c.Averaging}
}

// group checks the planes and finds the switch of each.
func (d *Device) group() error {
	if d.cfg.Open == nil || len(d.cfg.Planes) == 0 {
		return errors.New("no planes, or nothing to open switches with")
	}
	byName := make(map[string]*unit)
	for j, c := range d.cfg.Planes {
		n := len(c.Ports.In)
		switch {
		case n == 0 || c.Ports.Out != nil && len(c.Ports.Out) != n:
			return fmt.Errorf("plane %s: %d ingress and %d egress ports", c.Name, n, len(c.Ports.Out))
		case c.Switch == "":
			return fmt.Errorf("plane %s: names no switch", c.Name)
		}
		u := byName[c.Switch]
		if u == nil {
			u = &unit{d: d, name: c.Switch, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1), log: d.cfg.Logger.With("switch", c.Switch)}
			byName[c.Switch] = u
			d.units = append(d.units, u)
		}
		p := &plane{
			index: j, first: len(u.ports.In), name: c.Name, ports: c.Ports, reconfig: c.Reconfig, unit: u,
			unknown: errors.New("not read so far"),
		}
		if err := u.add(p); err != nil {
			return err
		}
		d.planes = append(d.planes, p)
	}
	return nil
}

// OnSettled implements controller.Timed. f must not block; it may call the device.
func (d *Device) OnSettled(f func(plane int)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = f
}

// Switch implements controller.Device: it returns at once, and the move goes on in the background. A
// move without From begins at whatever map the switch has.
func (d *Device) Switch(index int, m controller.Move) error {
	p, err := d.plane(index)
	if err != nil {
		return err
	}
	n := len(p.ports.In)
	if err := m.To.Validate(n); err != nil {
		return fmt.Errorf("switches: plane %s, epoch %d: target: %w", p.name, m.Epoch, err)
	}
	if m.From != nil {
		if err := m.From.Validate(n); err != nil {
			return fmt.Errorf("switches: plane %s, epoch %d: from: %w", p.name, m.Epoch, err)
		}
	}
	return d.begin(p, &move{Move: m})
}

// Verify implements controller.Verifier: the circuits are read and verified anew, in the background.
func (d *Device) Verify(index int, token uint64) error {
	p, err := d.plane(index)
	if err != nil {
		return err
	}
	return d.begin(p, &move{Move: controller.Move{Token: token, Idle: true}, only: true})
}

// begin hands a task to the goroutine of the plane's switch.
func (d *Device) begin(p *plane, m *move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if p.move != nil {
		return fmt.Errorf("switches: plane %s, epoch %d: the move of epoch %d is under way: %w", p.name, m.Epoch, p.move.Epoch, controller.ErrMoving)
	}
	p.move = m
	select {
	case p.unit.wake <- struct{}{}:
	default: // it will look anyway
	}
	return nil
}

// Map implements controller.Device: ErrMoving until all verdicts are in, then what the switch was last
// seen to have, or an error that wraps [ocsctl.ErrUnknownMap].
func (d *Device) Map(index int) (circuit.Permutation, error) {
	p, err := d.plane(index)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case p.move != nil:
		return nil, controller.ErrMoving
	case p.observed == nil:
		return nil, fmt.Errorf("switches: plane %s: %w: %w", p.name, ocsctl.ErrUnknownMap, p.unknown)
	}
	return p.observed, nil
}

// Report implements controller.Reporter: how far the circuits that the plane has now are verified; the
// failure of the last move, ports that have failed, circuits without light, a switch that does not answer.
// That another map than desired is there is for Map to say. An error that wraps [controller.ErrNotLeader]
// says that the switch obeys a controller with a higher token.
func (d *Device) Report(index int) (verified string, unwell error) {
	p, err := d.plane(index)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.verified, p.unwell()
}

// Unlit implements controller.LightMeter. The caller owns the result.
func (d *Device) Unlit(index int) []int {
	p, err := d.plane(index)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(p.unlit)
}

// SettleWithin bounds the time from Switch to the end of the move, whatever the switch does: the
// controller should not give up before. A look and an earlier move of the same switch may have to end
// first.
func (d *Device) SettleWithin() time.Duration {
	return 2*d.cfg.MoveTimeout + 3*d.cfg.LookTimeout
}

// Close ends all sessions; a move under way is given up where it is, and the circuits stay. Afterwards
// Switch returns ErrClosed.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.ended.Wait()
	return nil
}

func (d *Device) plane(index int) (*plane, error) {
	if index < 0 || index >= len(d.planes) {
		return nil, fmt.Errorf("switches: there is no plane %d, only %d", index, len(d.planes))
	}
	return d.planes[index], nil
}

// notify tells the controller that planes have something new.
func (d *Device) notify(planes []*plane) {
	d.mu.Lock()
	f := d.settled
	d.mu.Unlock()
	if f == nil {
		return
	}
	for _, p := range planes {
		f(p.index)
	}
}
