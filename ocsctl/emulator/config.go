package emulator

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"lightpath/plans/circuit"
)

// Bounds of a configuration.
const (
	MaxPorts  = 4096
	MaxPlanes = 64
	maxSlots  = 1 << 14
	maxMTU    = 1 << 22
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
	// Device is what the planes are made of; nil: a MemoryDevice that starts at Initial.
	Device Device
	// SettleTimeout bounds how long a device may go on moving after the reconfiguration
	// time; 0: one second.
	SettleTimeout time.Duration
}

// PlaneConfig describes one plane.
type PlaneConfig struct {
	Name string
	// BandwidthBitsPerSec is the rate of every circuit, of data bytes without labels.
	BandwidthBitsPerSec float64
	// Reconfig is how long changing ports are dark, plus ReconfigPerPort for each circuit
	// that is made.
	Reconfig, ReconfigPerPort time.Duration
}

// complete fills in defaults and checks everything; the first bad field is named.
func (c Config) complete() (*Config, error) {
	c.Socket = strings.TrimPrefix(c.Socket, "unix:")
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.SettleTimeout == 0 {
		c.SettleTimeout = time.Second
	}
	switch {
	case c.Socket == "":
		return nil, errors.New("emulator: config socket: missing")
	case len(c.Socket) > maxSocketPath:
		return nil, fmt.Errorf("emulator: config socket: %d characters, a Unix socket path has at most %d", len(c.Socket), maxSocketPath)
	case c.Ports < 1 || c.Ports > MaxPorts:
		return nil, fmt.Errorf("emulator: config ports: %d, want 1..%d", c.Ports, MaxPorts)
	case len(c.Planes) < 1 || len(c.Planes) > MaxPlanes:
		return nil, fmt.Errorf("emulator: config planes: %d, want 1..%d", len(c.Planes), MaxPlanes)
	case c.MTU <= LabelSize || c.MTU > maxMTU:
		return nil, fmt.Errorf("emulator: config mtu: %d, want %d..%d", c.MTU, LabelSize+1, maxMTU)
	case c.Slots < 2 || c.Slots > maxSlots:
		return nil, fmt.Errorf("emulator: config slots: %d, want 2..%d", c.Slots, maxSlots)
	case c.SettleTimeout < 0:
		return nil, fmt.Errorf("emulator: config settle timeout: %v is negative", c.SettleTimeout)
	case c.Initial != nil && len(c.Initial) != len(c.Planes):
		return nil, fmt.Errorf("emulator: config initial: %d maps for %d planes", len(c.Initial), len(c.Planes))
	}
	for i, p := range c.Planes {
		if !(p.BandwidthBitsPerSec > 0) || math.IsInf(p.BandwidthBitsPerSec, 0) {
			return nil, fmt.Errorf("emulator: config planes[%d] bandwidth: %v bits/s", i, p.BandwidthBitsPerSec)
		}
		if p.Reconfig < 0 || p.ReconfigPerPort < 0 {
			return nil, fmt.Errorf("emulator: config planes[%d] reconfig: %v, %v per port", i, p.Reconfig, p.ReconfigPerPort)
		}
	}
	return &c, c.completeMaps()
}

func (c *Config) completeMaps() error {
	initial := make([]circuit.Permutation, len(c.Planes))
	for i := range initial {
		initial[i] = circuit.AllDark(c.Ports)
		if c.Initial != nil && c.Initial[i] != nil {
			initial[i] = c.Initial[i].Clone()
		}
		if err := initial[i].Validate(c.Ports); err != nil {
			return fmt.Errorf("emulator: config initial[%d]: %w", i, err)
		}
	}
	c.Initial = initial
	return nil
}
