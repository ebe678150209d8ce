package peer_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/errdefs"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

// TestDirectSequences is TestDeviceSequences through the memory of devices.
func TestDirectSequences(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			n := 1 + int(seed)%4
			g := shimtest.UsePeers(t, n, 3)
			w := shimtest.NewWorld(t, n)
			for range shimtest.Repeats(3) {
				g.Sequence(w, rng, 12)
			}
		})
	}
}

// TestDirectAllocatesNothing: launches of all kinds.
func TestDirectAllocatesNothing(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 2)
	w := shimtest.NewWorld(t, 2)
	w.AllocatesNothing(t, g.EveryKind(w, 100000)) // more than a slot
}

// TestDirectRefused: whatever a driver refuses while calls are made, wherever, is an error, and no stream hangs.
func TestDirectRefused(t *testing.T) {
	shimtest.RefuseEach(t, shimtest.UsePeers, 6, refusesDirect,
		"Locate", "Enter", "EnterContext", "StreamID", "Capturing", "Context", "Record", "Follow", "Copy", "Reduce", "Words")
}

// refusesDirect has a group of collectives and messages refused.
func refusesDirect(g *shimtest.GPUs, w *shimtest.World, method string, after int) (failed bool) {
	const count = 300000
	var group []calls.Call
	for r, c := range w.Comms {
		at, to, s := g.Memory(r, 2*count), unsafe.Pointer(unsafe.SliceData(make([]byte, count))), g.Streams[r]
		group = append(group,
			calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at, Recv: at, Stream: s[0]},
			calls.Call{Comm: c, Kind: calls.Send, Type: datatype.Uint8, Count: count, Send: at, Peer: int32(1 - r),
				Stream: s[1]},
			calls.Call{Comm: c, Kind: calls.Recv, Type: datatype.Uint8, Count: count, Recv: to,
				Peer: int32(1 - r), Stream: s[0]})
	}
	return g.Refuses(group, 1, method, after)
}

// TestDirectNotMade: where one rank cannot go on, no rank does; and unless they must, launches are staged. No rank
// keeps the page mapped.
func TestDirectNotMade(t *testing.T) {
	for _, method := range []string{"AllocExchange", "Export", "Reach", "Register", "LoadKernels",
		"NewStream", "NewEvent", "EnterContext"} {
		before := mappedPages(t)
		t.Run(method, func(t *testing.T) {
			g := shimtest.UsePeers(t, 3, 3)
			t.Setenv("LIGHTPATH_DEVICE_PATH", "auto")
			g.Fail(method, 2) // of the last rank; of others where they call it more than once
			w := shimtest.NewWorld(t, 3)
			g.Fail("", 0)
			direct := 0
			for _, c := range w.Comms {
				if calls.FactsOf(c).Launches == calls.ByPeers {
					direct++
				}
			}
			if direct != 0 {
				t.Errorf("%d ranks go on", direct)
			}
			g.Sequence(w, rand.New(rand.NewPCG(1, 9)), 6)
		})
		await.Until(t, method+": all pages are unmapped", func() bool { return mappedPages(t) <= before })
	}
}

// mappedPages returns how many pages of tokens this process has mapped.
func mappedPages(t *testing.T) int {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(maps), "memfd:nccl-exchange")
}

// TestDirectDeadline: a call that is not over in time fails the communicator.
func TestDirectDeadline(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	at := g.Memory(0, 1000)
	call := calls.Call{Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Uint8, Count: 1000, Send: at, Recv: at,
		Stream: g.Streams[0][0]}
	call.Options.Deadline = 10 * time.Millisecond
	require.NoError(t, shim.Run([]calls.Call{call}))
	<-w.Comms[0].FailedChan()
	if err := w.Comms[0].AsyncError(); !errors.Is(err, errdefs.ErrTimeout) || !strings.Contains(err.Error(),
		"no stream of rank 1 is in one") {
		t.Error(err)
	}
	if err := g.SynchronizeRank(0); err != nil {
		t.Error(err)
	}
}

