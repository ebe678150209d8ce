package shimtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/stream"
)

// DeviceTimeout bounds the waits of tests for streams.
const DeviceTimeout = 60 * time.Second

// GPUs are software devices, one for each rank of a world, with streams.
type GPUs struct {
	*devicetest.Driver
	T       testing.TB
	Streams [][]device.Stream // by rank
}

// UseGPUs gives communicators software devices: n of them, each with some streams.
func UseGPUs(t testing.TB, n, streams int) *GPUs {
	t.Helper()
	return UseDriver(t, devicetest.New(stream.Places(), n), nil, n, streams)
}

// UsePeers is [UseGPUs] for devices that read each other's memory.
func UsePeers(t testing.TB, n, streams int) *GPUs {
	t.Helper()
	t.Setenv("LIGHTPATH_DEVICE_PATH", "direct")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	p := devicetest.NewPeers(stream.Places(), n)
	g := UseDriver(t, p.Driver, p, n, streams)
	t.Cleanup(func() { // communicators that have been destroyed give back in the background
		if !Eventually(func() bool { return freeLeft(p, n) && p.Registered() == 0 }) {
			t.Errorf("%d pages are registered", p.Registered())
		}
	})
	return g
}

// freeLeft frees what communicators have left for the next one on each of n devices. It reports whether it could.
func freeLeft(p device.Peers, n int) bool {
	for dev := range n {
		ctx, err := p.PrimaryContext(dev)
		if err != nil || p.EnterContext(ctx) != nil {
			return false
		}
		stream.PoolOf(ctx, dev).Free()
		p.Leave()
	}
	return true
}

// UseDriver gives communicators the devices of d. as is the driver that they see: d, if nil, or a driver made of d.
func UseDriver(t testing.TB, d *devicetest.Driver, as device.Driver, n, streams int) *GPUs {
	t.Helper()
	if as == nil {
		as = d
	}
	g := &GPUs{Driver: d, T: t}
	for dev := range n {
		var own []device.Stream
		for range streams {
			own = append(own, g.NewStreamOn(dev))
		}
		g.Streams = append(g.Streams, own)
	}
	device.Use(as)
	t.Cleanup(func() {
		device.Use(nil)
		if !Eventually(func() bool { return g.Inside() == 0 }) {
			t.Errorf("%d threads have entered a context and not left it", g.Inside())
		}
		g.Close()
	})
	return g
}

// SynchronizeRank waits for all streams of a rank.
func (g *GPUs) SynchronizeRank(rank int) error {
	for i, s := range g.Streams[rank] {
		if !g.Synchronize(s, DeviceTimeout) {
			return fmt.Errorf("rank %d: stream %d does not end", rank, i)
		}
	}
	return nil
}

// memories are the kinds of memory that a buffer may be in.
var memories = []device.Kind{device.Host, device.Pinned, device.Managed, device.Memory}

// DeviceBuffer is a copy of a host buffer in memory of some kind.
type DeviceBuffer struct {
	At   unsafe.Pointer
	host []byte
}

// Move copies a host buffer into memory of a kind.
func (g *GPUs) Move(kind device.Kind, dev int, host []byte) DeviceBuffer {
	m := DeviceBuffer{host: host, At: unsafe.Pointer(unsafe.SliceData(host))}
	switch {
	case len(host) == 0 || kind == device.Host:
		return m
	case kind == device.Memory:
		m.At = g.Memory(dev, len(host))
	default: // pinned memory is memory that the CPU may use, as host memory
		m.At = g.Managed(dev, len(host))
	}
	copy(g.Bytes(m.At, len(host)), host)
	return m
}

