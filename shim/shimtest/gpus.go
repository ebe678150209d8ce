package shimtest

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
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/stream"
)

// patient is how long tests of devices wait for what must come.
const Patient = 60 * time.Second

// gpus are devices of a test, one for each rank of its worlds.
type GPUs struct {
	*devicetest.Driver
	T       testing.TB
	Streams [][]device.Stream // by rank
}

// useGPUs has communicators use devices that are goroutines.
func UseGPUs(t testing.TB, n, streams int) *GPUs {
	t.Helper()
	return UseDriver(t, devicetest.New(stream.Places(), n), nil, n, streams)
}

// usePeers is useGPUs for devices that reach each other.
func UsePeers(t testing.TB, n, streams int) *GPUs {
	t.Helper()
	t.Setenv("LIGHTPATH_DEVICE_PATH", "direct")
	t.Setenv("LIGHTPATH_DEVICE_EXCHANGE", "1M")
	p := devicetest.NewPeers(stream.Places(), n)
	g := UseDriver(t, p.Driver, p, n, streams)
	t.Cleanup(func() { // communicators that have been destroyed give back in the background
		if !Eventually(func() bool { return p.Registered() == 0 }) {
			t.Errorf("%d pages are registered", p.Registered())
		}
	})
	return g
}

// useDriver has communicators use a driver, or what is made of it.
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

func (g *GPUs) SynchronizeRank(rank int) error {
	for i, s := range g.Streams[rank] {
		if !g.Synchronize(s, Patient) {
			return fmt.Errorf("rank %d: stream %d does not end", rank, i)
		}
	}
	return nil
}

// memories are the kinds that a buffer may be moved to.
var memories = []device.Kind{device.Host, device.Pinned, device.Managed, device.Memory}

// moved is a copy of a call's buffer in memory of some kind.
type Moved struct {
	At   unsafe.Pointer
	host []byte
}

// move returns memory of a kind with what the host has.
func (g *GPUs) Move(kind device.Kind, dev int, host []byte) Moved {
	m := Moved{host: host, At: unsafe.Pointer(unsafe.SliceData(host))}
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

// upload has calls of a rank work in other memory, of a kind for each buffer. back brings the results to where they were
// asked for.
func (g *GPUs) Upload(calls []calls.Call, dev int, kind func() device.Kind) (on []calls.Call, back func()) {
	var all []Moved
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

// randomDeed is what all ranks do together: collective or messages, larger and smaller than a piece.
func randomDeed(w *World, rng *rand.Rand, inPlace bool) (*Operation, error) {
	if rng.IntN(4) == 0 {
		scale := []int{100, 40000}[rng.IntN(2)]
		return RandomMessages(rng, len(w.Comms), scale).Prepare(w, rng.IntN(1000)), nil
	}
	k := Collective{
		Kind: OracleKinds[rng.IntN(len(OracleKinds))], Typ: datatype.Type(rng.IntN(int(datatype.NumTypes))), Op: datatype.Op(rng.IntN(int(datatype.NumOps))),
		Root: rng.IntN(len(w.Comms)), Count: []int{0, 1, 777, 5000, 65537}[rng.IntN(5)], InPlace: inPlace && rng.IntN(3) == 0,
	}
	return k.Prepare(w, rng)
}

// sequence makes some groups, and checks them when all have ended.
func (g *GPUs) Sequence(w *World, rng *rand.Rand, length int) {
	g.T.Helper()
	n := len(w.Comms)
	captured := rng.IntN(2) == 0
	from, to := length/3, 2*length/3 // what a graph holds
	deeds, backs := make([]*Operation, length), make([]func(), 0, length*n)
	calls := make([][][]calls.Call, n) // by rank and deed
	for i := range deeds {
		inGraph := captured && i >= from && i < to
		d, err := randomDeed(w, rng, !inGraph) // what is replayed must find its input
		if err != nil {
			g.T.Fatal(err)
		}
		deeds[i] = d
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
			calls[r], backs = append(calls[r], on), append(backs, back)
		}
	}
	w.Must(func(c *shim.Comm) error {
		r := c.Rank
		for i := range calls[r] {
			if captured && i == from {
				g.Capture(g.Streams[r][0])
			}
			if err := shim.Run(calls[r][i]); err != nil {
				return fmt.Errorf("%s: %w", deeds[i].Name, err)
			}
			if captured && i+1 == to {
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
	})
	for _, back := range backs {
		back()
	}
	for _, d := range deeds {
		if err := d.Check(); err != nil {
			g.T.Fatalf("%s: %v", d.Name, err)
		}
	}
}

// leaveStreams waits until no launch is left of a communicator.
func LeaveStreams(c *shim.Comm) {
	for !stream.Of(c).Over() {
		runtime.Gosched()
	}
}

// os4K is a page, which a word takes.
const Os4K = 4096

// destroyAll ends a world, and waits until nothing of it is left.
func DestroyAll(w *World) {
	for _, c := range w.Comms {
		_ = c.Destroy()
	}
	for _, c := range w.Comms {
		<-c.Released()
	}
}

// eachRefusal has the driver refuse the methods' first calls, then their second, and so on, at most so many, until none fails.
func EachRefusal(t *testing.T, use func(t testing.TB, n, streams int) *GPUs, most int,
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

// refuses runs a group so many times, of which so many calls of a method succeed, and reports whether one has failed. The streams of
// both ranks must end.
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

func (g *GPUs) SynchronizeBoth() error { return errors.Join(g.SynchronizeRank(0), g.SynchronizeRank(1)) }