// TestDirectRecorder: launches are under way until their streams have left them.
func TestDirectRecorder(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	held := make(chan struct{})
	g.Before(func(o devicetest.Op) {
		if o.Stream == g.Streams[1][0] {
			<-held
		}
	})
	for r, c := range w.Comms {
		at := g.Memory(r, 1000)
		require.NoError(t, shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: 1000, Send: at,
			Recv: at, Stream: g.Streams[r][0]}}))
	}
	for r, c := range w.Comms {
		if now := recorder.Of(c).Snapshot(); !now.Running || now.Op.Seq != 1 {
			t.Errorf("rank %d: %+v", r, now.Op)
		}
	}
	close(held)
	for r, c := range w.Comms {
		require.NoError(t, g.SynchronizeRank(r))
		if now := recorder.Of(c).Snapshot(); now.Running || now.Last.Outcome != recorder.Completed ||
			now.Counts[calls.AllReduce] != 1 {
			t.Errorf("rank %d: %+v", r, now)
		}
	}
	g.Before(nil)
}

// TestCapturedByOne: a call that one rank captures and another one does not is an error of both.
func TestCapturedByOne(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	call := func(r int) []calls.Call {
		at := g.Memory(r, 1000)
		return []calls.Call{{Comm: w.Comms[r], Kind: calls.AllReduce, Type: datatype.Uint8, Count: 1000, Send: at, Recv: at,
			Stream: g.Streams[r][0]}}
	}
	g.Capture(g.Streams[0][0])
	require.NoError(t, shim.Run(call(0)))
	g.Discard(g.End(g.Streams[0][0]))
	shimtest.WantError(t, shim.Run(call(1)), errdefs.ErrMismatch, "one captured it and one did not")
	<-w.Comms[0].FailedChan()
	require.NoError(t, g.SynchronizeRank(1))
}

// TestDirectAlone checks that a launch with more operations than the driver may hold ends in time if no peer comes,
// although the call has not returned yet.
func TestDirectAlone(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 1)
	t.Setenv("LIGHTPATH_TIMEOUT", "1s")
	w := shimtest.NewWorld(t, 2)
	group := make([]calls.Call, 400)
	for i := range group {
		at := g.Memory(0, 16)
		group[i] = calls.Call{Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Uint8, Count: 16, Send: at, Recv: at,
			Stream: g.Streams[0][0]}
	}
	_ = shim.Run(group) // the timeout may come before it returns, or after
	<-w.Comms[0].FailedChan()
	shimtest.WantError(t, w.Comms[0].AsyncError(), errdefs.ErrTimeout, "rank 1 did not arrive")
	require.NoError(t, g.SynchronizeRank(0))
}

