package controller

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// Bounds of a configuration.
const (
	MaxPorts  = 4096
	MaxPlanes = 64
)

// Config describes a controller, its planes and its device.
type Config struct {
	Name   string // of the controller, for operators
	Ports  int
	Planes []PlaneConfig
	// Initial holds the map that each plane's device must have at the start. A nil map, or a nil slice, accepts any
	// map. A map of Recovered takes precedence.
	Initial []circuit.Permutation
	Device  Device
	// DataPath carries data over the circuits in this process; nil: this process carries none.
	DataPath DataPath
	Journal  Journal // nil: none; the controller's state ends with it
	Token    uint64  // of the journal's leadership
	LastSeq  uint64  // of the newest event in the journal
	// Leading is called before every move and returns nil while this controller rules. An error that wraps
	// ErrNotLeader ends its rule. It must not block. nil: the controller always rules.
	Leading func() error
	// Log receives one line for each plane that goes out of service or comes back, and for each operator's order;
	// nil: nothing is logged.
	Log *slog.Logger
	// Recovered holds one entry per plane from the journal of an earlier controller; nil: there was none.
	Recovered []Recovered
	// Before holds the rank of each port under the controller before; nil: RankUnknown for all.
	Before []RankBefore
	// Grace is the grace time after a takeover; 0: DefaultGrace. During it, ranks of the controller before come back
	// and claim their leases; no other leases are granted. It ends early when every port that is RankUnknown in Before
	// has a rank.
	Grace time.Duration
	// JournalTimeout bounds how long the journal may take to answer; 0: 10 s.
	JournalTimeout time.Duration
	// SettleTimeout bounds how long a device may move beyond the reconfiguration time; 0: one second.
	SettleTimeout time.Duration
	// PowerDrop is the loss of received power in dB that makes a port dim; 0: 3 dB.
	PowerDrop float64
	// Forgive puts a plane whose device failed back into service, at the map of the device, once all ranks that saw
	// the failure have detached. It is for emulated switches; real ones wait for an operator.
	Forgive bool
}

// RankBefore is a port's rank under the controller before, as far as the journal shows.
type RankBefore uint8

// The ranks of earlier controllers.
const (
	RankUnknown RankBefore = iota // the port may have a rank, which has to find this controller
	RankLeft                      // the port had no rank any more
	RankLost                      // the rank disconnected without a goodbye, and may still send
)

// DefaultGrace is the time for ranks to find the next controller. It is longer than they take to notice that theirs is
// silent, since the lease of a controller that hangs may expire at once.
const DefaultGrace = 8 * time.Second

// defaultJournalTimeout is the time for a journal to answer. It is longer than a store needs to notice that it has lost
// its leadership.
const defaultJournalTimeout = 10 * time.Second

// PlaneConfig describes one plane.
type PlaneConfig struct {
	Name string // in the fabric file; "": the plane's number
	// BandwidthBitsPerSec is the rate of every circuit, of data bytes without labels.
	BandwidthBitsPerSec float64
	// Reconfig is how long changing ports are dark, plus ReconfigPerPort for each new circuit. Timed devices ignore
	// both.
	Reconfig, ReconfigPerPort time.Duration
	// PinnedBy names the owner of the plane's circuits: only operators move them. "": ranks may move them too.
	PinnedBy string
	// Labels are the switch's ports of a plane on a real switch, as the fabric file names them; Spares are ports that may
	// take their place.
	Labels, Spares []string
}

// Info describes the plane to clients.
func (p *PlaneConfig) Info() ocsctl.PlaneInfo {
	return ocsctl.PlaneInfo{Name: p.Name, BandwidthBitsPerSec: p.BandwidthBitsPerSec, Reconfig: p.Reconfig,
		ReconfigPerPort: p.ReconfigPerPort}
}

// String names the plane, as all texts for operators and ranks do.
func (p *PlaneConfig) String() string { return "plane " + p.Name }

// DataPath carries data over circuits. The core calls its methods; they must not block. now is in nanoseconds of
// CLOCK_MONOTONIC.
type DataPath interface {
	// Step does all that is due, and returns the time of the next call.
	Step(now int64) (next int64)
	// Darken stops the circuits of these ports, which start to move, and drops the data on them.
	Darken(plane int, ports []int, now int64)
	// Install puts map m in force. New circuits exist from the epochs made on, by port.
	Install(plane int, m circuit.Permutation, made []uint32, now int64)
	// Advance sets the epoch of the plane, and of its ports. began is the start of the move, or 0 if nothing moved.
	Advance(plane int, epoch uint32, epochs []uint32, began, now int64)
	// Attach passes AttachOptions.Data, which a port's rank shares with the data path. After Detach, the data path
	// does not use it any more.
	Attach(port int, data any, now int64)
	Detach(port int, now int64)
}

