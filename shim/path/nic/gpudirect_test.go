package nic_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/rdma/verbstest"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/nic"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// TestGPUDirectSequences is TestDeviceSequences over RDMA ports, on one plane or two.
func TestGPUDirectSequences(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 11))
			n := 1 + int(seed)%4
			g := shimtest.UseGPUDirect(t, n, 3, 1+int(seed)/4)
			if n == 1 {
				t.Setenv("LIGHTPATH_DEVICE_PATH", "auto")
			}
			w := shimtest.NewWorld(t, n)
			for range shimtest.Repeats(2) {
				g.Sequence(w, rng, 9)
			}
			shimtest.DestroyAll(w)
		})
	}
}

// TestGPUDirectMovesNothingOnHosts: what travels comes from memory of devices and goes there, and no page-locked memory
// holds any of it.
func TestGPUDirectMovesNothingOnHosts(t *testing.T) {
	const count = 300000
	g := shimtest.UseGPUDirect(t, 3, 1, 2)
	w := shimtest.NewWorld(t, 3)
	g.Before(func(o devicetest.Op) {
		if o.Kind == devicetest.CopyOut || o.Kind == devicetest.CopyIn {
			t.Errorf("%d bytes are copied by way of page-locked memory", o.Bytes)
		}
	})
	before := g.Network.Moved()
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		send, recv := g.Memory(r, 3*count), g.Memory(r, 3*count)
		for _, kind := range shimtest.OracleKinds {
			if err := shim.Run([]calls.Call{{Comm: c, Kind: kind, Type: datatype.Uint8, Count: count, Send: send, Recv: recv,
				Stream: g.Streams[r][0]}}); err != nil {
				return err
			}
		}
		to := calls.Call{Comm: c, Kind: calls.Send, Type: datatype.Uint8, Count: count, Peer: int32(r+1) % 3, Send: send,
			Stream: g.Streams[r][0]}
		from := to
		from.Kind, from.Peer, from.Recv = calls.Recv, int32(r+2)%3, recv
		if err := shim.Run([]calls.Call{to, from}); err != nil {
			return err
		}
		return g.SynchronizeRank(r)
	})
	g.Before(nil)
	moved := g.Network.Moved()
	if host := moved.FromHost + moved.ToHost - before.FromHost - before.ToHost; host != 0 {
		t.Errorf("%d bytes have come from memory of hosts, or gone there", host)
	}
	if moved.FromBuf < 20*count || moved.FromBuf != moved.ToBuf {
		t.Errorf("%d bytes have come from memory of devices, and %d gone there", moved.FromBuf, moved.ToBuf)
	}
	shimtest.DestroyAll(w)
	sent := int64(0)
	for _, c := range w.Comms {
		sent += nic.Traffic(nic.Of(c))
	}
	if sent != moved.FromBuf {
		t.Errorf("ranks have counted %d bytes, the network %d", sent, moved.FromBuf)
	}
	if _, most := g.Locked(); most > 3*3*shimtest.PageSize { // words for streams
		t.Errorf("%d bytes were page-locked", most)
	}
}

// TestGPUDirectAllocatesNothing: launches of all kinds.
func TestGPUDirectAllocatesNothing(t *testing.T) {
	g := shimtest.UseGPUDirect(t, 2, 2, 2)
	w := shimtest.NewWorld(t, 2)
	w.AllocatesNothing(t, g.EveryKind(w, 200000)) // several rounds
	shimtest.DestroyAll(w)
}

