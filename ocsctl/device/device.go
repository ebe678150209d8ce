package device

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lightpath/plans/circuit"
)

// MaxPorts bounds the ports of a side.
const MaxPorts = 4096

// Errors of requests, wrapped with the circuit or port.
var (
	ErrPort      = errors.New("no such port")
	ErrBusy      = errors.New("port has another circuit")
	ErrNoCircuit = errors.New("no such circuit")
	ErrGhost     = errors.New("circuit is in the status only and cannot be removed before it is made")
	ErrPartial   = errors.New("bulk request ended before this circuit")
	ErrDown      = errors.New("the switch is starting")
)

// Side is one of the two sides of a switch; a circuit goes from an ingress to an egress port.
type Side int

// The sides.
const (
	Ingress Side = iota
	Egress
)

// PortState is the reported state of a port.
type PortState int

// The states of a port. A port without a circuit is Blocked. A port with a circuit is Tuning until it
// carries light, then Tuned, or Failed.
const (
	Blocked PortState = iota
	Tuning
	Tuned
	Failed
)

// String returns the switches' word for s, in capitals.
func (s PortState) String() string {
	return word([]string{"BLOCKED", "TUNING", "TUNED", "FAILED"}, int(s))
}

// Mode is the way in which a switch executes a request with several circuits.
type Mode int

// The modes.
const (
	Serial Mode = iota // one circuit moves after the other, and after earlier serial requests
	Bulk               // all move at once
)

// ColdBoot is the effect of a reboot on circuits.
type ColdBoot int

// The modes of a cold boot.
const (
	Remove   ColdBoot = iota // the table is empty afterwards
	Restore                  // dark while it starts, then the circuits are made again
	Maintain                 // light stays on throughout
)

// Labels names the ports of a side, for port 0 and up, in a switch's own words.
type Labels func(port int) string

// Numbers are the labels first, first+1, ...
func Numbers(first int) Labels {
	return func(port int) string { return strconv.Itoa(first + port) }
}

// Suffixed are the labels 1A, 2A, ... for the suffix A.
func Suffixed(suffix string) Labels {
	return func(port int) string { return strconv.Itoa(port+1) + suffix }
}

// Info is the identity of a switch.
type Info struct{ Vendor, Model, Serial, Software string }

// Config describes a switch. The zero value of every field but Ports is usable.
type Config struct {
	Ports  int     // per side, 1..MaxPorts
	Preset string  // a name of Presets; default polatis-25ms
	Delays *Delays // instead of the preset's
	Seed   uint64  // of delays and losses
	// BreakConflicts: a request for a port in use removes the port's circuit and takes Delays.Conflict longer.
	// Otherwise it gets ErrBusy.
	BreakConflicts bool
	ColdBoot       ColdBoot
	// Initial is the map of all ports at the start, as on a switch that was running before; nil: there are no circuits.
	Initial   circuit.Permutation
	NoMeters  bool    // no port measures power; otherwise those of the egress side do
	LaunchDBm float64 // power into every ingress port
	In, Out   Labels  // default 1..N and N+1..2N, as Polatis numbers them
	Info      Info    // default by preset
	// Now is the clock of a simulation; nil: the machine's. With it the switch sets no timers: each call updates the
	// state, Due returns the time of the next change, and Run returns an error.
	Now func() time.Time
	// Draw returns a number in 0..n-1 for a delay; nil: pseudo-random numbers of Seed.
	Draw func(n int64) int64
}

// Connection is a row of the table that a switch reports.
type Connection struct {
	In, Out int
	State   PortState
	Ghost   bool // reported without a request, and without light
}

// Device is the model of one switch. Methods may be called concurrently.
type Device struct {
	cfg    Config
	manual bool // Config.Now is the clock of a simulation
	preset Preset
	start  time.Time

	mu          sync.Mutex
	byIn, byOut []*row // circuits, by port
	ghosts      []*row
	next        time.Time // the earliest row that is due, zero if none
	busyUntil   time.Time // of the serial engine
	timer       *time.Timer
	bootAt      time.Time // when the switch is up again, zero if it is
	saved       []circuit.Pair
	revision    uint64
	averaging   time.Duration
	light       [][]sample // per egress port
	faults      faults
	outbox
	closed bool
}

// row is one circuit of the table.
type row struct {
	in, out int
	state   PortState
	due     time.Time // when Tuning ends
	outcome PortState // the final state
	dim     bool      // Tuned, but a mirror did not follow
}