// Inbox holds posts of a front end that the core fetches itself, such as shared memory.
type Inbox interface {
	// Collect passes every new post on. The core calls it in every iteration of its loop, and after every ring of
	// [Core.Bell]; it must not block. The core keeps target, which must not change any more. Equal posts should
	// share one target, since comparing it is then fast.
	Collect(post PostFunc)
}

// PostFunc passes on a post that an [Inbox] has fetched.
type PostFunc func(a Attachment, plane int, epoch uint32, holder uint64, target circuit.Permutation)

// Check returns the error of the first field that Start would refuse.
func (c Config) Check() error {
	_, err := c.complete()
	return err
}

// complete sets defaults and checks all fields; its error names the first bad one.
func (c Config) complete() (*Config, error) {
	c.SettleTimeout = cmp.Or(c.SettleTimeout, time.Second)
	c.PowerDrop = cmp.Or(c.PowerDrop, defaultPowerDrop)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.JournalTimeout = cmp.Or(c.JournalTimeout, defaultJournalTimeout)
	switch {
	case c.Ports < 1 || c.Ports > MaxPorts:
		return nil, fmt.Errorf("controller: config ports: %d, want 1..%d", c.Ports, MaxPorts)
	case len(c.Planes) < 1 || len(c.Planes) > MaxPlanes:
		return nil, fmt.Errorf("controller: config planes: %d, want 1..%d", len(c.Planes), MaxPlanes)
	case c.SettleTimeout < 0:
		return nil, fmt.Errorf("controller: config settle timeout: %v is negative", c.SettleTimeout)
	case c.JournalTimeout < 0:
		return nil, fmt.Errorf("controller: config journal timeout: %v is negative", c.JournalTimeout)
	case c.Grace < 0:
		return nil, fmt.Errorf("controller: config grace: %v is negative", c.Grace)
	case !(c.PowerDrop >= minPowerDrop && c.PowerDrop <= maxPowerDrop):
		return nil, fmt.Errorf("controller: config power drop: %v dB, want %v..%v", c.PowerDrop, minPowerDrop, maxPowerDrop)
	case c.Device == nil:
		return nil, errors.New("controller: config device: missing")
	case c.Initial != nil && len(c.Initial) != len(c.Planes):
		return nil, fmt.Errorf("controller: config initial: %d maps for %d planes", len(c.Initial), len(c.Planes))
	case c.Before != nil && len(c.Before) != c.Ports:
		return nil, fmt.Errorf("controller: config before: %d entries for %d ports", len(c.Before), c.Ports)
	case c.Recovered != nil && len(c.Recovered) != len(c.Planes):
		return nil, fmt.Errorf("controller: config recovered: %d entries for %d planes", len(c.Recovered), len(c.Planes))
	}
	if c.Before == nil {
		c.Before = make([]RankBefore, c.Ports)
	}
	c.Planes = slices.Clone(c.Planes)
	for i := range c.Planes {
		p := &c.Planes[i]
		p.Name = cmp.Or(p.Name, strconv.Itoa(i))
		if !(p.BandwidthBitsPerSec >= 0) || math.IsInf(p.BandwidthBitsPerSec, 0) {
			return nil, fmt.Errorf("controller: config planes[%d] bandwidth: %v bits/s", i, p.BandwidthBitsPerSec)
		}
		if p.Reconfig < 0 || p.ReconfigPerPort < 0 {
			return nil, fmt.Errorf("controller: config planes[%d] reconfig: %v, %v per port", i, p.Reconfig, p.ReconfigPerPort)
		}
	}
	return &c, c.checkMaps()
}

func (c *Config) checkMaps() error {
	for i, m := range c.Initial {
		if m == nil {
			continue
		}
		if err := m.Validate(c.Ports); err != nil {
			return fmt.Errorf("controller: config initial[%d]: %w", i, err)
		}
	}
	for i := range c.Recovered {
		r, pl := &c.Recovered[i], &c.Planes[i]
		if r.Map == nil && r.Intent == nil {
			continue // a plane that the journal does not know
		}
		if err := r.Map.Validate(c.Ports); err != nil {
			return fmt.Errorf("controller: recovered %s: map %w", pl, err)
		}
		if r.Intent != nil {
			if err := r.Intent.To.Validate(c.Ports); err != nil {
				return fmt.Errorf("controller: recovered %s: intent %w", pl, err)
			}
		}
	}
	return nil
}
