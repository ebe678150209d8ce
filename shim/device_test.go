package shim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/path/staged"
	"lightpath/shim/report"
	"lightpath/shim/stream"
)

// patient is how long tests of devices wait for what must come.
const patient = 60 * time.Second

// gpus are devices of a test, one for each rank of its worlds.
type gpus struct {
	*devicetest.Driver
	t       testing.TB
	streams [][]device.Stream // by rank
}

// useGPUs has communicators use devices that are goroutines.
func useGPUs(t testing.TB, n, streams int) *gpus {
	t.Helper()
	return useDriver(t, devicetest.New(stream.Places(), n), nil, n, streams)
}

// usePeers is useGPUs for devices that reach each other.
func usePeers(t testing.TB, n, streams int) *gpus {
	t.Helper()
	t.Setenv("LIGHTPATH_DEVICE_PATH", "direct")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	p := devicetest.NewPeers(stream.Places(), n)
	g := useDriver(t, p.Driver, p, n, streams)
	t.Cleanup(func() { // communicators that have been destroyed give back in the background
		if !settled(func() bool { return p.Registered() == 0 }) {
			t.Errorf("%d pages are registered", p.Registered())
		}
	})
	return g
}

// useDriver has communicators use a driver, or what is made of it.
func useDriver(t testing.TB, d *devicetest.Driver, as device.Driver, n, streams int) *gpus {
	t.Helper()
	if as == nil {
		as = d
	}
	g := &gpus{Driver: d, t: t}
	for dev := range n {
		var own []device.Stream
		for range streams {
			own = append(own, g.NewStreamOn(dev))
		}
		g.streams = append(g.streams, own)
	}
	device.Use(as)
	t.Cleanup(func() {
		device.Use(nil)
		if !settled(func() bool { return g.Inside() == 0 }) {
			t.Errorf("%d threads have entered a context and not left it", g.Inside())
		}
		g.Close()
	})
	return g
}

func (g *gpus) synchronize(rank int) error {
	for i, s := range g.streams[rank] {
		if !g.Synchronize(s, patient) {
			return fmt.Errorf("rank %d: stream %d does not end", rank, i)
		}
	}
	return nil
}

// memories are the kinds that a buffer may be moved to.
var memories = []device.Kind{device.Host, device.Pinned, device.Managed, device.Memory}

// moved is a copy of a call's buffer in memory of some kind.
type moved struct {
	at   unsafe.Pointer
	host []byte
}

// move returns memory of a kind with what the host has.
func (g *gpus) move(kind device.Kind, dev int, host []byte) moved {
	m := moved{host: host, at: unsafe.Pointer(unsafe.SliceData(host))}
	switch {
	case len(host) == 0 || kind == device.Host:
		return m
	case kind == device.Memory:
		m.at = g.Memory(dev, len(host))
	default: // pinned memory is memory that the CPU may use, as host memory
		m.at = g.Managed(dev, len(host))
	}
	copy(g.Bytes(m.at, len(host)), host)
	return m
}

// upload has calls of a rank work in other memory, of a kind for each buffer. back brings the results to where they were
// asked for.
func (g *gpus) upload(calls []calls.Call, dev int, kind func() device.Kind) (on []calls.Call, back func()) {
	var all []moved
	for _, c := range calls {
		_ = c.Resolve()
		send, recv := c.Extents()
		s, r := memory.Bytes(c.Send, send), memory.Bytes(c.Recv, recv)
		if inPlace, _ := c.Overlap(send, recv); inPlace {
			whole, at := s, uintptr(c.Send)
			if recv > send {
				whole, at = r, uintptr(c.Recv)
			}
			m := g.move(kind(), dev, whole)
			all = append(all, m)
			c.Send, c.Recv = unsafe.Add(m.at, uintptr(c.Send)-at), unsafe.Add(m.at, uintptr(c.Recv)-at)
		} else {
			ms, mr := g.move(kind(), dev, s), g.move(kind(), dev, r)
			all = append(all, ms, mr)
			if send > 0 {
				c.Send = ms.at
			}
			if recv > 0 {
				c.Recv = mr.at
			}
		}
		on = append(on, c)
	}
	return on, func() {
		for _, m := range all {
			if len(m.host) > 0 {
				copy(m.host, g.Bytes(m.at, len(m.host)))
			}
		}
	}
}