// New returns a switch without circuits, as if just unpacked.
func New(c Config) (*Device, error) {
	if c.Ports < 1 || c.Ports > MaxPorts {
		return nil, fmt.Errorf("device: %d ports, want 1..%d", c.Ports, MaxPorts)
	}
	if c.Preset == "" {
		c.Preset = DefaultPreset
	}
	p, ok := Presets[c.Preset]
	if !ok {
		return nil, fmt.Errorf("device: there is no preset %q: want one of %s", c.Preset,
			strings.Join(slices.Sorted(maps.Keys(Presets)), ", "))
	}
	if c.Delays != nil {
		p.Delays = *c.Delays
	}
	if err := p.Delays.validate(); err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	if c.In == nil {
		c.In = Numbers(1)
	}
	if c.Out == nil {
		c.Out = Numbers(1 + c.Ports)
	}
	if c.Info == (Info{}) {
		model := fmt.Sprintf(p.Model, c.Ports, c.Ports)
		if c.NoMeters { // models without detectors have another name
			model = strings.Replace(model, "N-OST", "I-OST", 1)
		}
		c.Info = Info{Vendor: p.Vendor, Model: model, Serial: fmt.Sprintf("%08d", c.Seed%1e8), Software: "6.5.2.18"}
	}
	manual := c.Now != nil
	if !manual {
		c.Now = time.Now
	}
	if c.Draw == nil {
		c.Draw = rand.New(rand.NewPCG(c.Seed, 0x0c5)).Int64N
	}
	d := &Device{
		cfg: c, manual: manual, preset: p, start: c.Now(),
		byIn: make([]*row, c.Ports), byOut: make([]*row, c.Ports), light: make([][]sample, c.Ports), averaging: p.Averaging,
	}
	d.changed = make(chan struct{})
	if c.Initial != nil {
		if err := c.Initial.Validate(c.Ports); err != nil {
			return nil, fmt.Errorf("device: initial map %w", err)
		}
		for in, out := range c.Initial {
			if out != circuit.Dark {
				r := &row{in: in, out: out, state: Tuned}
				d.byIn[in], d.byOut[out] = r, r
				d.illuminate(d.start, out)
			}
		}
	}
	return d, nil
}

// Close stops the switch's clock; its state stays as it is.
func (d *Device) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.faults.stop()
}

// Ports returns the number of ports of a side.
func (d *Device) Ports() int { return d.cfg.Ports }

// Info returns the identity of the switch.
func (d *Device) Info() Info { return d.cfg.Info }

// Label returns the name of a port, "" outside the switch.
func (d *Device) Label(port int, side Side) string {
	switch {
	case port < 0 || port >= d.cfg.Ports:
		return ""
	case side == Ingress:
		return d.cfg.In(port)
	default:
		return d.cfg.Out(port)
	}
}

// Up reports whether the switch answers. It does not while it starts.
func (d *Device) Up() bool {
	d.lock()
	defer d.unlock()
	return d.bootAt.IsZero()
}

// Revision counts the changes of the table.
func (d *Device) Revision() uint64 {
	d.lock()
	defer d.unlock()
	return d.revision
}

// Map returns the circuits that the switch has made or is making, without ghosts.
func (d *Device) Map() circuit.Permutation {
	d.lock()
	defer d.unlock()
	p := circuit.AllDark(d.cfg.Ports)
	for in, r := range d.byIn {
		if r != nil {
			p[in] = r.out
		}
	}
	return p
}

// Table returns the rows that the switch reports, by ingress port, ghosts last; with ghosts, a port may have two
// circuits.
func (d *Device) Table() []Connection {
	d.lock()
	defer d.unlock()
	var all []Connection
	for _, r := range d.byIn {
		if r != nil {
			all = append(all, Connection{In: r.in, Out: r.out, State: r.state})
		}
	}
	for _, r := range d.ghosts {
		all = append(all, Connection{In: r.in, Out: r.out, State: Tuned, Ghost: true})
	}
	return all
}

// Status returns the state of a port, Blocked outside the switch.
func (d *Device) Status(port int, side Side) PortState {
	d.lock()
	defer d.unlock()
	if port < 0 || port >= d.cfg.Ports {
		return Blocked
	}
	rows := d.byIn
	if side == Egress {
		rows = d.byOut
	}
	if rows[port] == nil {
		return Blocked
	}
	return rows[port].state
}

// Switching reports whether any circuit is Tuning.
func (d *Device) Switching() bool {
	d.lock()
	defer d.unlock()
	return slices.ContainsFunc(d.byIn, func(r *row) bool { return r != nil && r.state == Tuning })
}

func word(words []string, i int) string {
	if i < 0 || i >= len(words) {
		return strconv.Itoa(i)
	}
	return words[i]
}
