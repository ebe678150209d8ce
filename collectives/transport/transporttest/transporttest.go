// Package transporttest is the conformance suite of the transports: what the executor
// relies on, checked the same way for every implementation of [transport.Endpoint].
//
// Layer: inside collectives/transport, for tests only. [WithFaults] serves tests of the
// executor too.
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
)

// Config describes an implementation to the suite.
type Config struct {
	// Open returns the endpoints of ranks ranks on planes planes, ready to use. The suite
	// closes them.
	Open func(t testing.TB, ranks, planes int) []transport.Endpoint
	// Epoch is that of the frames that src emits on a plane; nil is epoch 0 everywhere.
	Epoch func(plane, src int) uint32
	// PeerLoss says that an endpoint notices when a peer closes.
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

// Close closes what a test has opened; failing to is an error of the test.
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

// poll calls f until it is done, sleeping on e between attempts. It fails the test where
// f does, or does not get done in a minute.
func poll(t testing.TB, e transport.Endpoint, f func() (bool, error)) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; {
		armed := e.Arm()
		done, err := f()
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
		e.Wait(armed, 10*time.Millisecond)
	}
	t.Fatal("nothing happens any more")
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
			t.Fatalf("the view moved before Release: %v %q %v", h, view, err)
		}
	}
	p.Release(0)
	p.Release(0) // without a Peek: nothing to release
	got := make([]byte, len(second))
	receive(t, e[1], 0, 0, got)
	if string(got) != string(second) {
		t.Errorf("second frame is %q", got)
	}
	if n, err := e[0].Planes()[0].TrySend(&kept, nil); n != 0 || err != nil {
		t.Errorf("empty payload: %d, %v", n, err)
	}
}

// testBackpressure fills the path to a rank that does not read, sleeps without bound until
// there is room, and checks that everything arrives.
func (c Config) testBackpressure(t *testing.T) {
	e := c.open(t, 2, 1)
	chunk := make([]byte, 256<<10)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	const total = 24 << 20
	full := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		p := e[0].Planes()[0]
		once := sync.OnceFunc(func() { close(full) })
		defer once()
		for sent := 0; sent < total; {
			at := sent % len(chunk)
			h := c.header(0, 0, 1, uint64(sent))
			n, err := p.TrySend(&h, chunk[at:])
			if err == nil && n == 0 {
				once()
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
	<-full
	got := make([]byte, len(chunk))
	for range total / len(chunk) {
		receive(t, e[1], 0, 0, got)
		if string(got) != string(chunk) {
			t.Error("bytes differ")
			break
		}
	}
	wg.Wait()
	poll(t, e[0], e[0].Planes()[0].Drained)
}

// testArrivalWakes sleeps without bound for each of many messages.
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
	e[0].Wait(armed, time.Hour) // woken before it slept
	for range 100 {
		armed = e[0].Arm()
		done := make(chan struct{})
		go func() { e[0].Wait(armed, time.Hour); close(done) }()
		e[0].Wake()
		<-done
	}
	e[0].Wait(e[0].Arm(), time.Millisecond) // nobody wakes it: ends by itself
}

func (c Config) testCloseWhileWaiting(t *testing.T) {
	for range 20 {
		e := c.open(t, 2, 1)
		armed := e[0].Arm()
		started, done := make(chan struct{}), make(chan struct{})
		go func() { close(started); e[0].Wait(armed, time.Hour); close(done) }()
		<-started
		if err := e[0].Close(); err != nil {
			t.Fatal(err)
		}
		<-done
		e[0].Wake()
	}
}

func (c Config) testClosed(t *testing.T) {
	e := c.open(t, 2, 1)
	if err := e[0].Close(); err != nil {
		t.Fatal(err)
	}
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
	e[0].Wait(e[0].Arm(), time.Hour) // must not sleep
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

// testPeerLoss: what a peer sent before it closed arrives, then its loss shows, and
// nobody else is disturbed.
func (c Config) testPeerLoss(t *testing.T) {
	e := c.open(t, 3, 1)
	last := []byte("last words")
	c.send(t, e[1], 0, 1, 0, last)
	if err := e[1].Close(); err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("from the rank that lives: %q", got)
	}
}

// testAllocation passes small and large messages back and forth in one goroutine.
func (c Config) testAllocation(t *testing.T) {
	for _, size := range []int{8, 200 << 10} {
		e := c.open(t, 2, 1)
		payload, place := make([]byte, size), make([]byte, size)
		landed := 0
		take := func(p transport.Plane, src int) (int, error) {
			if l, ok := p.(transport.Lander); ok && landed%2 == 0 { // every other message
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
		h := new(wire.Header) // outside: what passes an interface is on the heap
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
					runtime.Gosched() // there is one processor now, and a switch may need it
				}
				if _, err := e[src].Planes()[0].Drained(); err != nil {
					panic(err)
				}
			}
		}
		if n := testing.AllocsPerRun(50, func() {
			echo(0, 1)
			echo(1, 0)
			landed++
			e[0].Wait(e[0].Arm(), time.Microsecond)
			e[0].Wake()
		}); n != 0 {
			t.Errorf("%d bytes back and forth: %v allocations", size, n)
		}
	}
}
