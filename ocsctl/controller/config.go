package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"lightpath/plans/circuit"
)

// Bounds of a configuration.
const (
	MaxPorts  = 4096
	MaxPlanes = 64
)

// Config describes a controller and what it controls.
type Config struct {
	Name   string // of the controller, for operators
	Ports  int
	Planes []PlaneConfig
	// Initial holds one map per plane: where its device has to be at the start. nil, all of them
	// or that one: wherever the device is. Planes with a Recovered are to be where that says.
	Initial []circuit.Permutation
	Device  Device
	// DataPath carries data over the circuits in this process; nil: something else does.
	DataPath DataPath
	Journal  Journal // nil: none, and nothing outlives the controller
	Token    uint64  // of the journal's leadership
	LastSeq  uint64  // of the newest event in the journal
	// Leading is asked before every move whether this controller still rules: an error that wraps
	// ErrNotLeader ends its rule. nil: it does. It must not block.
	Leading func() error
	// Log is told once of every change of a plane's service, and of what operators order; nil: nothing is
	// logged.
	Log *slog.Logger
	// Recovered holds one entry per plane where the journal knows of an earlier controller; nil: a
	// beginning.
	Recovered []Recovered
	// Absent says which ports had no rank under the controller before, as far as the journal shows;
	// nil: it does not show any.
	Absent []bool
	// Grace is how long after a takeover only uses are granted that ranks claim to have, and how
	// long ranks are waited for that have not come back; 0: DefaultGrace. It ends when every port
	// has a rank, but for those that are Absent.
	Grace time.Duration
	// JournalTimeout is how long the journal may take to confirm something; 0: 10 s.
	JournalTimeout time.Duration
	// SettleTimeout bounds how long a device may go on moving after the reconfiguration time; 0:
	// one second.
	SettleTimeout time.Duration
	// Forgive puts planes whose device failed back into service, at the map that it has, once every
	// rank is gone that saw the failure: for emulated switches. Others wait for an operator.
	Forgive bool
}

// DefaultGrace is how long ranks have to find the next controller: longer than it takes them to notice
// that theirs is silent, since the lease of one that hangs may run out at once.
const DefaultGrace = 8 * time.Second

// DefaultJournalTimeout is how long a journal may take: longer than a store needs to find that it has lost
// its leadership.
const DefaultJournalTimeout = 10 * time.Second

// PlaneConfig describes one plane.
type PlaneConfig struct {
	Name string
	// BandwidthBitsPerSec is the rate of every circuit, of data bytes without labels.
	BandwidthBitsPerSec float64
	// Reconfig is how long changing ports are dark, plus ReconfigPerPort for each circuit
	// that is made. Timed devices take the time that they take.
	Reconfig, ReconfigPerPort time.Duration
	// PinnedBy is the owner of the plane's circuits: only operators move them. "": ranks do, too.
	PinnedBy string
}

// DataPath carries data over circuits. Its methods are called from the core and must not block;
// now is nanoseconds of CLOCK_MONOTONIC.
type DataPath interface {
	// Step does everything that is due and returns when it has to be called next if nothing else
	// happens before.
	Step(now int64) (next int64)
	// Darken: the circuits of these ports begin to move, and what is on them is lost.
	Darken(plane int, ports []int, now int64)
	// Install makes m the map in force. Circuits that it changes exist from epoch made on.
	Install(plane int, m circuit.Permutation, made uint32, now int64)
	// Advance: the plane has another epoch. began is when the switch to it began, or 0 where
	// nothing was switched.
	Advance(plane int, epoch uint32, began, now int64)
	// Attach gives a port what its rank and the data path share, AttachOptions.Data; Detach takes
	// it away: afterwards it is not touched any more.
	Attach(port int, data any, now int64)
	Detach(port int, now int64)
}

// Inbox is where a front end keeps posts that the core fetches itself, such as shared memory.
type Inbox interface {
	// Collect passes on every post that has come. It is called from the core at every turn, and
	// after every ring of [Core.Bell]; it must not block. The core keeps target, which must not
	// change any more; passing on the same one for equal posts spares comparing.
	Collect(post PostFunc)
}

// PostFunc passes on a post that an [Inbox] has fetched.
type PostFunc func(a Attachment, plane int, epoch uint32, holder uint64, target circuit.Permutation)

// Check reports the first field that Start would refuse.
func (c Config) Check() error {
	_, err := c.complete()
	return err
}

// complete fills in defaults and checks everything; the first bad field is named.
func (c Config) complete() (*Config, error) {
	if c.SettleTimeout == 0 {
		c.SettleTimeout = time.Second
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.JournalTimeout == 0 {
		c.JournalTimeout = DefaultJournalTimeout
	}
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
	case c.Device == nil:
		return nil, errors.New("controller: config device: missing")
	case c.Initial != nil && len(c.Initial) != len(c.Planes):
		return nil, fmt.Errorf("controller: config initial: %d maps for %d planes", len(c.Initial), len(c.Planes))
	case c.Absent != nil && len(c.Absent) != c.Ports:
		return nil, fmt.Errorf("controller: config absent: %d entries for %d ports", len(c.Absent), c.Ports)
	case c.Recovered != nil && len(c.Recovered) != len(c.Planes):
		return nil, fmt.Errorf("controller: config recovered: %d entries for %d planes", len(c.Recovered), len(c.Planes))
	}
	for i, p := range c.Planes {
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
		r := &c.Recovered[i]
		if r.Map == nil && r.Intent == nil {
			continue // a plane that the journal does not know
		}
		if err := r.Map.Validate(c.Ports); err != nil {
			return fmt.Errorf("controller: recovered plane %d: map %w", i, err)
		}
		if r.Intent != nil {
			if err := r.Intent.To.Validate(c.Ports); err != nil {
				return fmt.Errorf("controller: recovered plane %d: intent %w", i, err)
			}
		}
	}
	return nil
}
