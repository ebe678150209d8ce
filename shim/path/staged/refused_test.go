package staged_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/path/staged"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// TestRefusedByDriver makes the driver refuse each method at each of its calls. The call or the communicator reports an
// error, and no stream hangs.
func TestRefusedByDriver(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	shimtest.RefuseEach(t, shimtest.UseGPUs, 1<<20, refusesPieces,
		"Locate", "Enter", "Capturing", "Alloc", "NewEvent", "NewStream", "Record", "Follow", "CopyOut", "CopyIn",
		"CopyRows", "Signal", "Await")
}

// refusesPieces makes the driver refuse a group in pieces.
func refusesPieces(g *shimtest.GPUs, w *shimtest.World, method string, after int) (failed bool) {
	const count = 70000
	var group []calls.Call
	for r, c := range w.Comms {
		at, to := g.Memory(r, 2*count), g.Memory(r, 2*count)
		group = append(group,
			calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
				Stream: g.Streams[r][0]},
			calls.Call{Comm: c, Kind: calls.AllToAll, Type: datatype.Uint8, Count: count, Send: at, Recv: to,
				Stream: g.Streams[r][1]})
	}
	if !g.Refuses(group, 2, method, after) {
		return false
	}
	switch method {
	// nothing was on a stream: the communicators are as they were
	case "Alloc", "Locate", "NewEvent", "NewStream", "Capturing":
		if err := errors.Join(shim.Run(group), g.SynchronizeBoth(), w.Comms[0].AsyncError(),
			w.Comms[1].AsyncError()); err != nil {
			g.T.Errorf("after %d: the next group: %v", after, err)
		}
	}
	return true
}

// TestCauseIsHeard checks that all ranks report the reason if one rank refuses to join while the others connect.
func TestCauseIsHeard(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	t.Setenv("LIGHTPATH_DEVICE_PATH", "direct") // and there are no devices
	for range 10 {
		id, err := shim.NewUniqueID()
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range shimtest.Concurrently(t, 4, func(r int) error {
			_, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 4, Rank: r}})
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "LIGHTPATH_DEVICE_PATH=direct") {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}
}

// lateRefusal is a driver that refuses the wait for a step's results after the step has run.
type lateRefusal struct {
	*devicetest.Driver
	ran func()
}

func (d lateRefusal) Await(device.Stream, *uint32, uint32, bool) error {
	d.ran()
	return fmt.Errorf("Await: refused by the test: %w", device.ErrDriver)
}

// TestRefusedAfterEnd checks that a launch ends once if the driver refuses its last part after all its steps have run,
// and that no other group takes the launch before.
func TestRefusedAfterEnd(t *testing.T) {
	d := &lateRefusal{Driver: devicetest.New(stream.Places(), 1)}
	g := shimtest.UseDriver(t, d.Driver, d, 1, 1)
	c := shimtest.NewWorld(t, 1).Comms[0]
	d.ran = func() {
		g.Synchronize(g.Streams[0][0], shimtest.DeviceTimeout)
		await.Until(t, "the step has run", func() bool { return !staged.Working(c) })
		if n := staged.Spare(c); n != 0 {
			t.Errorf("the worker has %d unused launches while a group puts one", n)
		}
	}
	at := g.Memory(0, 16)
	err := shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 16, Send: at, Recv: at,
		Stream: g.Streams[0][0]}})
	shimtest.WantError(t, err, device.ErrDriver, "Await")
	if n := stream.Of(c).Outstanding.Load(); n != 0 {
		t.Errorf("%d launches are outstanding", n)
	}
	if n := staged.Spare(c); n != 1 {
		t.Errorf("the worker has %d unused launches, want 1", n)
	}
}

// TestRefusedKeepsMemory checks that no other communicator gets staging memory to which a stream still copies, because
// the driver refused the rest of a launch.
func TestRefusedKeepsMemory(t *testing.T) {
	g := shimtest.UseGPUs(t, 1, 1)
	c := shimtest.NewWorld(t, 1).Comms[0]
	held := make(chan struct{})
	g.Before(func(o devicetest.Op) {
		if o.Kind == devicetest.CopyOut {
			<-held
		}
	})
	g.Fail("Signal", 0)
	at := g.Memory(0, 16)
	err := shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 16, Send: at, Recv: at,
		Stream: g.Streams[0][0]}})
	g.Fail("", 0)
	shimtest.WantError(t, err, device.ErrDriver, "Signal")
	used, closed := staged.Staging(c), make(chan struct{})
	c.AddHooks(comm.Hooks{Closed: func() { close(closed) }})
	_ = c.Abort()
	<-closed
	var next []memory.Pinned
	for range 4 {
		p, err := memory.Pin(used.Size)
		if err != nil {
			break // no context is current, and no memory is spare
		}
		next = append(next, p)
	}
	if slices.Contains(next, used) {
		t.Error("other communicators get the memory")
	}
	close(held)
	require.NoError(t, g.SynchronizeRank(0))
}
