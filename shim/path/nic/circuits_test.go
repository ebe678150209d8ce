package nic_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/transport"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/path/nic"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// switchedGPUs has communicators of n ranks send from memory of devices over circuits of RDMA ports, which a controller
// moves.
func switchedGPUs(t *testing.T, n, streams, planes int) (*shimtest.GPUs, *shimtest.Crossbars) {
	t.Helper()
	dev := shimtest.UseRDMACircuits(t, n, planes, plans.Duplex)
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	t.Setenv("LIGHTPATH_DEVICE_PATH", "rdma")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	driver := devicetest.NewRemote(stream.Places(), n)
	return shimtest.UseDriver(t, driver.Driver, driver, n, streams), dev
}

// lossless reports what circuits have lost.
func lossless(c *shimtest.Crossbars, t *testing.T) {
	t.Helper()
	for j, x := range c.Planes {
		if n := x.Lost(); n != 0 {
			t.Errorf("plane %d has lost %d requests", j, n)
		}
	}
}

// TestGPUDirectOverCircuits: random sequences of groups, of calls with plans and without, on streams and not, in
// graphs; against the oracle.
func TestGPUDirectOverCircuits(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := 2 + 2*int(seed%2)
			g, dev := switchedGPUs(t, n, 3, 1+int(seed)/2)
			w := shimtest.NewWorld(t, n)
			rng := rand.New(rand.NewPCG(seed, 21))
			g.Sequence(w, rng, 6)
			moved := 0
			for j := range dev.Planes {
				moved += int(circuits.Of(w.Comms[0]).Controller.State(j).Epoch)
			}
			if moved < 4 && n > 2 {
				t.Errorf("planes were moved %d times", moved)
			}
			if nic.Calls(nic.Of(w.Comms[0])) == 0 {
				t.Error("nothing has gone over circuits from memory of devices")
			}
			shimtest.DestroyAll(w)
			lossless(dev, t)
		})
	}
}

// TestGPUDirectCircuitsMoveNothingOnHosts checks that a planned collective moves bytes from device memory to device
// memory, over circuits too.
func TestGPUDirectCircuitsMoveNothingOnHosts(t *testing.T) {
	const count = 300000
	g, dev := switchedGPUs(t, 4, 1, 2)
	w := shimtest.NewWorld(t, 4)
	g.Before(func(o devicetest.Op) {
		if o.Kind == devicetest.CopyOut || o.Kind == devicetest.CopyIn {
			t.Errorf("%d bytes are copied by way of page-locked memory", o.Bytes)
		}
	})
	network := dev.Network
	before := network.Moved()
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		at := g.Memory(r, count)
		for range 3 {
			if err := shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at,
				Recv: at, Stream: g.Streams[r][0]}}); err != nil {
				return err
			}
		}
		return g.SynchronizeRank(r)
	})
	g.Before(nil)
	moved := network.Moved()
	if host := moved.FromHost + moved.ToHost - before.FromHost - before.ToHost; host != 0 {
		t.Errorf("%d bytes have come from memory of hosts, or gone there", host)
	}
	// Each of four ranks sends 3/2 of the buffer and more.
	if moved.FromBuf < 3*4*count*3/2 || moved.FromBuf != moved.ToBuf {
		t.Errorf("%d bytes have come from memory of devices, and %d gone there", moved.FromBuf, moved.ToBuf)
	}
	shimtest.DestroyAll(w)
	lossless(dev, t)
}

// TestGPUDirectCircuitsAhead checks that the tickets of a repeating sequence of calls on streams go out ahead.
func TestGPUDirectCircuitsAhead(t *testing.T) {
	const n = 4
	g, dev := switchedGPUs(t, n, 1, 2)
	w := shimtest.NewWorld(t, n)
	l := live.Of(w.Comms[0])
	rng := rand.New(rand.NewPCG(5, 6))
	iteration := []*shimtest.Operation{}
	for _, k := range []shimtest.Collective{
		{Kind: calls.AllReduce, Type: datatype.Int32, Count: 80000},
		{Kind: calls.AllGather, Type: datatype.Int32, Count: 20000},
	} {
		k.Memory = func(rank, bytes int) []byte { return g.Bytes(g.Memory(rank, bytes), bytes) }
		op, err := k.Prepare(w, rng)
		require.NoError(t, err)
		for r := range op.Calls {
			op.Calls[r][0].Stream = g.Streams[r][0]
		}
		iteration = append(iteration, op)
	}
	if !shimtest.Eventually(func() bool {
		w.Must(func(c *shim.Comm) error {
			for _, op := range iteration {
				if err := shim.Run(op.Calls[c.Rank]); err != nil {
					return err
				}
			}
			return g.SynchronizeRank(c.Rank)
		})
		for _, op := range iteration {
			require.NoError(t, op.Check())
		}
		hits, _ := l.Predictions()
		return hits >= 10 && circuits.Of(w.Comms[1]).Uses().Ahead >= 5
	}) {
		t.Error("tickets do not go out ahead")
	}
	shimtest.DestroyAll(w)
	lossless(dev, t)
}

