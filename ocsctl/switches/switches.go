package switches

import (
	"cmp"
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

// ErrClosed reports a call after Close.
var ErrClosed = errors.New("switches: closed")

const (
	// DefaultMoveTimeout is the default of Config.MoveTimeout.
	DefaultMoveTimeout = 30 * time.Second
	// ProbeTimeout bounds the time for tokens to arrive.
	ProbeTimeout = time.Second
)

// Plane is a plane of the fabric: part of the ports of a switch.
type Plane struct {
	Name   string       // from the fabric file
	Switch string       // planes with the same Switch share its session
	Ports  driver.Ports // rank r sends into In[r] and receives from Out[r]
	// Reconfig is how long new circuits are dark. If the switch's status does not show when they are up, or is not
	// read, a move ends after this time.
	Reconfig time.Duration
}

// Config describes the device. Planes and Open are required.
type Config struct {
	Planes []Plane
	// Open connects to the switch of this name. ports holds the ports of all its planes, in the order of Planes. ctx
	// bounds the time to connect. The device calls it again after a failure.
	Open func(ctx context.Context, name string, ports driver.Ports) (driver.Switch, error)
	// Token is the controller's fencing token. Each switch that can fence sees it before it is read, so that no late
	// change of an earlier controller follows. 0: only moves carry tokens.
	Token uint64
	// Verify is the level to verify moves to, if the switch can; Unverified: Light.
	Verify driver.Level
	// Prober verifies circuits to driver.Token; nil: the highest level is Light.
	Prober Prober

	DriftInterval time.Duration // between two reads of a switch without moves; 0: 5 s
	MoveTimeout   time.Duration // for one move and its verification; 0: DefaultMoveTimeout
	LookTimeout   time.Duration // for connecting and one read; 0: 10 s
	Misses        int           // failed reads in a row after which the switch counts as lost; 0: 3
	Averaging     time.Duration // the longest window of the power meters, see [driver.Rule]; 0: 1.5 s

	Logger *slog.Logger // receives one line per change of state; nil: nothing is logged
}

// Prober tests circuits with data.
type Prober interface {
	// Probe sends a token over each circuit, and reports for each whether it arrived at the circuit's end. An error
	// means that the result is unknown.
	Probe(ctx context.Context, plane int, circuits []circuit.Pair) ([]bool, error)
}

// Device is a [controller.Timed] and [controller.Reporter] made of real switches. Methods may be called
// from any goroutine and return at once.
type Device struct {
	cfg    Config
	planes []*plane
	units  []*unit
	start  func(f func(ctx context.Context)) (stop func()) // runs f in the background; New and NewManual differ here
	stops  []func()                                        // end the goroutines or tasks of the units

	mu      sync.Mutex // guards the state of planes and the fields below
	settled func(plane int)
	closed  bool
}

// plane is the state of one plane; Device.mu guards all but the first group.
type plane struct {
	Plane
	index, first int // its number in the fabric; its first port on the switch
	unit         *unit

	move     *move               // pending or current; nil: none
	observed circuit.Permutation // nil: unknown
	unknown  error               // why observed is nil
	verified string              // level to which the circuits were verified
	unlit    []int               // ranks whose light does not arrive
	failure  error               // of the last move, until a later read finds the circuits good
	ended    time.Time           // end of the last move
	watch    error               // problem with circuits or ports that the last read found
	readings []controller.PortState
}

// move is a task of a plane.
type move struct {
	controller.Move
	verifyOnly bool // without changing circuits
}

var (
	_ controller.Verifier     = (*Device)(nil)
	_ controller.Reporter     = (*Device)(nil)
	_ controller.PortReporter = (*Device)(nil)
)

// New connects to all switches in parallel and reads each once. It returns an error for a bad configuration only: if
// a switch does not answer, Report returns an error for its planes until it does.
func New(c Config) (*Device, error) {
	d, err := newDevice(c)
	if err != nil {
		return nil, err
	}
	var looked sync.WaitGroup
	for _, u := range d.units {
		looked.Add(1)
		d.stops = append(d.stops, d.start(func(ctx context.Context) { u.run(ctx, looked.Done) }))
	}
	looked.Wait()
	return d, nil
}

func newDevice(c Config) (*Device, error) {
	c.setDefaults()
	d := &Device{cfg: c, start: startGoroutine}
	if err := d.group(); err != nil {
		return nil, fmt.Errorf("switches: %w", err)
	}
	return d, nil
}

// startGoroutine calls f in a goroutine. stop ends its context and waits for its end.
func startGoroutine(f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (c *Config) setDefaults() {
	c.Verify = cmp.Or(c.Verify, driver.Light)
	c.DriftInterval = cmp.Or(c.DriftInterval, 5*time.Second)
	c.MoveTimeout = cmp.Or(c.MoveTimeout, DefaultMoveTimeout)
	c.LookTimeout = cmp.Or(c.LookTimeout, 10*time.Second)
	c.Misses = cmp.Or(c.Misses, 3)
	c.Averaging = cmp.Or(c.Averaging, 1500*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// rule returns the rule by which a session judges circuits. The Device itself sends tokens.
func (c *Config) rule() driver.Rule {
	return driver.Rule{Want: min(c.Verify, driver.Light), Window: c.Averaging}
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
			u = &unit{
				d: d, name: c.Switch, wake: make(chan struct{}, 1), log: d.cfg.Logger.With("switch", c.Switch),
				logged: map[problemID]bool{},
			}
			byName[c.Switch] = u
			d.units = append(d.units, u)
		}
		c.Ports = driver.Ports{In: slices.Clone(c.Ports.In), Out: slices.Clone(c.Ports.Out)} // a remap changes them
		p := &plane{Plane: c, index: j, first: len(u.ports.In), unit: u, unknown: errors.New("not read so far")}
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

// Switch implements controller.Device. It returns at once; the move runs in the background. A move without From
// accepts any current map.
func (d *Device) Switch(index int, m controller.Move) error {
	p, err := d.plane(index)
	if err != nil {
		return err
	}
	n := len(p.Ports.In)
	if err := m.To.Validate(n); err != nil {
		return fmt.Errorf("switches: plane %s: target: %w", p.Name, err)
	}
	if m.From != nil {
		if err := m.From.Validate(n); err != nil {
			return fmt.Errorf("switches: plane %s: from: %w", p.Name, err)
		}
	}
	return d.begin(p, &move{Move: m})
}

// Verify implements controller.Verifier. It returns at once; the circuits are verified in the background.
func (d *Device) Verify(index int, token uint64) error {
	p, err := d.plane(index)
	if err != nil {
		return err
	}
	return d.begin(p, &move{Move: controller.Move{Token: token, Idle: true}, verifyOnly: true})
}

// begin passes a move to the plane's switch.
func (d *Device) begin(p *plane, m *move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if p.move != nil {
		return fmt.Errorf("switches: plane %s: the move of epoch %d is under way: %w", p.Name, p.move.Epoch,
			controller.ErrMoving)
	}
	p.move = m
	p.unit.ring()
	return nil
}

// Map implements controller.Device. It returns ErrMoving until a move and its verification have ended. Then it returns
// the map that the switch had at the last reading, or an error that wraps [ocsctl.ErrUnknownMap].
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
		return nil, fmt.Errorf("switches: plane %s: %w: %w", p.Name, ocsctl.ErrUnknownMap, p.unknown)
	}
	return p.observed, nil
}

// Report implements controller.Reporter. unwell is the failure of the last move, a failed port, a circuit without
// light, or a switch that does not answer. It does not cover a wrong map, which Map shows. If it wraps
// [controller.ErrNotLeader], the switch obeys a controller with a higher token.
func (d *Device) Report(index int) (verified string, unwell error) {
	p, err := d.plane(index)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.verified, p.unwell()
}

// Unlit implements controller.PortReporter. The caller owns the result.
func (d *Device) Unlit(index int) []int {
	p, err := d.plane(index)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(p.unlit)
}

// Ports implements controller.PortReporter. While the switch does not answer, the ports have labels only.
func (d *Device) Ports(index int) []controller.PortState {
	p, err := d.plane(index)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(p.readings)
}

// SettleWithin returns the longest time from Switch to the end of the move; the controller should wait that long. It
// includes a read and an earlier move of the same switch, which may have to end first.
func (d *Device) SettleWithin() time.Duration {
	return 2*d.cfg.MoveTimeout + 3*d.cfg.LookTimeout
}

// Close ends all sessions and abandons moves; the circuits stay as they are. Afterwards Switch returns ErrClosed.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
	return nil
}

func (d *Device) plane(index int) (*plane, error) {
	if index < 0 || index >= len(d.planes) {
		return nil, fmt.Errorf("switches: there is no plane %d, only %d", index, len(d.planes))
	}
	return d.planes[index], nil
}

// notify calls the controller's function for each of the planes.
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