// TestGPUDirectRegistered checks that bytes travel between registered buffers directly, until the program deregisters
// them.
func TestGPUDirectRegistered(t *testing.T) {
	const count = 300000
	g := shimtest.UseGPUDirect(t, 3, 1, 1)
	w := shimtest.NewWorld(t, 3)
	var copied atomic.Int64
	g.Before(func(o devicetest.Op) {
		if o.Kind == devicetest.Copy {
			copied.Add(int64(o.Bytes))
		}
	})
	at, handles := make([]shimtest.DeviceBuffer, 3), make([]uint64, 3)
	for r, c := range w.Comms {
		at[r] = g.Move(device.Memory, r, []byte(strings.Repeat(string(rune('a'+r)), count)))
		var err error
		if handles[r], err = shim.Register(c, at[r].At, count, false, 0); err != nil {
			t.Fatal(err)
		}
	}
	cast := func(root int) {
		t.Helper()
		w.Must(func(c *shim.Comm) error {
			r := c.Rank
			call := calls.Call{Comm: c, Kind: calls.Broadcast, Type: datatype.Uint8, Count: count, Peer: int32(root),
				Send: at[r].At, Recv: at[r].At, Stream: g.Streams[r][0]}
			if err := shim.Run([]calls.Call{call}); err != nil {
				return err
			}
			return g.SynchronizeRank(r)
		})
		for r := range at {
			if got := g.Bytes(at[r].At, count); string(got) != strings.Repeat(string(got[:1]), count) ||
				got[0] != g.Bytes(at[root].At, 1)[0] {
				t.Errorf("rank %d has another result", r)
			}
		}
	}
	cast(1)
	if n := copied.Load(); n != 0 {
		t.Errorf("%d bytes were copied", n)
	}
	for r, c := range w.Comms {
		if _, err := shim.Registered(c, handles[r], false, true); err != nil {
			t.Error(err)
		}
	}
	for r := range at {
		copy(g.Bytes(at[r].At, count), strings.Repeat(string(rune('p'+r)), count))
	}
	cast(2)
	if copied.Load() == 0 {
		t.Error("nothing was copied that is not registered any more")
	}
	g.Before(nil)
	shimtest.DestroyAll(w)
}

// TestGPUDirectBreaks checks that a failure in the middle ends the communicator on all ranks, with an error that names
// it. No stream hangs, nor does one that reaches a launch later, in a graph or not.
func TestGPUDirectBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(g *shimtest.GPUsAndPorts, w *shimtest.World)
		says   string
	}{
		"aborted": {func(_ *shimtest.GPUsAndPorts, w *shimtest.World) { _ = w.Comms[1].Abort() }, "aborted"},
		"no answer": {func(g *shimtest.GPUsAndPorts, _ *shimtest.World) {
			g.Network.Drop(func(uint32, uint32, uint64) bool { return true })
		}, "RETRY_EXC_ERR"},
		"device lost": {func(g *shimtest.GPUsAndPorts, _ *shimtest.World) {
			verbstest.RaiseEvent(g.Ports[0], rdma.Event{Kind: rdma.DeviceFatal})
		}, "the device has failed|RETRY_EXC_ERR"},
		"bad offer":    {func(g *shimtest.GPUsAndPorts, _ *shimtest.World) { g.Network.Corrupt(1) }, "not an offer"},
		"no flush":     {func(g *shimtest.GPUsAndPorts, _ *shimtest.World) { g.Fail("FlushRemote", 0) }, "FlushRemote"},
		"nobody comes": {func(*shimtest.GPUsAndPorts, *shimtest.World) {}, "rank 1 did not arrive|nobody receives there"},
	} {
		t.Run(name, func(t *testing.T) {
			g := shimtest.UseGPUDirect(t, 2, 2, 1)
			g.Remote.NeedFlush(nil)
			w := shimtest.NewWorld(t, 2)
			if name == "nobody comes" {
				w.SetTimeout(time.Second)
			}
			const count = 400000
			at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
			gate := make(chan struct{})
			g.Before(func(o devicetest.Op) {
				if o.Stream == g.Streams[0][1] {
					<-gate
				}
			})
			cast := func(r, root, stream int) error {
				return shim.Run([]calls.Call{{
					Comm: w.Comms[r], Kind: calls.Broadcast, Type: datatype.Uint8, Count: count, Peer: int32(root), Send: at[r],
					Recv: at[r], Stream: g.Streams[r][stream],
				}})
			}
			graphs := make([]*devicetest.Graph, 2)
			for r := range graphs {
				g.Capture(g.Streams[r][0])
				require.NoError(t, cast(r, 0, 0))
				graphs[r] = g.End(g.Streams[r][0])
			}
			for range 2 { // rank 1 has not come
				require.NoError(t, cast(0, 0, 0))
			}
			require.NoError(t, cast(0, 0, 1)) // behind a gate
			c.breaks(g, w)
			if name != "aborted" && name != "nobody comes" {
				_ = cast(1, 0, 0) // it may have failed by now
			}
			for r, comm := range w.Comms {
				<-comm.FailedChan()
				if err := comm.AsyncError(); !slices.ContainsFunc(strings.Split(c.says, "|"), func(says string) bool {
					return strings.Contains(err.Error(), says)
				}) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			g.Replay(graphs[0], g.Streams[0][0])
			g.Replay(graphs[1], g.Streams[1][0])
			close(gate)
			assert.NoError(t, errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)))
			if err := cast(0, 0, 0); err == nil {
				t.Error("a communicator that has failed takes a call")
			}
			g.Discard(graphs[0])
			g.Discard(graphs[1])
			g.Before(nil)
			shimtest.DestroyAll(w)
		})
	}
}