// Upload moves the buffers of calls into memory whose kind the caller draws for each. back copies the results to the
// buffers of calls.
func (g *GPUs) Upload(calls []calls.Call, dev int, kind func() device.Kind) (on []calls.Call, back func()) {
	var all []DeviceBuffer
	for _, c := range calls {
		_ = c.Resolve()
		send, recv := c.Extents()
		s, r := memory.Bytes(c.Send, send), memory.Bytes(c.Recv, recv)
		if inPlace, _ := c.Overlap(send, recv); inPlace {
			whole, at := s, uintptr(c.Send)
			if recv > send {
				whole, at = r, uintptr(c.Recv)
			}
			m := g.Move(kind(), dev, whole)
			all = append(all, m)
			c.Send, c.Recv = unsafe.Add(m.At, uintptr(c.Send)-at), unsafe.Add(m.At, uintptr(c.Recv)-at)
		} else {
			ms, mr := g.Move(kind(), dev, s), g.Move(kind(), dev, r)
			all = append(all, ms, mr)
			if send > 0 {
				c.Send = ms.At
			}
			if recv > 0 {
				c.Recv = mr.At
			}
		}
		on = append(on, c)
	}
	return on, func() {
		for _, m := range all {
			if len(m.host) > 0 {
				copy(m.host, g.Bytes(m.At, len(m.host)))
			}
		}
	}
}

// randomOperation draws a collective or messages, smaller and larger than a piece.
func randomOperation(w *World, rng *rand.Rand, inPlace bool) (*Operation, error) {
	if rng.IntN(4) == 0 {
		scale := []int{100, 40000}[rng.IntN(2)]
		return RandomMessages(rng, len(w.Comms), scale).Prepare(w, rng.IntN(1000)), nil
	}
	k := Collective{
		Kind: OracleKinds[rng.IntN(len(OracleKinds))], Type: datatype.Type(rng.IntN(int(datatype.NumTypes))),
		Op:   datatype.Op(rng.IntN(int(datatype.NumOps))),
		Root: rng.IntN(len(w.Comms)), Count: []int{0, 1, 777, 5000, 65537}[rng.IntN(5)], InPlace: inPlace && rng.IntN(3) == 0,
	}
	return k.Prepare(w, rng)
}

// Repeats returns how often a test repeats what it draws at random: n times, once in a short run.
func Repeats(n int) int {
	if testing.Short() {
		return 1
	}
	return n
}

// Sequence runs random groups on random streams, some of them captured, and checks their results.
func (g *GPUs) Sequence(w *World, rng *rand.Rand, length int) {
	g.T.Helper()
	n := len(w.Comms)
	s := sequence{calls: make([][][]calls.Call, n), captured: rng.IntN(2) == 0, from: length / 3, to: 2 * length / 3}
	s.deeds = make([]*Operation, length)
	backs := make([]func(), 0, length*n)
	for i := range s.deeds {
		inGraph := s.captured && i >= s.from && i < s.to
		d, err := randomOperation(w, rng, !inGraph) // a replay must find its input
		if err != nil {
			g.T.Fatal(err)
		}
		s.deeds[i] = d
		for r := range n {
			kind := func() device.Kind { return memories[rng.IntN(len(memories))] }
			hostOnly := !inGraph && rng.IntN(6) == 0
			if hostOnly {
				kind = func() device.Kind { return device.Host }
			}
			on, back := g.Upload(d.Calls[r], r, kind)
			for k := range on {
				if !hostOnly {
					on[k].Stream = g.Streams[r][rng.IntN(3)]
				}
				if inGraph {
					on[k].Stream = g.Streams[r][0]
				}
			}
			s.calls[r], backs = append(s.calls[r], on), append(backs, back)
		}
	}
	w.Must(func(c *shim.Comm) error { return g.play(&s, c.Rank) })
	for _, back := range backs {
		back()
	}
	for _, d := range s.deeds {
		if err := d.Check(); err != nil {
			g.T.Fatalf("%s: %v", d.Name, err)
		}
	}
}

// sequence is what all ranks call. The deeds from from to to are a graph if captured is set.
type sequence struct {
	deeds    []*Operation
	calls    [][][]calls.Call // by rank and deed
	captured bool
	from, to int
}

