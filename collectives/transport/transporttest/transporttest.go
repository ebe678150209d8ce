package transporttest

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/assert"
	"lightpath/internal/require"
)

// Config describes an implementation to the suite.
type Config struct {
	// Open returns connected endpoints, one per rank. The suite closes them.
	Open func(t testing.TB, ranks, planes int) []transport.Endpoint
	// Epoch returns the epoch of the frames that src sends on a plane; nil means epoch 0 everywhere.
	Epoch func(plane, src int) uint32
	// PeerLoss is set if an endpoint notices that a peer has closed.
	PeerLoss bool
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	t.Run("Traffic", c.testTraffic)
	t.Run("TrafficWithFaults", c.testFaults)
	t.Run("Peek", c.testPeek)
	t.Run("BackpressureWakes", c.testBackpressure)
	t.Run("ArrivalWakes", c.testArrivalWakes)
	t.Run("Wake", c.testWake)
	t.Run("CloseWhileWaiting", c.testCloseWhileWaiting)
	t.Run("Closed", c.testClosed)
	t.Run("NoPeer", c.testNoPeer)
	t.Run("NoAllocation", c.testAllocation)
	if c.PeerLoss {
		t.Run("PeerLoss", c.testPeerLoss)
	}
}

// Close closes all closers and fails the test on an error.
func Close(t testing.TB, closers ...io.Closer) {
	t.Helper()
	for _, c := range closers {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func (c Config) open(t testing.TB, ranks, planes int) []transport.Endpoint {
	t.Helper()
	endpoints := c.Open(t, ranks, planes)
	if len(endpoints) != ranks {
		t.Fatalf("%d endpoints, want %d", len(endpoints), ranks)
	}
	t.Cleanup(func() {
		for _, e := range endpoints {
			Close(t, e, e)
		}
	})
	return endpoints
}

func (c Config) epoch(plane, src int) uint32 {
	if c.Epoch == nil {
		return 0
	}
	return c.Epoch(plane, src)
}

// header returns the header of a frame of a test flow.
func (c Config) header(plane, src, dst int, offset uint64) wire.Header {
	return wire.Header{
		Comm: 0xc0, Op: 1, Offset: offset, Signature: 7, Epoch: c.epoch(plane, src),
		Src: uint16(src), Dst: uint16(dst), Plane: uint16(plane),
	}
}

// poll calls f until it returns true, and waits on e between attempts. It fails the test if f returns an error or
// does not return true within a minute.
func poll(t testing.TB, e transport.Endpoint, f func() (bool, error)) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; {
		armed := e.Arm()
		done, err := f()
		require.NoError(t, err)
		if done {
			return
		}
		e.Wait(armed, 10*time.Millisecond)
	}
	t.Fatal("no progress for a minute")
}

// send sends all of payload.
func (c Config) send(t testing.TB, e transport.Endpoint, plane, src, dst int, payload []byte) {
	t.Helper()
	sent := 0
	poll(t, e, func() (bool, error) {
		h := c.header(plane, src, dst, uint64(sent))
		n, err := e.Planes()[plane].TrySend(&h, payload[sent:])
		sent += n
		return sent == len(payload), err
	})
}

// receive reads len(into) bytes of the flow from src.
func receive(t testing.TB, e transport.Endpoint, plane, src int, into []byte) {
	t.Helper()
	got := 0
	poll(t, e, func() (bool, error) {
		h, data, err := e.Planes()[plane].Peek(src)
		if err != nil || h == nil {
			return false, err
		}
		got += copy(into[got:], data)
		e.Planes()[plane].Release(src)
		return got == len(into), nil
	})
}

func (c Config) testPeek(t *testing.T) {
	e := c.open(t, 2, 1)
	first, second := []byte("the first"), []byte("second")
	c.send(t, e[0], 0, 0, 1, first)
	p := e[1].Planes()[0]
	var h *wire.Header
	var view []byte
	poll(t, e[1], func() (bool, error) {
		var err error
		h, view, err = p.Peek(0)
		return h != nil, err
	})
	kept := *h
	c.send(t, e[0], 0, 0, 1, second)
	for range 3 {
		again, data, err := p.Peek(0)
		if err != nil || again != h || &data[0] != &view[0] || *h != kept || string(view) != string(first) {
			t.Fatalf("Peek returned another frame before Release: %v %q %v", h, view, err)
		}
	}
	p.Release(0)
	p.Release(0) // a second Release has no effect
	got := make([]byte, len(second))
	receive(t, e[1], 0, 0, got)
	if string(got) != string(second) {
		t.Errorf("second frame is %q", got)
	}
	if n, err := e[0].Planes()[0].TrySend(&kept, nil); n != 0 || err != nil {
		t.Errorf("empty payload: %d, %v", n, err)
	}
}

// testBackpressure fills the path to a rank that does not read, then sends more. The sender sleeps whenever there is
// no room, so it hangs if a wake-up is lost.
func (c Config) testBackpressure(t *testing.T) {
	const capacity, more = 64 << 20, 1 << 20 // no transport buffers more than capacity bytes
	e := c.open(t, 2, 1)
	chunk := make([]byte, 128<<10)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	total := make(chan int, 1) // sent when the path is full for the first time
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(total)
		p, end := e[0].Planes()[0], capacity
		for sent := 0; sent < end; {
			at := sent % len(chunk)
			h := c.header(0, 0, 1, uint64(sent))
			n, err := p.TrySend(&h, chunk[at:])
			if err == nil && n == 0 {
				if end == capacity {
					end = (sent + more + len(chunk) - 1) / len(chunk) * len(chunk)
					total <- end
				}
				armed := e[0].Arm()
				if n, err = p.TrySend(&h, chunk[at:]); n == 0 && err == nil {
					e[0].Wait(armed, time.Hour)
				}
			}
			if err != nil {
				t.Errorf("after %d bytes: %v", sent, err)
				return
			}
			sent += n
		}
	})
	end, ok := <-total
	if !ok {
		t.Fatalf("the sender was never blocked in %d bytes", capacity)
	}
	got := make([]byte, len(chunk))
	for at := 0; at < end; at += len(chunk) {
		receive(t, e[1], 0, 0, got)
		if string(got) != string(chunk) {
			t.Errorf("wrong bytes between %d and %d", at, at+len(chunk))
			break
		}
	}
	wg.Wait()
	poll(t, e[0], e[0].Planes()[0].Drained)
}