// randomDeed is what all ranks do together: collective or messages, larger and smaller than a piece.
func randomDeed(w *world, rng *rand.Rand, inPlace bool) (*deed, error) {
	if rng.IntN(4) == 0 {
		scale := []int{100, 40000}[rng.IntN(2)]
		return randomCounts(rng, len(w.comms), scale).prepare(w, rng.IntN(1000)), nil
	}
	k := collectiveCase{
		kind: oracleKinds[rng.IntN(len(oracleKinds))], typ: datatype.Type(rng.IntN(int(datatype.NumTypes))), op: datatype.Op(rng.IntN(int(datatype.NumOps))),
		root: rng.IntN(len(w.comms)), count: []int{0, 1, 777, 5000, 65537}[rng.IntN(5)], inPlace: inPlace && rng.IntN(3) == 0,
	}
	return k.prepare(w, rng)
}

// TestDeviceSequences: random sequences of groups, on random streams and in memory of all kinds, also without a stream on ranks
// whose buffers are host memory; stretches of them captured and replayed; against the oracle.
func TestDeviceSequences(t *testing.T) {
	for _, transport := range []string{"inproc", "tcp"} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", transport, seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				t.Setenv("LIGHTPATH_STAGING", "64K")
				n := 1 + int(seed)%4
				g := useGPUs(t, n, 3)
				w := newWorld(t, n)
				for range 3 {
					g.sequence(w, rng, 12)
				}
			})
		}
	}
}

// sequence makes some groups, and checks them when all have ended.
func (g *gpus) sequence(w *world, rng *rand.Rand, length int) {
	g.t.Helper()
	n := len(w.comms)
	captured := rng.IntN(2) == 0
	from, to := length/3, 2*length/3 // what a graph holds
	deeds, backs := make([]*deed, length), make([]func(), 0, length*n)
	calls := make([][][]calls.Call, n) // by rank and deed
	for i := range deeds {
		inGraph := captured && i >= from && i < to
		d, err := randomDeed(w, rng, !inGraph) // what is replayed must find its input
		if err != nil {
			g.t.Fatal(err)
		}
		deeds[i] = d
		for r := range n {
			kind := func() device.Kind { return memories[rng.IntN(len(memories))] }
			hostOnly := !inGraph && rng.IntN(6) == 0
			if hostOnly {
				kind = func() device.Kind { return device.Host }
			}
			on, back := g.upload(d.calls[r], r, kind)
			for k := range on {
				if !hostOnly {
					on[k].Stream = g.streams[r][rng.IntN(3)]
				}
				if inGraph {
					on[k].Stream = g.streams[r][0]
				}
			}
			calls[r], backs = append(calls[r], on), append(backs, back)
		}
	}
	w.must(func(c *Comm) error {
		r := c.Rank
		for i := range calls[r] {
			if captured && i == from {
				g.Capture(g.streams[r][0])
			}
			if err := Run(calls[r][i]); err != nil {
				return fmt.Errorf("%s: %w", deeds[i].name, err)
			}
			if captured && i+1 == to {
				graph := g.End(g.streams[r][0])
				if err := g.synchronize(r); err != nil { // the program keeps replays in order
					return err
				}
				for range 2 {
					g.Replay(graph, g.streams[r][0])
				}
				if err := g.synchronize(r); err != nil {
					return err
				}
				g.Discard(graph)
			}
		}
		return g.synchronize(r)
	})
	for _, back := range backs {
		back()
	}
	for _, d := range deeds {
		if err := d.check(); err != nil {
			g.t.Fatalf("%s: %v", d.name, err)
		}
	}
}

// leaveStreams waits until no launch is left of a communicator.
func leaveStreams(c *Comm) {
	for !stream.Of(c).Over() {
		runtime.Gosched()
	}
}

