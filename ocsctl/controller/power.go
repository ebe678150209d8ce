package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// PortState is the state of a port of a plane at its switch.
type PortState struct {
	Label  string   `json:"label"`           // the switch's own: "3/19"
	State  string   `json:"state,omitempty"` // the switch's word; "": it reports none
	Failed bool     `json:"failed,omitempty"`
	DBm    *float64 `json:"dbm,omitempty"` // power that the port receives over its circuit; nil: it is not measured
	// Baseline is the power against which DBm is compared, nil if there is none so far. Drop is the loss in dB that
	// makes the port dim.
	Baseline *float64 `json:"baseline,omitempty"`
	Drop     float64  `json:"drop,omitempty"`
	Dim      bool     `json:"dim,omitempty"`
	File     string   `json:"file,omitempty"` // label in the fabric file, if an operator has moved the port
}

// PortReporter is a Device that reports the ports of its switches and their light. It can change the ports; see
// Move.Ports.
type PortReporter interface {
	// Ports returns the ports of a plane as they were last read, without Baseline, Drop, Dim and File. The caller owns the
	// result.
	Ports(plane int) []PortState
	// Unlit returns the ports of a plane, in order, whose circuit receives no light. It returns nil if all do, or
	// if the device has not measured it.
	Unlit(plane int) []int
}

// Baseline is the power against which the power of a port is compared. The first reading of a port sets it, or an
// operator.
type Baseline struct {
	DBm  float64 `json:"dbm"`
	Drop float64 `json:"drop,omitempty"` // loss in dB that makes the port dim; 0: Config.PowerDrop
}

// Bounds of Baseline.Drop, in dB. Meters and circuits differ by less than the lower one.
const (
	defaultPowerDrop = 3.0
	minPowerDrop     = 0.5
	maxPowerDrop     = 30.0
)

// brighter is how far above the limit a dim port must be to count as bright again, in dB.
const brighter = 0.5

// ErrNoPower says that nothing measures the power of a port now.
var ErrNoPower = errors.New("its power is not measured now")

// drop returns the loss in dB that makes a port with this baseline dim.
func (b Baseline) drop(c *Config) float64 {
	if b.Drop != 0 {
		return b.Drop
	}
	return c.PowerDrop
}

// Ports implements Controller.
func (c *Core) Ports(plane int) (all []PortState, err error) {
	if err := c.checkPlane(plane); err != nil {
		return nil, fmt.Errorf("controller: ports: %w", err)
	}
	err = c.Do(func(int64) { all = c.machine.portStates(c.machine.planes[plane]) })
	return all, err
}

// SetBaseline implements Controller.
func (c *Core) SetBaseline(plane int, ports []int, drop float64, who string) error {
	err := c.checkPlane(plane)
	if err == nil && drop != 0 && !(drop >= minPowerDrop && drop <= maxPowerDrop) {
		err = fmt.Errorf("drop of %v dB, want %v..%v", drop, minPowerDrop, maxPowerDrop)
	}
	if err != nil {
		return fmt.Errorf("controller: baseline: %w", err)
	}
	ports = slices.Clone(ports)
	return c.await(func(done func(error)) error {
		return c.do(func(now int64) { c.machine.setBaseline(plane, ports, drop, who, done, now) })
	})
}

// portStates returns the ports of a plane; nil if the device does not report them.
func (m *machine) portStates(pl *plane) []PortState {
	if m.portReporter == nil {
		return nil
	}
	all := m.portReporter.Ports(pl.index)
	for r := range all {
		if b, ok := pl.baselines[r]; ok {
			all[r].Baseline, all[r].Drop, all[r].Dim = &b.DBm, b.drop(m.cfg), pl.dim[r]
		}
	}
	for r, at := range pl.moved {
		if r < len(all) && all[r].Label != pl.Labels[r] {
			all[r].File = at.From
		}
	}
	return all
}

// measure compares the power of a plane's ports with their baselines. The first reading of a port is its baseline: the
// plane is in service, so its circuits have light.
func (m *machine) measure(pl *plane, now int64) {
	learned := map[int]Baseline{}
	for r, s := range m.portStates(pl) {
		_, bad := pl.bad[r]
		switch {
		case s.DBm == nil, bad:
		case s.Baseline == nil:
			learned[r] = Baseline{DBm: *s.DBm}
		case !s.Dim && *s.DBm < *s.Baseline-s.Drop:
			pl.dim[r] = true
			m.event(now, Event{Kind: Dimmed, Plane: pl.index, Epoch: pl.epoch, Port: r, Err: fmt.Sprintf(
				"port %s receives %.2f dBm, %.2f dB below its baseline of %.2f dBm", s.Label, *s.DBm, *s.Baseline-*s.DBm,
				*s.Baseline)})
		case s.Dim && *s.DBm > *s.Baseline-s.Drop+brighter:
			m.brighten(pl, r, now)
		}
	}
	if len(learned) > 0 {
		maps.Copy(pl.baselines, learned)
		m.event(now, Event{Kind: Measured, Plane: pl.index, Epoch: pl.epoch, Port: -1, Baselines: learned})
	}
}

func (m *machine) brighten(pl *plane, port int, now int64) {
	delete(pl.dim, port)
	m.event(now, Event{Kind: Brightened, Plane: pl.index, Epoch: pl.epoch, Port: port})
}

// setBaseline makes the present power of ports their baseline; no ports: of all ports that are measured.
func (m *machine) setBaseline(plane int, ports []int, drop float64, who string, done func(error), now int64) {
	if m.over != nil {
		done(m.over)
		return
	}
	pl := m.planes[plane]
	all, set := m.portStates(pl), map[int]Baseline{}
	if len(ports) == 0 {
		for r := range all {
			if all[r].DBm != nil {
				ports = append(ports, r)
			}
		}
	}
	for _, r := range ports {
		if r < 0 || r >= m.cfg.Ports {
			done(fmt.Errorf("controller: %s port %d: there are ports 0..%d", pl, r, m.cfg.Ports-1))
			return
		}
		if r >= len(all) || all[r].DBm == nil {
			done(fmt.Errorf("controller: %s port %d: %w", pl, r, ErrNoPower))
			return
		}
		set[r] = Baseline{DBm: *all[r].DBm, Drop: drop}
	}
	if len(set) == 0 {
		done(fmt.Errorf("controller: %s: no port: %w", pl, ErrNoPower))
		return
	}
	maps.Copy(pl.baselines, set)
	m.confirm(now, Event{Kind: Measured, Plane: plane, Epoch: pl.epoch, Port: -1, Who: who, Baselines: set}, done)
	for r := range set {
		if pl.dim[r] {
			m.brighten(pl, r, now)
		}
	}
}