// TestDirectManyCopies checks that a rank can put more copies of the driver on its stream, one behind the other, than
// the driver may hold.
func TestDirectManyCopies(t *testing.T) {
	g := shimtest.UsePeers(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	w.Must(func(c *shim.Comm) error {
		at, s := g.Memory(c.Rank, 32), g.Streams[c.Rank][0]
		var group []calls.Call
		for range 600 {
			send := calls.Call{Comm: c, Kind: calls.Send, Type: datatype.Uint8, Count: 16, Send: at, Peer: int32(c.Rank),
				Stream: s}
			recv := send
			recv.Kind, recv.Send, recv.Recv = calls.Recv, nil, unsafe.Add(at, 16)
			group = append(group, send, recv)
		}
		if err := shim.Run(group); err != nil {
			return err
		}
		return g.SynchronizeRank(c.Rank)
	})
}

// TestDirectScalesHostMemory checks that no kernel of a single rank uses memory that only the CPU reaches.
func TestDirectScalesHostMemory(t *testing.T) {
	g := shimtest.UsePeers(t, 1, 1)
	w := shimtest.NewWorld(t, 1)
	g.Touching(func(_ device.Stream, at unsafe.Pointer) {
		if place, err := g.Locate(at); err != nil || place.Kind == device.Host {
			t.Errorf("a kernel uses host memory at %p: %v", at, err)
		}
	})
	at, to, factor := g.Memory(0, 4), make([]byte, 4), byte(3)
	copy(g.Bytes(at, 4), []byte{1, 2, 3, 4})
	require.NoError(t, shim.Run([]calls.Call{{Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Uint8,
		Op: calls.OpPreMulSum, Count: 4, Send: at, Recv: unsafe.Pointer(&to[0]), Scalar: unsafe.Pointer(&factor),
		Stream: g.Streams[0][0]}}))
	require.NoError(t, g.SynchronizeRank(0))
	if !bytes.Equal(to, []byte{3, 6, 9, 12}) {
		t.Errorf("the result is %v", to)
	}
}

// TestDirectKernelOfOneCall checks that a call whose last round gives nothing leaves no kernel open in which jobs of the
// group's next call, of another type or factor, are done wrong.
func TestDirectKernelOfOneCall(t *testing.T) {
	t.Run("types", func(t *testing.T) {
		const count = 30
		g := shimtest.UsePeers(t, 2, 1)
		w := shimtest.NewWorld(t, 2)
		w.Must(func(c *shim.Comm) error {
			at, to, s := g.Memory(c.Rank, 8*count), g.Memory(c.Rank, 16*count), g.Streams[c.Rank][0]
			copy(g.Bytes(at, 8*count), bytes.Repeat([]byte{byte(c.Rank + 1)}, 8*count))
			group := []calls.Call{
				{Comm: c, Kind: calls.Reduce, Type: datatype.Uint32, Count: 1, Send: g.Memory(c.Rank, 4),
					Recv: g.Memory(c.Rank, 4), Peer: 1, Stream: s},
				{Comm: c, Kind: calls.Gather, Type: datatype.Uint64, Count: count, Send: at, Recv: to, Stream: s},
			}
			if err := errors.Join(shim.Run(group), g.SynchronizeRank(c.Rank)); err != nil || c.Rank > 0 {
				return err
			}
			want := append(bytes.Repeat([]byte{1}, 8*count), bytes.Repeat([]byte{2}, 8*count)...)
			if got := g.Bytes(to, len(want)); !bytes.Equal(got, want) {
				return fmt.Errorf("rank 0 gathered %v", got)
			}
			return nil
		})
	})
	t.Run("factors", func(t *testing.T) {
		g := shimtest.UsePeers(t, 1, 1)
		w := shimtest.NewWorld(t, 1)
		at, factors := g.Memory(0, 4), []byte{3, 5}
		copy(g.Bytes(at, 4), []byte{1, 2, 1, 2})
		var group []calls.Call
		for i := range factors {
			part := unsafe.Add(at, 2*i)
			group = append(group, calls.Call{Comm: w.Comms[0], Kind: calls.AllReduce, Type: datatype.Uint8,
				Op: calls.OpPreMulSum, Count: 2, Send: part, Recv: part, Scalar: unsafe.Pointer(&factors[i]),
				Stream: g.Streams[0][0]})
		}
		require.NoError(t, shim.Run(group))
		require.NoError(t, g.SynchronizeRank(0))
		if got := g.Bytes(at, 4); !bytes.Equal(got, []byte{3, 6, 5, 10}) {
			t.Errorf("the result is %v", got)
		}
	})
}

// TestDirectOneThread checks that one thread can put a group of many calls of all ranks of one device on streams. Each
// rank waits for room that it only gets when the others have come.
func TestDirectOneThread(t *testing.T) {
	const ranks, count, first = 8, 16, int(device.LastDefault) // the first stream that is no default stream
	g := shimtest.UsePeers(t, 1, first+ranks)
	t.Setenv("LIGHTPATH_TIMEOUT", "20s")
	cfg, err := settings.Load()
	require.NoError(t, err)
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	args := make([]shim.InitArgs, ranks)
	for r := range args {
		args[r] = shim.InitArgs{ID: id, Ranks: ranks, Rank: r}
	}
	comms, err := shim.InitWith(cfg, args)
	require.NoError(t, err)
	t.Cleanup(shimtest.WorldOf(t, comms).Destroy)
	var group []calls.Call
	for r, c := range comms {
		at := g.Memory(0, count)
		for range 24 {
			group = append(group, calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at,
				Recv: at, Stream: g.Streams[0][first+r]})
		}
	}
	require.NoError(t, shim.Run(group))
	require.NoError(t, g.SynchronizeRank(0))
}
