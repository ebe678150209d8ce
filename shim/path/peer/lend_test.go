package peer_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/peer"
	"lightpath/shim/shimtest"
)

// useLenders is [shimtest.UsePeers] with slots that two-shot sums fit into.
func useLenders(t testing.TB, n int) *shimtest.GPUs {
	g := shimtest.UsePeers(t, n, 1)
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "2M")
	return g
}

// registerAll registers memory with a communicator, and waits until all others have opened it.
func registerAll(t testing.TB, c *shim.Comm, at unsafe.Pointer, size int64) uint64 {
	t.Helper()
	h, err := shim.Register(c, at, uintptr(size), false, 0)
	require.NoError(t, err)
	awaitOpen(t, c)
	return h
}

// awaitOpen waits until all others have opened what a rank has registered, which registering does for a while only.
func awaitOpen(t testing.TB, c *shim.Comm) {
	t.Helper()
	await.Until(t, fmt.Sprintf("memory of rank %d is open", c.Rank), func() bool { return published(c) >= 0 })
}

// regionsOf returns the memory that a rank has registered.
func regionsOf(c *shim.Comm) []*peer.Region { return peer.Regions(peer.Of(c)) }

// TestLentBuffers compares every collective with the oracle. Buffers of each rank are registered or not, in place and
// not, in chunks of slots, and captured and not. Counts are multiples of a kernel's width and not.
func TestLentBuffers(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		if testing.Short() && n > 3 {
			break
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(n), 11))
			g := useLenders(t, n)
			w := shimtest.NewWorld(t, n)
			counts := []int{20 << 10, 70001, 100000}
			if n == 8 || testing.Short() {
				counts = counts[1:2]
			}
			for i, kind := range shimtest.OracleKinds {
				for _, count := range counts {
					lent(g, w, rng, shimtest.Collective{
						Kind: kind, Type: []datatype.Type{datatype.Float32, datatype.Int32, datatype.Int64}[rng.IntN(3)],
						Op: datatype.Op(rng.IntN(int(datatype.NumOps))), Root: i % n, Count: count, InPlace: rng.IntN(2) == 0,
					})
				}
			}
		})
	}
}

// lent makes a call, in a graph or not, with some of the buffers registered.
func lent(g *shimtest.GPUs, w *shimtest.World, rng *rand.Rand, k shimtest.Collective) {
	g.T.Helper()
	d, err := k.Prepare(w, rng)
	require.NoError(g.T, err)
	var backs []func()
	handles, calls := make([][]uint64, len(w.Comms)), make([][]calls.Call, len(w.Comms))
	for r, c := range w.Comms {
		on, back := g.Upload(d.Calls[r], r, func() device.Kind { return device.Memory })
		on[0].Stream = g.Streams[r][0]
		backs, calls[r] = append(backs, back), on
		_ = on[0].Resolve()
		send, recv := on[0].Extents()
		for _, b := range []struct {
			at   unsafe.Pointer
			size int64
		}{{on[0].Send, send}, {on[0].Recv, recv}} {
			if b.size == 0 || rng.IntN(3) == 0 {
				continue
			}
			h, err := shim.Register(c, b.at, uintptr(b.size), rng.IntN(2) == 0, 0)
			require.NoError(g.T, err)
			handles[r] = append(handles[r], h)
		}
	}
	captured := !k.InPlace && rng.IntN(2) == 0
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		if captured {
			g.Capture(g.Streams[r][0])
		}
		if err := shim.Run(calls[r]); err != nil {
			return err
		}
		if captured {
			graph := g.End(g.Streams[r][0])
			g.Replay(graph, g.Streams[r][0])
			g.Replay(graph, g.Streams[r][0])
			if err := g.SynchronizeRank(r); err != nil {
				return err
			}
			g.Discard(graph)
		}
		return g.SynchronizeRank(r)
	})
	for _, back := range backs {
		back()
	}
	if err := d.Check(); err != nil {
		g.T.Fatalf("%v (captured %v): %v", k, captured, err)
	}
	for r, c := range w.Comms {
		for _, h := range handles[r] {
			if _, err := shim.Registered(c, h, false, true); err == nil {
				continue
			}
			if _, err := shim.Registered(c, h, true, true); err != nil { // it was a window
				g.T.Fatal(err)
			}
		}
	}
}

