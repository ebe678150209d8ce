package peer_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
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
	"lightpath/shim/memory"
	"lightpath/shim/path/peer"
	"lightpath/shim/shimtest"
	"lightpath/shim/stream"
)

// letter is a test message: the bytes to send, and where the receiver has them.
type letter struct {
	from, to   int
	size       int
	send, recv unsafe.Pointer
	want       []byte
}

// TestLentMessages runs groups of messages between all ranks, some to the same rank. Sizes are around the chunk size
// and the shortest lent size. Buffers are registered or not, aligned or not, or in host memory, and groups run in
// graphs too.
func TestLentMessages(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(n), 21))
			g := shimtest.UsePeers(t, n, 1)
			w := shimtest.NewWorld(t, n)
			pair := int(pairBytes(w))
			few := int(peer.LendAbove(peer.Of(w.Comms[0])))
			sizes := []int{0, 1, few, few + 1, pair, pair + 5, 2*pair + 17, 4*pair - 1}
			lent := 0
			for round := range 12 {
				lent += letters(g, w, rng, sizes, round%3 == 2)
			}
			if lent == 0 {
				t.Error("no message was lent")
			}
		})
	}
}

// letters sends messages, twice if captured, and returns how many were lent.
func letters(g *shimtest.GPUs, w *shimtest.World, rng *rand.Rand, sizes []int, captured bool) (lent int) {
	g.T.Helper()
	n := len(w.Comms)
	group := make([][]calls.Call, n)
	var all []letter
	for from := range n {
		for k := range 2 * n {
			m := letter{from: from, to: k % n, size: sizes[rng.IntN(len(sizes))]}
			m.send, m.recv = letterRoom(g, w.Comms[from], rng, m.size, false),
				letterRoom(g, w.Comms[m.to], rng, m.size, !captured)
			m.want = make([]byte, m.size)
			for i := range m.want {
				m.want[i] = byte(rng.Uint32())
			}
			if m.size > 0 {
				copy(g.Bytes(m.send, m.size), m.want)
			}
			base := calls.Call{Type: datatype.Uint8, Count: uint64(m.size), Stream: g.Streams[from][0]}
			s, r := base, base
			s.Comm, s.Kind, s.Peer, s.Send = w.Comms[from], calls.Send, int32(m.to), m.send
			r.Comm, r.Kind, r.Peer, r.Recv, r.Stream = w.Comms[m.to], calls.Recv, int32(from), m.recv, g.Streams[m.to][0]
			group[from] = append(group[from], s)
			group[m.to] = append(group[m.to], r)
			all = append(all, m)
		}
	}
	var count atomic.Int64
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		if captured {
			g.Capture(g.Streams[r][0])
		}
		if err := shim.Run(group[r]); err != nil {
			return err
		}
		count.Add(int64(peer.MessagesLent(peer.Of(c))))
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
	for i, m := range all {
		if m.size > 0 && !bytes.Equal(view(g, m.recv, m.size), m.want) {
			g.T.Fatalf("message %d of %d bytes from %d to %d (captured %v): it is not what was sent", i, m.size,
				m.from, m.to, captured)
		}
	}
	for _, c := range w.Comms {
		sayNothing(g, c)
	}
	return int(count.Load())
}

// letterRoom is memory for a message: registered or not, aligned or not, and if it may be, the host's.
func letterRoom(g *shimtest.GPUs, c *shim.Comm, rng *rand.Rand, size int, mayHost bool) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	if mayHost && rng.IntN(6) == 0 {
		return unsafe.Pointer(unsafe.SliceData(make([]byte, size)))
	}
	at := g.Memory(c.Rank, size+64)
	if rng.IntN(3) > 0 && len(regionsOf(c)) < peer.MaxRegions {
		registerAll(g.T, c, at, int64(size)+64)
	}
	return unsafe.Add(at, []int{0, 0, 16, 7}[rng.IntN(4)])
}

// view is memory of either kind.
func view(g *shimtest.GPUs, at unsafe.Pointer, size int) []byte {
	if memory.OnDevice(at) {
		return g.Bytes(at, size)
	}
	return memory.Bytes(at, int64(size))
}

