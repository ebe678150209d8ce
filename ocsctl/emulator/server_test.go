package emulator

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"lightpath/internal/await"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

func fourPorts(t *testing.T) Config {
	return Config{Socket: filepath.Join(t.TempDir(), "ocs"), Ports: 4, Planes: planes(2, 1e9, 0),
		Initial: []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 1)}}
}

func TestAlarmReachesTheSender(t *testing.T) {
	s := start(t, fourPorts(t))
	cs := dialAll(t, s)
	shut(t, cs[3])
	put(t, cs[2].Ports()[1], 1, 100, 0)
	await.Until(t, "the ring empties", cs[2].Ports()[1].TX.Empty)
	// From the moment that the ring is empty the loss is known.
	_, err := cs[2].Poll(1)
	if !errors.Is(err, ocsctl.ErrFramesLost) || !errors.Is(err, ocsctl.ErrPortLost) || !strings.Contains(err.Error(),
		"plane 1 epoch 0: 1 frames (1 vacant port: the rank of port 3 is gone)") {
		t.Errorf("%v", err)
	}
	if _, err := cs[1].Poll(1); err != nil {
		t.Errorf("port 1: %v", err)
	}
}

func TestConfigNamesTheField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"socket":              func(c *Config) { c.Socket = "" },
		"at most 107":         func(c *Config) { c.Socket = strings.Repeat("x", 108) },
		"ports":               func(c *Config) { c.Ports = 0 },
		"planes":              func(c *Config) { c.Planes = nil },
		"planes[1] bandwidth": func(c *Config) { c.Planes[1].BandwidthBitsPerSec = 0 },
		"planes[0] reconfig":  func(c *Config) { c.Planes[0].Reconfig = -1 },
		"mtu":                 func(c *Config) { c.MTU = LabelSize },
		"slots":               func(c *Config) { c.Slots = 1 },
		"initial":             func(c *Config) { c.Initial = c.Initial[:1] },
		"initial[1]":          func(c *Config) { c.Initial[1] = circuit.Permutation{1, 1, 0, 2} },
	} {
		c := fourPorts(t)
		change(&c)
		s, err := Start(c)
		if err == nil {
			shut(t, s)
		}
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