// TestLaunchAllocatesNothing: groups of shapes seen before, of one rank or several, in one step or pieces, with scalars.
func TestLaunchAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool forget")
	}
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := useGPUs(t, 2, 2)
	w := newWorld(t, 2)
	scalar := float32(1)
	scalars := []unsafe.Pointer{unsafe.Pointer(&scalar), g.move(device.Memory, 1, make([]byte, 4)).at}
	for _, c := range []struct {
		name  string
		count int
	}{{"one step", 1000}, {"pieces", 100000}} {
		t.Run(c.name, func(t *testing.T) {
			var group []calls.Call
			for r, comm := range w.comms {
				for i := range 2 {
					send, recv := g.Memory(r, 4*c.count), g.Memory(r, 8*c.count)
					group = append(group,
						calls.Call{Comm: comm, Kind: calls.AllReduce, Type: datatype.Float32, Count: uint64(c.count), Send: send, Recv: send, Stream: g.streams[r][i]},
						calls.Call{Comm: comm, Kind: calls.AllReduce, Type: datatype.Float32, Op: calls.OpPreMulSum, Scalar: scalars[r], Count: uint64(c.count), Send: send, Recv: recv, Stream: g.streams[r][0]},
						calls.Call{Comm: comm, Kind: calls.AllGather, Type: datatype.Float32, Count: uint64(c.count), Send: send, Recv: recv, Stream: g.streams[r][0]},
						calls.Call{Comm: comm, Kind: calls.Send, Peer: int32(1 - r), Type: datatype.Float32, Count: uint64(c.count), Send: send, Stream: g.streams[r][0]},
						calls.Call{Comm: comm, Kind: calls.Recv, Peer: int32(1 - r), Type: datatype.Float32, Count: uint64(c.count), Recv: recv, Stream: g.streams[r][0]})
				}
			}
			launch := func() {
				if err := Run(group); err != nil {
					t.Error(err)
				}
				for _, comm := range w.comms {
					leaveStreams(comm)
				}
			}
			for range 3 {
				launch()
			}
			if n := testing.AllocsPerRun(20, launch); n != 0 {
				t.Errorf("%v allocations per group", n)
			}
		})
	}
}

// TestStagingIsBounded: page-locked memory does not grow with calls.
func TestStagingIsBounded(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := useGPUs(t, 2, 1)
	w := newWorld(t, 2)
	const count = 1 << 20
	w.must(func(c *Comm) error {
		r := c.Rank
		send, recv := g.Memory(r, 2*count), g.Memory(r, 2*count)
		for _, kind := range []calls.Kind{calls.AllReduce, calls.AllGather, calls.ReduceScatter, calls.AllToAll, calls.Broadcast} {
			call := calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Count: count, Send: send, Recv: recv, Stream: g.streams[r][0]}
			if err := Run([]calls.Call{call}); err != nil {
				return err
			}
		}
		return g.synchronize(r)
	})
	bound := int64(2 * (4*64<<10 + memory.WordSize + os4K)) // for each rank two rooms of two pieces
	if _, most := g.Locked(); most > bound {
		t.Errorf("%d bytes were locked, want at most %d", most, bound)
	}
	if got, err := report.MemStats(w.comms[0], report.MemPersist); err != nil || got < 4*64<<10 {
		t.Errorf("MemStats: %d, %v", got, err)
	}
}

// os4K is a page, which a word takes.
const os4K = 4096