// TestGPUDirectNotMade: where one rank cannot go on no rank does, with the reason; unless they must, launches are
// staged.
func TestGPUDirectNotMade(t *testing.T) {
	refuse := func(method string) func(g *shimtest.GPUsAndPorts) {
		// of the last rank; of others where they call it more than once
		return func(g *shimtest.GPUsAndPorts) { g.Fail(method, 2) }
	}
	for name, c := range map[string]struct {
		breaks func(g *shimtest.GPUsAndPorts)
		says   string
	}{
		"the kernel takes none": {func(g *shimtest.GPUsAndPorts) {
			verbstest.RefuseBuf(g.Ports[1], syscall.EOPNOTSUPP)
		}, "mem1"},
		"no memory for it": {func(g *shimtest.GPUsAndPorts) {
			verbstest.RefuseBuf(g.Ports[0], syscall.ENOMEM)
		}, "cannot allocate"},
		"RemoteAccess":  {refuse("RemoteAccess"), "RemoteAccess"},
		"ExportBuf":     {refuse("ExportBuf"), "ExportBuf"},
		"AllocExchange": {refuse("AllocExchange"), "AllocExchange"},
		"NewStream":     {refuse("NewStream"), "NewStream"},
		"LoadKernels":   {refuse("LoadKernels"), "LoadKernels"},
	} {
		t.Run(name, func(t *testing.T) {
			g := shimtest.UseGPUDirect(t, 3, 3, 2)
			c.breaks(g)
			id, err := shim.NewUniqueID()
			require.NoError(t, err)
			args := make([]shim.InitArgs, 3)
			for r := range args {
				args[r] = shim.InitArgs{ID: id, Ranks: 3, Rank: r, Device: r}
			}
			if _, err := shim.Init(args); !errors.Is(err, errdefs.ErrInvalidUsage) || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), "LIGHTPATH_DEVICE_PATH=rdma") {
				t.Errorf("they must, and the error is %v", err)
			}
			t.Setenv("LIGHTPATH_DEVICE_PATH", "auto")
			g.Fail("", 0)
			c.breaks(g)
			w := shimtest.NewWorld(t, 3)
			g.Fail("", 0)
			for r, comm := range w.Comms {
				if calls.FactsOf(comm).Launches == calls.ByPorts {
					t.Errorf("rank %d goes on", r)
				}
			}
			g.Sequence(w, rand.New(rand.NewPCG(1, 9)), 6)
			shimtest.DestroyAll(w)
		})
	}
}

