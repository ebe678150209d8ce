package emulator

import (
	"cmp"
	"fmt"
	"slices"

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
	// Initial holds one map per plane. A nil map, or a nil slice, means dark.
	Initial []circuit.Permutation
	// MTU is the largest size of a frame in bytes, including its label. Slots is the number of frames per ring. 0:
	// DefaultMTU, DefaultSlots.
	MTU, Slots int
	// FrameLog is the file that records every frame and switch; "": none.
	FrameLog string
	// Device is the device of the planes; nil: a table. It starts with Initial or, like a real switch, with the
	// maps under the previous controller.
	Device controller.Device

	Name    string // of the controller
	Version string // of the software
	// Rule has the rule of the controller and its recovered state; see lead.Options. The zero value: no state outlives
	// the switch.
	Rule controller.Config
}

// PlaneConfig describes one plane.
type PlaneConfig = controller.PlaneConfig

// complete sets defaults and checks all fields. Its error names the first bad field.
func (c Config) complete() (*Config, error) {
	c.MTU = cmp.Or(c.MTU, DefaultMTU)
	c.Slots = cmp.Or(c.Slots, DefaultSlots)
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
	cc.Device = (*memoryDevice)(nil) // made when the maps have been checked
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
		c.Device = newMemoryDevice(at)
	}
	return &c, nil
}

// controller returns the configuration of the controller.
func (c *Config) controller() controller.Config {
	cc := c.Rule
	cc.Name, cc.Ports, cc.Planes, cc.Initial, cc.Device, cc.Forgive = c.Name, c.Ports, c.Planes, c.Initial, c.Device, true
	return cc
}