// TestLentMovesNothing: with all buffers registered nothing is copied but by the kernels that combine, or that read
// what others bring; with those of one rank, that one lays nothing and takes nothing.
func TestLentMovesNothing(t *testing.T) {
	const n, count = 3, 1 << 20 // bytes of a block: several chunks
	for _, kind := range []calls.Kind{calls.AllReduce, calls.ReduceScatter, calls.AllGather, calls.AllToAll,
		calls.Broadcast, calls.Reduce, calls.Gather, calls.Scatter} {
		t.Run(kind.String(), func(t *testing.T) {
			g := useLenders(t, n)
			w := shimtest.NewWorld(t, n)
			var copied [2 * n]atomic.Int64 // bytes, by stream
			var group []calls.Call
			for r, c := range w.Comms {
				at, size := g.Memory(r, n*count), int64(n*count)
				registerAll(t, c, at, size)
				base := calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Count: count, Send: at, Recv: at,
					Stream: g.Streams[r][0]}
				switch own := unsafe.Add(at, r*count); kind {
				case calls.AllGather, calls.Gather:
					base.Send = own
				case calls.ReduceScatter, calls.Scatter:
					base.Recv = own
				case calls.AllToAll:
					base.Recv = g.Memory(r, n*count)
				}
				group = append(group, base)
			}
			g.Before(func(o devicetest.Op) {
				copied[o.Stream-1].Add(int64(o.Bytes))
			})
			w.Must(func(c *shim.Comm) error {
				r := c.Rank
				if err := shim.Run(group[r : r+1]); err != nil {
					return err
				}
				return g.SynchronizeRank(r)
			})
			g.Before(nil)
			for r := range n {
				want := int64(0)
				if kind == calls.AllToAll {
					want = count // its own block
				}
				if got := copied[g.Streams[r][0]-1].Load(); got != want {
					t.Errorf("rank %d: %d bytes are copied, want %d", r, got, want)
				}
			}
		})
	}
}

// sumOnPeers makes a sum of two ranks in place, of buffers whose elements are all the rank's number and one.
func sumOnPeers(g *shimtest.GPUs, w *shimtest.World, at []unsafe.Pointer, count int) error {
	for r := range w.Comms {
		for i, b := 0, g.Bytes(at[r], count); i < count; i++ {
			b[i] = byte(r + 1)
		}
	}
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		if err := shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: uint64(count),
			Send: at[r], Recv: at[r], Stream: g.Streams[r][0]}}); err != nil {
			return err
		}
		return g.SynchronizeRank(r)
	})
	for r := range w.Comms {
		for i, v := range g.Bytes(at[r], count) {
			if v != 3 {
				return fmt.Errorf("rank %d: element %d is %d", r, i, v)
			}
		}
	}
	return nil
}

// TestLentInUse: memory is not withdrawn while a launch or a graph uses it.
func TestLentInUse(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at, handles := make([]unsafe.Pointer, 2), make([]uint64, 2)
	for r, c := range w.Comms {
		at[r] = g.Memory(r, count)
		handles[r] = registerAll(t, c, at[r], count)
	}
	c := w.Comms[0]
	refused := func(says string) {
		t.Helper()
		_, err := shim.Registered(c, handles[0], false, true)
		shimtest.WantError(t, err, errdefs.ErrInvalidUsage, says)
	}
	sum := func(r int) {
		t.Helper()
		call := calls.Call{Comm: w.Comms[r], Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at[r],
			Recv: at[r], Stream: g.Streams[r][0]}
		require.NoError(t, shim.Run([]calls.Call{call}))
	}
	sum(0)
	refused("still on its stream")
	sum(1)
	for r := range 2 {
		require.NoError(t, g.SynchronizeRank(r))
	}
	var graphs [2]*devicetest.Graph
	for r := range 2 {
		g.Capture(g.Streams[r][0])
		sum(r)
		sum(r)
		graphs[r] = g.End(g.Streams[r][0])
	}
	refused("used by calls in 1 graphs")
	for r := range 2 {
		g.Discard(graphs[r])
	}
	for r, c := range w.Comms {
		if _, err := shim.Registered(c, handles[r], false, true); err != nil {
			t.Fatal(err)
		}
		if _, err := shim.Registered(c, handles[r], false, true); err == nil {
			t.Error("deregistered twice")
		}
	}
	assert.NoError(t, sumOnPeers(g, w, at, count))
}

// TestLentReused: memory that is freed without being deregistered is not read where it was.
func TestLentReused(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	for r, c := range w.Comms {
		registerAll(t, c, at[r], count)
	}
	c := w.Comms[0]
	// as if it were another allocation's
	if peer.Replace(regionsOf(c)[0]); peer.Lendable(peer.Of(c), at[0], count, 1000) {
		t.Error("it is lent")
	}
	assert.NoError(t, sumOnPeers(g, w, at, count))
}

// TestLentBounds checks that a buffer is lent only if it lies within one registration, and if the peers had opened this
// when the call was made.
func TestLentBounds(t *testing.T) {
	const size = 1 << 20
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at := g.Memory(0, size)
	registerAll(t, w.Comms[0], unsafe.Add(at, 4096), size/2)
	x := peer.Of(w.Comms[0])
	since := peer.Since(regionsOf(w.Comms[0])[0])
	for _, c := range []struct {
		from, bytes int64
		call        uint64
		lent        bool
	}{
		{4096, size / 2, since + 1, true}, {4096, size / 2, since, false}, {4096, size/2 + 1, since + 1, false},
		{4095, 16, since + 1, false},
		{4096 + size/2 - 1, 1, since + 1, true}, {4096 + size/2, 1, since + 1, false}, {0, size, since + 1, false},
	} {
		if got := peer.Lendable(x, unsafe.Add(at, c.from), c.bytes, c.call); got != c.lent {
			t.Errorf("%+v: lent %v", c, got)
		}
	}
	// which is no error, and not lent
	if _, err := shim.Register(w.Comms[0], unsafe.Add(at, size-16), 17, false, 0); err != nil {
		t.Error(err)
	}
	if n := len(regionsOf(w.Comms[0])); n != 1 {
		t.Errorf("%d regions", n)
	}
}