// testArrivalWakes lets the receiver sleep before each of many messages, so it hangs if a wake-up is lost.
func (c Config) testArrivalWakes(t *testing.T) {
	e := c.open(t, 2, 2)
	const rounds = 300
	var wg sync.WaitGroup
	for rank := range e {
		wg.Go(func() {
			peer := 1 - rank
			var word [8]byte
			for i := range rounds {
				p := e[rank].Planes()[i%2]
				if i%2 == rank {
					c.send(t, e[rank], i%2, rank, peer, word[:])
					continue
				}
				for {
					armed := e[rank].Arm()
					h, _, err := p.Peek(peer)
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
						return
					}
					if h != nil {
						p.Release(peer)
						break
					}
					e[rank].Wait(armed, time.Hour)
				}
			}
		})
	}
	wg.Wait()
}

func (c Config) testWake(t *testing.T) {
	e := c.open(t, 2, 1)
	armed := e[0].Arm()
	e[0].Wake()
	e[0].Wait(armed, time.Hour) // returns at once, because Wake came first
	for range 100 {
		armed = e[0].Arm()
		done := make(chan struct{})
		go func() { e[0].Wait(armed, time.Hour); close(done) }()
		e[0].Wake()
		<-done
	}
	e[0].Wait(e[0].Arm(), time.Millisecond) // without Wake it returns after its limit
}

func (c Config) testCloseWhileWaiting(t *testing.T) {
	for range 20 {
		e := c.open(t, 2, 1)
		armed := e[0].Arm()
		started, done := make(chan struct{}), make(chan struct{})
		go func() { close(started); e[0].Wait(armed, time.Hour); close(done) }()
		<-started
		require.NoError(t, e[0].Close())
		<-done
		e[0].Wake()
	}
}

