package optical_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim/calls"
	"lightpath/shim/predict"
	"lightpath/shim/shimtest"
)

// TestStatedPacketPlanes checks that a call with many bytes uses the packet planes that the fabric file states, if
// these are faster, and that the prediction of a group is that of these planes. All-to-all of 4 ranks needs three
// settings of two planes.
func TestStatedPacketPlanes(t *testing.T) {
	allToAll := shimtest.Collective{Kind: calls.AllToAll, Type: datatype.Float32, Count: 1 << 15}
	sum := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float32, Count: 1 << 15}
	for name, k := range map[string]struct {
		rate    fabric.Rate
		packets bool
	}{"as fast as circuits": {4e9, true}, "slower": {1e9, false}} {
		t.Run(name, func(t *testing.T) {
			server := shimtest.UseEmulator(t, 4, 2, func(f *fabric.Fabric) {
				f.Packets = fabric.PacketPlanes{Bandwidth: k.rate, Alpha: time.Microsecond}
			})
			w := shimtest.NewWorld(t, 4)
			rng := rand.New(rand.NewPCG(7, 8))
			for range 3 {
				require.NoError(t, allToAll.Run(w, rng))
				require.NoError(t, sum.Run(w, rng))
			}
			sent := uint64(0)
			for _, n := range shimtest.FramesByPlane(t, server) {
				sent += n
			}
			if (sent == 0) != k.packets {
				t.Errorf("%d frames on circuits", sent)
			}
			us, err := predict.Group([]calls.Call{{Comm: w.Comms[0], Kind: calls.AllToAll, Type: datatype.Float32,
				Count: 1 << 15, Send: shimtest.FakeAddress(8), Recv: shimtest.FakeAddress(1 << 60)}})
			require.NoError(t, err)
			if onPackets := 1 + 3*(1<<17)*8/4e3; k.packets != (us == onPackets) {
				t.Errorf("predicted %v us, on packet planes %v us", us, onPackets)
			}
		})
	}
}