// TestGPUDirectCircuitsBreak: what ends a communicator in the middle ends it on all ranks, with an error that says what
// it was; no stream hangs.
func TestGPUDirectCircuitsBreak(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(g *shimtest.GPUs, dev *shimtest.Crossbars, w *shimtest.World)
		says   []string
	}{
		"aborted": {func(_ *shimtest.GPUs, _ *shimtest.Crossbars, w *shimtest.World) {
			_ = w.Comms[1].Abort()
		}, []string{"abort"}},
		"dark": {func(_ *shimtest.GPUs, dev *shimtest.Crossbars, _ *shimtest.World) {
			dev.Planes[0].Set(circuit.AllDark(2))
		}, []string{"RETRY_EXC_ERR", "plane 0", "epoch "}},
	} {
		t.Run(name, func(t *testing.T) {
			g, dev := switchedGPUs(t, 2, 2, 1)
			w := shimtest.NewWorld(t, 2)
			const count = 400000
			at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
			sum := func(r, stream int) error {
				return shim.Run([]calls.Call{{Comm: w.Comms[r], Kind: calls.AllReduce, Type: datatype.Uint8, Count: count,
					Send: at[r], Recv: at[r], Stream: g.Streams[r][stream]}})
			}
			w.Must(func(c *shim.Comm) error { // the circuits are made, the plans known
				if err := sum(c.Rank, 0); err != nil {
					return err
				}
				return g.SynchronizeRank(c.Rank)
			})
			for range 2 { // rank 1 has not come
				if err := errors.Join(sum(0, 0), sum(0, 1)); err != nil {
					t.Fatal(err)
				}
			}
			c.breaks(g, dev, w)
			if name == "dark" {
				_ = sum(1, 0)
			}
			for r, comm := range w.Comms {
				<-comm.FailedChan()
				for _, says := range c.says {
					if err := comm.AsyncError(); !strings.Contains(err.Error(), says) {
						t.Errorf("rank %d: %v", r, err)
					}
				}
			}
			if err := errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)); err != nil {
				t.Error(err)
			}
			if err := sum(0, 0); err == nil {
				t.Error("a communicator that has failed takes a call")
			}
			shimtest.DestroyAll(w)
		})
	}
}

// TestGPUDirectSkippedDrain: a rank that asks for a switch while its messages are on the wire loses them, and all ranks
// hear on which plane.
func TestGPUDirectSkippedDrain(t *testing.T) {
	shimtest.RetryUntilLost(t, func(t *testing.T) bool {
		g, dev := switchedGPUs(t, 4, 1, 1)
		t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1") // after the move to where the plan begins
		w := shimtest.NewWorld(t, 4)
		const count = 1 << 18
		w.Must(func(c *shim.Comm) error {
			r := c.Rank
			at := g.Memory(r, count)
			// it may have failed by now
			_ = shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
				Stream: g.Streams[r][0]}})
			return g.SynchronizeRank(r)
		})
		lost := dev.Planes[0].Lost() > 0
		for r, c := range w.Comms {
			err := c.AsyncError()
			if !lost && err != nil {
				t.Errorf("rank %d: %v", r, err)
			} else if lost {
				<-c.FailedChan()
				shimtest.WantError(t, c.AsyncError(), transport.ErrPeerLost, "rank ", "plane 0", "epoch ")
			}
		}
		shimtest.DestroyAll(w)
		return lost
	})
}

// TestGPUDirectCircuitsReplays checks that a graph on circuits can be launched again and again, and that a launch need
// not wait until the CPU has seen the end of the one before.
func TestGPUDirectCircuitsReplays(t *testing.T) {
	const n, count, replays = 4, 20000, 20
	g, dev := switchedGPUs(t, n, 1, 2)
	w := shimtest.NewWorld(t, n)
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		at, s := g.Memory(r, count), g.Streams[r][0]
		g.Capture(s)
		err := shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at,
			Recv: at, Stream: s}})
		graph := g.End(s)
		if err != nil {
			return err
		}
		for range replays {
			g.Replay(graph, s)
		}
		return g.SynchronizeRank(r)
	})
	shimtest.DestroyAll(w)
	lossless(dev, t)
}