// sayNothing checks that a rank whose streams have left publishes no address.
func sayNothing(g *shimtest.GPUs, c *shim.Comm) {
	g.T.Helper()
	words := g.Bytes(peer.OwnSaid(peer.Of(c)), peer.SaidBytes)
	for ; len(words) > 0; words = words[8:] {
		if said := binary.NativeEndian.Uint64(words); said>>63 != 0 {
			g.T.Errorf("rank %d has left its calls and says %#x", c.Rank, said)
		}
	}
}

// TestLentMessagesCopyOnce: a message between registered buffers, of several chunks, is moved by the receiver's kernels
// alone.
func TestLentMessagesCopyOnce(t *testing.T) {
	const count = 1 << 20
	g := shimtest.UsePeers(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	var group [2][]calls.Call
	var send [2]unsafe.Pointer
	for r, c := range w.Comms {
		send[r] = g.Memory(r, count)
		recv := g.Memory(r, count)
		registerAll(t, c, send[r], count)
		base := calls.Call{Comm: c, Type: datatype.Uint8, Count: count, Send: send[r], Recv: recv, Peer: int32(1 - r),
			Stream: g.Streams[r][0]}
		s, v := base, base
		s.Kind, v.Kind = calls.Send, calls.Recv
		group[r] = []calls.Call{s, v}
	}
	var copies, kernels atomic.Int64
	g.Before(func(o devicetest.Op) {
		switch o.Kind {
		case devicetest.Copy, devicetest.CopyIn, devicetest.CopyOut:
			copies.Add(1)
		case devicetest.Reduction:
			kernels.Add(1)
			copies.Add(int64(o.Bytes))
		}
	})
	exchange := func() {
		t.Helper()
		w.Must(func(c *shim.Comm) error {
			r := c.Rank
			if err := shim.Run(group[r]); err != nil {
				return err
			}
			return g.SynchronizeRank(r)
		})
	}
	exchange()
	pair := pairBytes(w)
	if want := 2 * ((count + pair - 1) / pair); copies.Load() != 0 || kernels.Load() != want {
		t.Errorf("%d copies and %d kernels, want none and %d", copies.Load(), kernels.Load(), want)
	}
	g.Before(nil)
	w.AllocatesNothing(t, append(group[0], group[1]...))
}

// TestLentMessageBounds checks that a message is not lent to a receiver that had not opened the buffer when it called,
// even if other ranks had.
func TestLentMessageBounds(t *testing.T) {
	const size = 1 << 20
	g := shimtest.UsePeers(t, 3, 1)
	w := shimtest.NewWorld(t, 3)
	at := g.Memory(0, size)
	registerAll(t, w.Comms[0], at, size)
	x := peer.Of(w.Comms[0])
	peer.SetWanted(x, 0, 0, 1, 7)
	for _, c := range []struct {
		peer   int
		bytes  int64
		number uint64
		lent   bool
	}{{1, size, 8, true}, {1, size, 7, false}, {1, size + 1, 8, false}, {2, size, 1, true}} {
		if got := peer.LendableTo(x, c.peer, at, c.bytes, c.number); got != c.lent {
			t.Errorf("%+v: lent %v", c, got)
		}
	}
	peer.SetSerial(x, 0, 0, 1, 0)
	if peer.LendableTo(x, 1, at, size, 8) || !peer.LendableTo(x, 2, at, size, 8) {
		t.Error("it is lent to whom has not opened it, or not to whom has")
	}
}

// TestLentMessageAborted checks that an abort frees the stream of a rank that has lent a message to a rank that does
// not come.
func TestLentMessageAborted(t *testing.T) {
	const count = 300 << 10
	g := shimtest.UsePeers(t, 2, 1)
	w := shimtest.NewWorld(t, 2)
	at := g.Memory(0, count)
	c := w.Comms[0]
	registerAll(t, c, at, count)
	require.NoError(t, shim.Run([]calls.Call{{Comm: c, Kind: calls.Send, Type: datatype.Uint8, Count: count, Send: at,
		Peer: 1, Stream: g.Streams[0][0]}}))
	require.NoError(t, c.Abort())
	require.NoError(t, g.SynchronizeRank(0))
	sayNothing(g, c)
}

// allocOn is memory of ncclMemAlloc on a rank's device.
func allocOn(g *shimtest.GPUs, rank, size int) unsafe.Pointer {
	g.T.Helper()
	p := device.Active().(device.Peers)
	ctx, err := p.PrimaryContext(rank)
	if err == nil {
		err = p.EnterContext(ctx)
	}
	require.NoError(g.T, err)
	defer p.Leave()
	at, err := memory.AllocDeviceIn(ctx, size)
	require.NoError(g.T, err)
	return at
}

// awaitUnasked waits until a communicator has published memory of the library's and the others have opened it.
func awaitUnasked(t testing.TB, c *shim.Comm, at unsafe.Pointer) *peer.Region {
	t.Helper()
	var r *peer.Region
	await.Until(t, fmt.Sprintf("memory of rank %d's library is open", c.Rank), func() bool {
		r = peer.Library(peer.Of(c), at, 1)
		return r != nil && peer.IsOpen(peer.Of(c), r)
	})
	return r
}

// TestUnasked: memory of ncclMemAlloc is lent by communicators made before and after it was allocated, until it is
// freed; registering it changes nothing.
func TestUnasked(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	var at [2][2]unsafe.Pointer
	for r := range 2 {
		at[r][0] = allocOn(g, r, count)
	}
	w := shimtest.NewWorld(t, 2)
	for r, c := range w.Comms {
		at[r][1] = allocOn(g, r, count)
		for _, p := range at[r] {
			awaitUnasked(t, c, p)
		}
		h, err := shim.Register(c, at[r][1], count, false, 0)
		require.NoError(t, err)
		if n := len(regionsOf(c)); n != 2 {
			t.Errorf("%d regions", n)
		}
		if _, err := memory.FreeDevice(at[r][1]); err == nil {
			t.Error("registered memory was freed")
		}
		if _, err := shim.Registered(c, h, false, true); err != nil {
			t.Error(err)
		}
	}
	for k := range 2 {
		var lent atomic.Int64
		g.Before(func(o devicetest.Op) {
			lent.Add(int64(o.Bytes))
		})
		assert.NoError(t, sumOnPeers(g, w, []unsafe.Pointer{at[0][k], at[1][k]}, count))
		g.Before(nil)
		if n := lent.Load(); n != 0 {
			t.Errorf("%d bytes of memory that is lent are copied", n)
		}
	}
	for r, c := range w.Comms {
		held := awaitUnasked(t, c, at[r][0])
		for _, p := range at[r] {
			if known, err := memory.FreeDevice(p); !known || err != nil {
				t.Fatal(known, err)
			}
		}
		if known, _ := memory.FreeDevice(at[r][0]); known {
			t.Error("freed twice")
		}
		x := peer.Of(c)
		if regions, tried := len(regionsOf(c)), len(triedBy(c)); regions != 0 || tried != 0 {
			t.Errorf("rank %d: %d regions, %d tried", r, regions, tried)
		}
		await.Until(t, fmt.Sprintf("freed memory of rank %d is closed", r), func() bool { return peer.IsClosed(x, held) })
	}
}

// TestUnaskedRefused: memory that cannot be exported is exchanged by way of slots, and one that cannot be freed is
// still known.
func TestUnaskedRefused(t *testing.T) {
	const count = 300 << 10
	g := useLenders(t, 2)
	w := shimtest.NewWorld(t, 2)
	g.Fail("Export", 0)
	at := []unsafe.Pointer{allocOn(g, 0, count), allocOn(g, 1, count)}
	for r, c := range w.Comms {
		await.Until(t, "the rank tries", func() bool {
			stream.Of(c).Mu.Lock()
			defer stream.Of(c).Mu.Unlock()
			return triedBy(c)[uintptr(at[r])]
		})
	}
	g.Fail("", 0)
	assert.NoError(t, sumOnPeers(g, w, at, count))
	g.Fail("EnterContext", 0)
	if known, err := memory.FreeDevice(at[0]); !known || err == nil {
		t.Error(known, err)
	}
	g.Fail("", 0)
	for _, p := range at {
		if known, err := memory.FreeDevice(p); !known || err != nil {
			t.Error(known, err)
		}
	}
}

func pairBytes(w *shimtest.World) int64 { return peer.PairBytes(peer.Of(w.Comms[0])) }

func triedBy(c *shim.Comm) map[uintptr]bool { return peer.Tried(peer.Of(c)) }
