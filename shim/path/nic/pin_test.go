package nic_test

import (
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// waitingDriver is a driver that calls wait before it locks pages.
type waitingDriver struct {
	devicetest.Remote
	wait func()
}

func (d *waitingDriver) Alloc(size int) (unsafe.Pointer, error) {
	if d.wait != nil {
		d.wait()
	}
	return d.Remote.Alloc(size)
}

// TestGPUDirectPinsBesideMessages checks that messages move while the driver locks pages for more words. The driver may
// do that only when the device has ended its work, which waits for these messages.
func TestGPUDirectPinsBesideMessages(t *testing.T) {
	network, _ := shimtest.UseRDMA(t, 1, 1)
	t.Setenv("LIGHTPATH_DEVICE_PATH", "rdma")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	d := &waitingDriver{Remote: devicetest.NewRemote(stream.Places(), 2)}
	g := shimtest.UseDriver(t, d.Driver, d, 2, 1)
	w := shimtest.NewWorld(t, 2)
	const count = 32 << 20 // more rounds than a page has words
	group := make([][]calls.Call, 2)
	for r, c := range w.Comms {
		at := g.Memory(r, count)
		group[r] = []calls.Call{{Comm: c, Kind: calls.Broadcast, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
			Stream: g.Streams[r][0]}}
	}
	// Rank 1 has all its rounds on its stream, so rank 0's rounds do not wait for calls of rank 1.
	require.NoError(t, shim.Run(group[1]))
	network.Hold(true)
	pages := 0
	d.wait = func() {
		if pages++; pages < 2 {
			return
		}
		network.Hold(false)
		if !g.Synchronize(g.Streams[0][0], shimtest.DeviceTimeout) {
			t.Error("messages stop while pages are locked")
		}
	}
	require.NoError(t, shim.Run(group[0]))
	if d.wait = nil; pages < 2 {
		t.Fatal("no more pages were locked")
	}
	for r := range w.Comms {
		require.NoError(t, g.SynchronizeRank(r))
	}
	shimtest.DestroyAll(w)
}