// TestGPUDirectNoRoom: a call for which one rank gets no memory fails the communicator on all ranks, whose streams
// would wait otherwise.
func TestGPUDirectNoRoom(t *testing.T) {
	for kind, group := range map[calls.Kind]int{calls.AllReduce: 1, calls.Send: 16} {
		t.Run(kind.String(), func(t *testing.T) {
			g := shimtest.UseGPUDirect(t, 2, 1, 1)
			w := shimtest.NewWorld(t, 2)
			run := func(r int) error {
				at := g.Memory(r, 4<<20)
				call := calls.Call{Comm: w.Comms[r], Kind: kind, Type: datatype.Uint8, Count: 4 << 20, Send: at, Recv: at,
					Peer: int32(1 - r), Stream: g.Streams[r][0]}
				if kind == calls.Send && r == 1 {
					call.Kind = calls.Recv
				}
				return shim.Run(slices.Repeat([]calls.Call{call}, group))
			}
			require.NoError(t, run(0))
			g.Fail("AllocExchange", 0)
			if err := run(1); err == nil || !strings.Contains(err.Error(), "AllocExchange") {
				t.Fatal(err)
			}
			g.Fail("", 0)
			for _, c := range w.Comms {
				<-c.FailedChan()
			}
			assert.NoError(t, errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)))
			shimtest.DestroyAll(w)
		})
	}
}

// TestGPUDirectFlushes: where a driver says that streams do not see what ports have written, no stream goes on before
// it has been flushed.
func TestGPUDirectFlushes(t *testing.T) {
	g := shimtest.UseGPUDirect(t, 2, 1, 1)
	hold := make(chan struct{})
	g.Remote.NeedFlush(hold)
	w := shimtest.NewWorld(t, 2)
	const count = 5000
	at := [2]shimtest.DeviceBuffer{}
	for r, c := range w.Comms {
		at[r] = g.Move(device.Memory, r, []byte(strings.Repeat(string(rune('a'+r)), count)))
		call := calls.Call{Comm: c, Kind: calls.Broadcast, Type: datatype.Uint8, Count: count, Peer: 1, Send: at[r].At,
			Recv: at[r].At, Stream: g.Streams[r][0]}
		require.NoError(t, shim.Run([]calls.Call{call}))
	}
	require.NoError(t, g.SynchronizeRank(1)) // which receives nothing
	for nic.Flushing(nic.Of(w.Comms[0])) == 0 {
		require.NoError(t, w.Comms[0].AsyncError())
	}
	if stream.Of(w.Comms[0]).Over() || g.Remote.Flushes() != 0 {
		t.Error("the stream has not waited")
	}
	close(hold)
	require.NoError(t, g.SynchronizeRank(0))
	if g.Remote.Flushes() != 1 {
		t.Errorf("flushed %d times", g.Remote.Flushes())
	}
	if got := string(g.Bytes(at[0].At, count)); got != strings.Repeat("b", count) {
		t.Error("wrong result")
	}
	shimtest.DestroyAll(w)
}

// TestGPUDirectDiffers: calls that differ fail the communicator on all ranks, and no stream hangs.
func TestGPUDirectDiffers(t *testing.T) {
	for name, change := range map[string]func(c *calls.Call){
		"type":  func(c *calls.Call) { c.Type = datatype.Int8 },
		"count": func(c *calls.Call) { c.Count += 1 << 16 },
		"kind":  func(c *calls.Call) { c.Kind = calls.Reduce },
	} {
		t.Run(name, func(t *testing.T) {
			g := shimtest.UseGPUDirect(t, 2, 1, 1)
			w := shimtest.NewWorld(t, 2)
			for r, c := range w.Comms {
				at := g.Memory(r, 1<<20)
				call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 2 << 16, Send: at, Recv: at,
					Stream: g.Streams[r][0]}
				if r == 1 {
					change(&call)
				}
				require.NoError(t, shim.Run([]calls.Call{call}))
			}
			for r, c := range w.Comms {
				<-c.FailedChan()
				if err := c.AsyncError(); !errors.Is(err, errdefs.ErrInvalidUsage) && !errors.Is(err, errdefs.ErrRemote) &&
					!strings.Contains(err.Error(), "something else") && !strings.Contains(err.Error(), "different calls") {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			assert.NoError(t, errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)))
			shimtest.DestroyAll(w)
		})
	}
}