// play makes the calls of rank r. It replays the graph twice.
func (g *GPUs) play(s *sequence, r int) error {
	for i := range s.calls[r] {
		if s.captured && i == s.from {
			g.Capture(g.Streams[r][0])
		}
		if err := shim.Run(s.calls[r][i]); err != nil {
			return fmt.Errorf("%s: %w", s.deeds[i].Name, err)
		}
		if s.captured && i+1 == s.to {
			graph := g.End(g.Streams[r][0])
			if err := g.SynchronizeRank(r); err != nil { // the program keeps replays in order
				return err
			}
			for range 2 {
				g.Replay(graph, g.Streams[r][0])
			}
			if err := g.SynchronizeRank(r); err != nil {
				return err
			}
			g.Discard(graph)
		}
	}
	return g.SynchronizeRank(r)
}

// EveryKind returns a group with a call of each kind for each of two ranks, and an AllReduce by a custom operator.
func (g *GPUs) EveryKind(w *World, count int) (group []calls.Call) {
	scalar := g.Move(device.Memory, 0, []byte{0, 0, 128, 63}).At
	for r, c := range w.Comms {
		send, recv, s := g.Memory(r, 8*count), g.Memory(r, 8*count), g.Streams[r]
		base := calls.Call{Comm: c, Type: datatype.Float32, Count: uint64(count), Send: send, Recv: recv, Stream: s[0]}
		for kind := range calls.NumKinds {
			call := base
			if call.Kind = kind; kind.P2P() {
				call.Peer, call.Stream = int32(1-r), s[1]
			}
			group = append(group, call)
		}
		base.Kind, base.Op, base.Scalar = calls.AllReduce, calls.OpPreMulSum, scalar
		group = append(group, base)
	}
	return group
}

// AllocatesNothing checks that launches of a group whose shapes are known allocate nothing.
func (w *World) AllocatesNothing(t testing.TB, group []calls.Call) {
	t.Helper()
	if RaceEnabled {
		t.Skip("the race detector makes sync.Pool forget")
	}
	launch := func() {
		if err := shim.Run(group); err != nil {
			t.Error(err)
		}
		for _, c := range w.Comms {
			stream.Drain(c)
		}
	}
	for range 4 {
		launch()
	}
	if n := assert.Allocates(20, launch); n != 0 { // watchers allocate now and then
		t.Errorf("%v allocations per group", n)
	}
}

// PageSize is the size of a page, in bytes, which a word takes.
const PageSize = 4096

// DestroyAll destroys a world and waits until streams hold nothing of it.
func DestroyAll(w *World) {
	for _, c := range w.Comms {
		_ = c.Destroy()
	}
	for _, c := range w.Comms {
		<-c.Released()
	}
}

// RefuseEach makes the driver refuse the first call of each method, then the second, and so on, at most so many, until
// no call fails.
func RefuseEach(t *testing.T, use func(t testing.TB, n, streams int) *GPUs, most int,
	refuses func(g *GPUs, w *World, method string, after int) (failed bool), methods ...string,
) {
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			for after, failed := 0, true; failed && after < most; after++ {
				t.Run(fmt.Sprint(after), func(t *testing.T) {
					g := use(t, 2, 2)
					w := NewWorld(t, 2)
					failed = refuses(g, w, method, after)
					for _, c := range w.Comms {
						_ = c.Abort()
					}
				})
				if after == 0 && !failed {
					t.Error("it is never called")
				}
			}
		})
	}
}

// Refuses runs a group several times while the driver refuses a method after some calls. It reports whether a call
// failed. The streams of both ranks must end.
func (g *GPUs) Refuses(calls []calls.Call, times int, method string, after int) (failed bool) {
	g.Fail(method, after)
	var err error
	for i := 0; i < times && err == nil; i++ {
		err = shim.Run(calls)
	}
	g.Fail("", 0)
	if late := g.SynchronizeBoth(); late != nil {
		g.T.Fatalf("after %d: %v", after, late)
	}
	if err != nil && (!errors.Is(err, device.ErrDriver) || !strings.Contains(err.Error(), method)) {
		g.T.Errorf("after %d: %v", after, err)
	}
	return err != nil
}

// SynchronizeBoth waits for all streams of ranks 0 and 1.
func (g *GPUs) SynchronizeBoth() error {
	return errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1))
}
