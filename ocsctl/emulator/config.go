package emulator

import (
	"fmt"
	"slices"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// Bounds of a configuration.
const (
	maxSlots = 1 << 14
	maxMTU   = 1 << 22
)

// Config describes a switch.
type Config struct {
	// Socket is the path that ranks connect to, with or without "unix:" before it.
	Socket string
	Ports  int
	Planes []PlaneConfig
	// Initial holds one map per plane; nil: dark, all planes or that one.
	Initial []circuit.Permutation
	// MTU is the most bytes of a frame with its label, Slots the frames per ring.
	// 0: DefaultMTU, DefaultSlots.
	MTU, Slots int
	// FrameLog is the file that records every frame and switch; "": none.
	FrameLog string
	// Device is what the planes are made of; nil: a MemoryDevice that starts at Initial, or where
	// the planes were under the controller before this one, as a switch does that outlives it.
	Device controller.Device
	// SettleTimeout bounds how long a device may go on moving after the reconfiguration
	// time; 0: one second.
	SettleTimeout time.Duration

	Name    string // of the controller
	Version string // of the software
	// Apply completes the controller's configuration: with a rule and what it recovered. nil: nothing
	// outlives the switch.
	Apply func(*controller.Config)
}

// PlaneConfig describes one plane.
type PlaneConfig = controller.PlaneConfig

// complete fills in defaults and checks everything; the first bad field is named.
func (c Config) complete() (*Config, error) {
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	switch {
	case c.MTU <= LabelSize || c.MTU > maxMTU:
		return nil, fmt.Errorf("emulator: config mtu: %d, want %d..%d", c.MTU, LabelSize+1, maxMTU)
	case c.Slots < 2 || c.Slots > maxSlots:
		return nil, fmt.Errorf("emulator: config slots: %d, want 2..%d", c.Slots, maxSlots)
	case c.Initial != nil && len(c.Initial) != len(c.Planes):
		return nil, fmt.Errorf("emulator: config initial: %d maps for %d planes", len(c.Initial), len(c.Planes))
	}
	for i, p := range c.Planes {
		if p.BandwidthBitsPerSec == 0 {
			return nil, fmt.Errorf("emulator: config planes[%d] bandwidth: missing", i)
		}
	}
	cc := c.controller()
	cc.Device = (*MemoryDevice)(nil) // one is made once the maps are known to be good
	if err := cc.Check(); err != nil {
		return nil, err
	}
	c.Initial = slices.Clone(c.Initial)
	if c.Initial == nil {
		c.Initial = make([]circuit.Permutation, len(c.Planes))
	}
	for i, m := range c.Initial {
		if m == nil {
			c.Initial[i] = circuit.AllDark(c.Ports)
		}
	}
	if c.Device == nil {
		at := slices.Clone(c.Initial)
		for i, r := range cc.Recovered {
			if r.Map != nil {
				at[i] = r.Map
			}
		}
		c.Device = NewMemoryDevice(at)
	}
	return &c, nil
}

// controller is the part of the configuration that is the controller's.
func (c *Config) controller() controller.Config {
	cc := controller.Config{
		Name: c.Name, Ports: c.Ports, Planes: c.Planes, Initial: c.Initial, Device: c.Device,
		SettleTimeout: c.SettleTimeout, Forgive: true,
	}
	if c.Apply != nil {
		c.Apply(&cc)
	}
	return cc
}
