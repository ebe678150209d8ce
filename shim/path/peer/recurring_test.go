package peer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/await"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/path/peer"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// copiesOf returns the bytes that streams copy during f. Lent buffers need no copies.
func copiesOf(g *shimtest.GPUs, f func()) int {
	var n atomic.Int64
	g.Before(func(o devicetest.Op) {
		n.Add(int64(o.Bytes))
	})
	f()
	g.Before(nil)
	return int(n.Load())
}

// published returns how many regions a rank has published, -1 if a peer has not opened one of them.
func published(c *shim.Comm) int {
	x := peer.Of(c)
	stream.Of(c).Mu.Lock()
	regions := append([]*peer.Region(nil), regionsOf(c)...)
	stream.Of(c).Mu.Unlock()
	for _, r := range regions {
		if !peer.IsOpen(x, r) {
			return -1
		}
	}
	return len(regions)
}

func awaitPublished(t *testing.T, w *shimtest.World, n int) {
	t.Helper()
	for _, c := range w.Comms {
		await.Until(t, fmt.Sprintf("rank %d has %d regions", c.Rank, n), func() bool { return published(c) == n })
	}
}

// TestRecurring: a buffer is lent after the second call with it. If its allocation is freed, it is withdrawn, also
// where another allocation has its address.
func TestRecurring(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	for range 2 {
		awaitPublished(t, w, 0)
		if n := copiesOf(g, func() { require.NoError(t, sumOnPeers(g, w, at, count)) }); n == 0 {
			t.Error("it is lent before it has recurred")
		}
	}
	awaitPublished(t, w, 1)
	if n := copiesOf(g, func() { require.NoError(t, sumOnPeers(g, w, at, count)) }); n != 0 {
		t.Errorf("%d bytes are copied", n)
	}
	require.NoError(t, g.Free(at[0]))
	await.Until(t, "freed memory is withdrawn", func() bool { return published(w.Comms[0]) == 0 })
	if n := published(w.Comms[1]); n != 1 {
		t.Errorf("rank 1: %d regions", n)
	}
	at[0] = g.Memory(0, count)
	assert.NoError(t, sumOnPeers(g, w, at, count))
}

// TestRecurringNot: short buffers and buffers in other memory are not published. No buffers are if the program wants
// only its registered ones.
func TestRecurringNot(t *testing.T) {
	g := useLenders(t, 2)
	t.Setenv("LIGHTPATH_DEVICE_REGISTER", "explicit")
	explicit := shimtest.NewWorld(t, 2)
	t.Setenv("LIGHTPATH_DEVICE_REGISTER", "recurring")
	w := shimtest.NewWorld(t, 2)
	const count = 300 << 10
	for range 5 {
		assert.NoError(t, sumOnPeers(g, explicit, []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}, count))
	}
	at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	managed := []unsafe.Pointer{g.Managed(0, count), g.Managed(1, count)}
	for range 5 {
		assert.NoError(t, sumOnPeers(g, explicit, at, count))
		assert.NoError(t, sumOnPeers(g, w, at, int(peer.LendAbove(peer.Of(w.Comms[0])))))
		assert.NoError(t, sumOnPeers(g, w, managed, count))
	}
	last := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	for range 2 {
		assert.NoError(t, sumOnPeers(g, w, last, count))
	}
	awaitPublished(t, w, 1) // only last
	for _, c := range explicit.Comms {
		if n := published(c); n != 0 {
			t.Errorf("%d regions", n)
		}
	}
}

// TestRecurringMany: a cycle of more buffers than a rank may publish keeps the first ones.
func TestRecurringMany(t *testing.T) {
	const count, all = 300 << 10, peer.MaxRegions
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	var at [all][]unsafe.Pointer
	for i := range all {
		at[i] = []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	}
	first := map[*peer.Region]bool{}
	for round := range 4 {
		for i := range all {
			require.NoError(t, sumOnPeers(g, w, at[i], count))
		}
		if round < 2 {
			continue
		}
		awaitPublished(t, w, all/2)
		stream.Of(w.Comms[0]).Mu.Lock()
		for _, r := range regionsOf(w.Comms[0]) {
			if round == 2 {
				first[r] = true
			} else if !first[r] {
				t.Error("a region was replaced")
			}
		}
		stream.Of(w.Comms[0]).Mu.Unlock()
	}
}

// TestRecurringAllocatesNothing: calls whose buffers recur, before and after they are published, and cannot be.
func TestRecurringAllocatesNothing(t *testing.T) {
	const count = 300000
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			g := useLenders(t, 2)
			w := shimtest.NewWorld(t, 2)
			if refused {
				g.Fail("Export", 0)
			}
			var group []calls.Call
			for r, c := range w.Comms {
				for _, kind := range shimtest.OracleKinds {
					group = append(group, calls.Call{Comm: c, Kind: kind, Type: datatype.Float32, Count: count,
						Send: g.Memory(r, 8*count), Recv: g.Memory(r, 8*count), Stream: g.Streams[r][0]})
				}
			}
			w.AllocatesNothing(t, group)
		})
	}
}

// TestRecurringInGraph: a graph keeps what it lends. If the program frees that first, it is withdrawn with the graph.
func TestRecurringInGraph(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	for range 2 {
		require.NoError(t, sumOnPeers(g, w, at, count))
	}
	awaitPublished(t, w, 1)
	var graphs [2]*devicetest.Graph
	for r, c := range w.Comms {
		g.Capture(g.Streams[r][0])
		require.NoError(t, shim.Run([]calls.Call{{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: count,
			Send: at[r], Recv: at[r], Stream: g.Streams[r][0]}}))
		graphs[r] = g.End(g.Streams[r][0])
	}
	require.NoError(t, g.Free(at[0]))
	time.Sleep(1200 * time.Millisecond) // the watcher has compared the numbers
	if n := published(w.Comms[0]); n != 1 {
		t.Errorf("%d regions while a graph lends one", n)
	}
	for r := range 2 {
		g.Discard(graphs[r])
	}
	await.Until(t, "the memory is withdrawn", func() bool { return published(w.Comms[0]) == 0 })
}

// TestQuiet: a context is quiet if no communicator has a pending launch in it, and then none begins.
func TestQuiet(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	at := []unsafe.Pointer{g.Memory(0, count), g.Memory(1, count)}
	ctx := stream.Of(w.Comms[0]).Context
	run := func(r int) error {
		return shim.Run([]calls.Call{{Comm: w.Comms[r], Kind: calls.AllReduce, Type: datatype.Uint8, Count: count,
			Send: at[r], Recv: at[r], Stream: g.Streams[r][0]}})
	}
	require.NoError(t, run(0))
	if resume := stream.Quiet(ctx); resume != nil {
		resume()
		t.Error("quiet while a launch waits for its peer")
	}
	require.NoError(t, run(1))
	for r := range 2 {
		require.NoError(t, g.SynchronizeRank(r))
	}
	var resume func()
	await.Until(t, "the context is quiet", func() bool { resume = stream.Quiet(ctx); return resume != nil })
	begun, ended := make(chan struct{}), make(chan error)
	go func() {
		close(begun)
		ended <- run(0)
	}()
	<-begun
	select {
	case err := <-ended:
		t.Error("a launch began:", err)
	case <-time.After(20 * time.Millisecond):
	}
	resume()
	require.NoError(t, <-ended)
	require.NoError(t, run(1))
	for r := range 2 {
		require.NoError(t, g.SynchronizeRank(r))
	}
	if stream.Quiet(device.Context(1<<20)) == nil {
		t.Error("an unused context is not quiet")
	}
}