// TestStepsOverlap: while a step waits for another rank, what the next one sends is copied out, and what the one before received is
// copied in, in every launch but captured ones also where one stream would have the one wait for the other.
func TestStepsOverlap(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := useGPUs(t, 2, 1)
	w := newWorld(t, 2)
	const pieces = 6
	held, outs, ins := make(chan struct{}), make(chan int, 64), make(chan int, 64)
	seen := map[device.Stream]int{} // copies out of rank 1, by its only stream that copies out
	var out, in int
	g.Before(func(o devicetest.Op) {
		switch {
		case o.Stream == g.streams[1][0] && o.Kind == devicetest.CopyOut:
			if seen[o.Stream]++; seen[o.Stream] == 3 {
				<-held // rank 1 does not come to its third step
			}
		case o.Stream == g.streams[0][0] && o.Kind == devicetest.CopyOut:
			out++
			outs <- out
		case o.Kind == devicetest.CopyIn && o.Bytes > 0 && o.Stream == staged.Back(w.comms[0]):
			in++
			ins <- in
		}
	})
	for r, c := range w.comms {
		at := g.Memory(r, pieces<<16)
		call := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Uint8, Count: pieces << 16, Send: at, Recv: at, Stream: g.streams[r][0]}
		if err := Run([]calls.Call{call}); err != nil {
			t.Fatal(err)
		}
	}
	// Rank 0 is in its third step, which waits for rank 1's: the fourth has been copied out, the second in.
	await := func(c chan int, want int) {
		t.Helper()
		for deadline := time.After(patient); ; {
			select {
			case n := <-c:
				if n == want {
					return
				}
			case <-deadline:
				t.Fatalf("copy %d does not come", want)
			}
		}
	}
	await(outs, 4)
	await(ins, 2)
	select {
	case n := <-outs:
		t.Errorf("copy %d out, whose room is in use", n)
	case n := <-ins:
		t.Errorf("copy %d in, of a step that has not run", n)
	case <-time.After(20 * time.Millisecond):
	}
	close(held)
	for r := range 2 {
		if err := g.synchronize(r); err != nil {
			t.Fatal(err)
		}
	}
	g.Before(nil)
}

// TestAbortedLaunch: a stream that waits for a rank that does not come goes on, launches behind it too, and those that streams come
// to later.
func TestAbortedLaunch(t *testing.T) {
	t.Setenv("LIGHTPATH_STAGING", "64K")
	g := useGPUs(t, 2, 2)
	w := newWorld(t, 2)
	at := g.Memory(0, 1<<20)
	gate := make(chan struct{})
	g.Before(func(o devicetest.Op) {
		if o.Stream == g.streams[0][1] {
			<-gate
		}
	})
	for i := range 6 {
		s := g.streams[0][i/5] // the last one behind the gate
		call := calls.Call{Comm: w.comms[0], Kind: calls.AllReduce, Type: datatype.Uint8, Count: 1 << (10 + 2*uint(i%5)), Send: at, Recv: at, Stream: s}
		if err := Run([]calls.Call{call}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.comms[0].Abort(); err != nil {
		t.Fatal(err)
	}
	if !g.Synchronize(g.streams[0][0], patient) {
		t.Fatal("the stream hangs")
	}
	close(gate)
	if err := g.synchronize(0); err != nil {
		t.Fatal(err)
	}
	if err := w.comms[1].AsyncError(); err == nil {
		<-w.comms[1].FailedChan()
	}
}

// TestPiecesOfOtherCalls: calls and messages that differ fail at their first pieces, though those are alike.
func TestPiecesOfOtherCalls(t *testing.T) {
	for _, transport := range []string{"inproc", "tcp"} {
		for _, kind := range []calls.Kind{calls.AllReduce, calls.Send} {
			t.Run(fmt.Sprint(transport, " ", kind), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				t.Setenv("LIGHTPATH_STAGING", "64K")
				g := useGPUs(t, 2, 1)
				w := newWorld(t, 2)
				for r, c := range w.comms {
					at := g.Memory(r, 1<<20)
					call := calls.Call{Comm: c, Kind: kind, Type: datatype.Uint8, Peer: int32(1 - r), Count: uint64(2+r) << 16, Send: at, Recv: at, Stream: g.streams[r][0]}
					if kind == calls.Send && r == 1 {
						call.Kind = calls.Recv
					}
					if err := Run([]calls.Call{call}); err != nil {
						t.Fatal(err)
					}
				}
				<-w.comms[0].FailedChan()
				if err := w.comms[0].AsyncError(); err == nil || !strings.Contains(err.Error(), "different calls") {
					t.Error(err)
				}
				if err := errors.Join(g.synchronize(0), g.synchronize(1)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
