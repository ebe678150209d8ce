package dispatch

import (
	"math"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/settings"
)

// TestPacketsUS compares predictions with sums made by hand.
func TestPacketsUS(t *testing.T) {
	stated := &fabric.Fabric{Packets: fabric.PacketPlanes{Bandwidth: 8e9, Alpha: 7000}}
	for name, k := range map[string]struct {
		kind      calls.Kind
		transport string
		fab       *fabric.Fabric
		want      float64
	}{ // all-reduce: recursive doubling, 2 rounds of 4000 bytes; all-to-all: one round of 3 times 4000 bytes
		"inproc": {calls.AllReduce, "inproc", nil, 2 * (0.5 + 0.4)}, "shm": {calls.AllReduce, "shm", nil, 2 * (1 + 0.8)},
		"tcp": {calls.AllReduce, "tcp", nil, 2 * (20 + 3.2)}, "rdma": {calls.AllReduce, "rdma", nil, 2 * (3 + 0.32)},
		"stated":     {calls.AllReduce, "tcp", stated, 2 * (7 + 4)},
		"not stated": {calls.AllReduce, "shm", &fabric.Fabric{}, 3.6},
		"one round":  {calls.AllToAll, "tcp", stated, 7 + 3*4},
	} {
		costs := PacketCosts(k.transport, k.fab)
		s := calls.Shape{Kind: k.kind, Type: datatype.Float32, Count: 1000}
		us, err := PacketsUS(s, 4, PacketChoices("tcp"), &settings.Config{}, &costs)
		if err != nil || math.Abs(us-k.want) > 1e-9 || costs.Stated != (k.fab == stated) {
			t.Errorf("%s: %v us, %v, want %v", name, us, err, k.want)
		}
	}
}