func (c Config) testClosed(t *testing.T) {
	e := c.open(t, 2, 1)
	require.NoError(t, e[0].Close())
	p := e[0].Planes()[0]
	h := c.header(0, 0, 1, 0)
	if n, err := p.TrySend(&h, []byte("x")); n != 0 || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("TrySend: %d, %v", n, err)
	}
	if h, _, err := p.Peek(1); h != nil || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Peek: %v, %v", h, err)
	}
	if ok, err := p.Drained(); ok || !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Drained: %v, %v", ok, err)
	}
	e[0].Wait(e[0].Arm(), time.Hour) // must return at once
}

func (c Config) testNoPeer(t *testing.T) {
	e := c.open(t, 2, 1)
	p := e[0].Planes()[0]
	for _, dst := range []int{0, 2, 65535} {
		h := c.header(0, 0, dst, 0)
		if n, err := p.TrySend(&h, []byte("x")); n != 0 || err == nil {
			t.Errorf("TrySend to %d of 2 ranks, from rank 0: %d, %v", dst, n, err)
		}
	}
	for _, src := range []int{-1, 0, 2} {
		if h, _, err := p.Peek(src); h != nil || err == nil {
			t.Errorf("Peek(%d): %v, %v", src, h, err)
		}
	}
}

// testPeerLoss checks that the frames of a peer arrive after it has closed, then calls return ErrPeerLost, and flows
// of other peers continue.
func (c Config) testPeerLoss(t *testing.T) {
	e := c.open(t, 3, 1)
	last := []byte("last words")
	c.send(t, e[1], 0, 1, 0, last)
	require.NoError(t, e[1].Close())
	got := make([]byte, len(last))
	receive(t, e[0], 0, 1, got)
	if string(got) != string(last) {
		t.Errorf("got %q", got)
	}
	p := e[0].Planes()[0]
	lost := func(f func() error) {
		t.Helper()
		poll(t, e[0], func() (bool, error) {
			err := f()
			if err != nil && !errors.Is(err, transport.ErrPeerLost) {
				return false, err
			}
			return err != nil, nil
		})
	}
	lost(func() error { _, _, err := p.Peek(1); return err })
	h := c.header(0, 0, 1, 0)
	lost(func() error { _, err := p.TrySend(&h, []byte("x")); return err })

	c.send(t, e[2], 0, 2, 0, last)
	receive(t, e[0], 0, 2, got)
	if string(got) != string(last) {
		t.Errorf("from rank 2, which has not closed: %q", got)
	}
}

// testAllocation sends small and large messages back and forth in one goroutine.
func (c Config) testAllocation(t *testing.T) {
	for _, size := range []int{8, 200 << 10} {
		e := c.open(t, 2, 1)
		payload, place := make([]byte, size), make([]byte, size)
		rounds := 0
		take := func(p transport.Plane, src int) (int, error) {
			if l, ok := p.(transport.Lander); ok && rounds%2 == 0 {
				f, err := l.Head(src)
				if f == nil {
					return 0, err
				}
				return l.Land(src, place)
			}
			f, data, err := p.Peek(src)
			if f == nil {
				return 0, err
			}
			n := len(data)
			p.Release(src)
			return n, nil
		}
		h := new(wire.Header) // allocated once, because an argument of an interface's method escapes
		echo := func(src, dst int) {
			for sent, got := 0, 0; got < size; {
				*h = c.header(0, src, dst, uint64(sent))
				n, err := e[src].Planes()[0].TrySend(h, payload[sent:])
				sent += n
				took, err2 := take(e[dst].Planes()[0], src)
				if err != nil || err2 != nil {
					panic(errors.Join(err, err2))
				}
				if got += took; took == 0 && n == 0 {
					runtime.Gosched() // AllocsPerRun sets GOMAXPROCS to 1, and the switch may need to run
				}
				if _, err := e[src].Planes()[0].Drained(); err != nil {
					panic(err)
				}
			}
		}
		if n := assert.Allocates(10, func() {
			echo(0, 1)
			echo(1, 0)
			rounds++
			e[0].Wait(e[0].Arm(), time.Microsecond)
			e[0].Wake()
		}); n != 0 {
			t.Errorf("%v allocations per round trip of %d bytes", n, size)
		}
	}
}