// TestLentTooMany: registrations beyond what others can open are as good as none, until there is room again.
func TestLentTooMany(t *testing.T) {
	const size = 4096
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	c, at := w.Comms[0], g.Memory(0, (peer.MaxRegions+2)*size)
	var handles []uint64
	for i := range peer.MaxRegions + 1 {
		handles = append(handles, registerAll(t, c, unsafe.Add(at, i*size), size))
	}
	if n := len(regionsOf(c)); n != peer.MaxRegions {
		t.Errorf("%d regions", n)
	}
	for _, h := range handles[1:] {
		if _, err := shim.Registered(c, h, false, true); err != nil {
			t.Fatal(err)
		}
	}
	registerAll(t, c, unsafe.Add(at, (peer.MaxRegions+1)*size), size)
	if n := len(regionsOf(c)); n != 2 {
		t.Errorf("%d regions", n)
	}
}

// TestLentRefused: a registration that a driver refuses, here or at another rank, is good all the same.
func TestLentRefused(t *testing.T) {
	const count = 300 << 10
	for _, method := range []string{"Allocation", "Export", "Reach", "EnterContext"} {
		t.Run(method, func(t *testing.T) {
			g := useLenders(t, 2)
			w := shimtest.NewWorld(t, 2)
			at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
			g.Fail(method, 0)
			w.Must(func(c *shim.Comm) error { // ranks wait for each other at the same time
				_, err := shim.Register(c, at[c.Rank], count, false, 0)
				return err
			})
			g.Fail("", 0)
			assert.NoError(t, sumOnPeers(g, w, at, count))
		})
	}
}

// TestLentAllocatesNothing: launches of all kinds, with registered buffers.
func TestLentAllocatesNothing(t *testing.T) {
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	const count = 100000
	var group []calls.Call
	for r, c := range w.Comms {
		send, recv := g.Memory(r, 8*count), g.Memory(r, 8*count)
		registerAll(t, c, send, 8*count)
		registerAll(t, c, recv, 8*count)
		for _, kind := range shimtest.OracleKinds {
			group = append(group, calls.Call{Comm: c, Kind: kind, Type: datatype.Float32, Count: count, Send: send, Recv: recv,
				Stream: g.Streams[r][0]})
		}
	}
	w.AllocatesNothing(t, group)
}

// TestLentAborted checks that an abort frees the stream of a rank that has lent a buffer to a rank that does not come.
// The rank then publishes no address.
func TestLentAborted(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at := g.Memory(0, count)
	c := w.Comms[0]
	registerAll(t, c, at, count)
	require.NoError(t, shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count, Send: at,
		Recv: at, Stream: g.Streams[0][0]}}))
	x := peer.Of(c)
	said := func() uint64 {
		b := g.Bytes(peer.Said(x, 0, 1, peer.WordSend), 8)
		low := atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0])))
		high := atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[4])))
		return uint64(low) | uint64(high)<<32
	}
	await.Until(t, "the stream says its buffer", func() bool {
		return said()&^device.SaidBits == uint64(uintptr(at)) && said()>>63 != 0
	})
	require.NoError(t, c.Abort())
	require.NoError(t, g.SynchronizeRank(0))
	if said()>>63 != 0 {
		t.Errorf("the stream has left the call and says %#x", said())
	}
}

// TestLentElsewhere checks that peers do not take an address that a rank has published for another call, or only half,
// as the address for this call.
func TestLentElsewhere(t *testing.T) {
	const count, other = 300 << 10, 270 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	var lent, plain [2]unsafe.Pointer
	for r, c := range w.Comms {
		lent[r], plain[r] = g.Memory(r, count), g.Memory(r, count)
		registerAll(t, c, lent[r], count)
	}
	op := peer.OperationOf(&calls.Call{Kind: calls.AllReduce, Type: datatype.Uint8, Count: count})
	elsewhere := peer.OperationOf(&calls.Call{Kind: calls.AllReduce, Type: datatype.Uint8, Count: other})
	for _, says := range []func(at uint64) uint64{
		func(at uint64) uint64 { return (at | peer.Tag(op)) & math.MaxUint32 },
		func(at uint64) uint64 { return at | peer.Tag(elsewhere) },
	} {
		for r, c := range w.Comms {
			x := peer.Of(c)
			for word := range peer.SaidWords {
				binary.NativeEndian.PutUint64(g.Bytes(peer.Said(x, r, 1-r, word), 8), says(uint64(uintptr(lent[r]))))
			}
		}
		assert.NoError(t, sumOnPeers(g, w, plain[:], count))
	}
}
