package dispatch

import (
	"math"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/plans"
	"lightpath/shim/calls"
	"lightpath/shim/settings"
)

// TestCosts compares predictions with sums made by hand. On circuits a step has 20 us of alpha and 5 us for a hop, and
// there are 2 planes of 2 Gb/s.
func TestCosts(t *testing.T) {
	p := &plans.Problem{BandwidthGbps: 2, AlphaUS: 20, HopUS: 5, ReconfigUS: 200,
		Steps: []plans.Step{{Bytes: 1000}, {}, {Bytes: 500}}}
	if fixed, wire := CircuitsUS(p, 2, 100); fixed != 150 || math.Abs(wire-3) > 1e-9 {
		t.Errorf("circuits: %v and %v us, want 150 and 3", fixed, wire)
	}
	s := calls.Shape{Kind: calls.AllReduce, Type: datatype.Float32, Count: 1000}
	for transport, want := range map[string]float64{ // recursive doubling: 2 steps of 4000 bytes
		"inproc": 2 * (0.5 + 0.4), "shm": 2 * (1 + 0.8), "tcp": 2 * (20 + 3.2), "rdma": 2 * (3 + 0.32),
	} {
		us, err := PacketsUS(s, 4, Packets, &settings.Config{}, PacketCosts(transport))
		if err != nil || math.Abs(us-want) > 1e-9 {
			t.Errorf("%s: %v us, %v, want %v", transport, us, err, want)
		}
	}
}

// TestSmallOnPackets covers the rule: small, and faster.
func TestSmallOnPackets(t *testing.T) {
	for name, k := range map[string]struct {
		packets, fixed, wire float64
		want                 bool
	}{
		"one element":                 {2, 100, 0.01, true},
		"as long as the fixed costs":  {2, 100, 100, true},
		"large":                       {2, 100, 101, false},
		"packet planes are slower":    {120, 100, 1, false},
		"packet planes are as slow":   {101, 100, 1, false},
		"fabric that states no costs": {2, 0, 0.01, false},
		"no bytes":                    {0, 0, 0, false},
	} {
		if got := SmallOnPackets(k.packets, k.fixed, k.wire); got != k.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
