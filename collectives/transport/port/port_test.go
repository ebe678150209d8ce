package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/internal/shmring"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/emulator"
	"lightpath/plans/circuit"
)

// loop is a simple switch: it moves frames along fixed circuits without delay.
type loop struct {
	maps  []circuit.Permutation
	ports [][]emulator.PortMemory // [rank][plane], the ranks' views
	tx    [][]*shmring.Ring       // the switch's views
	rx    [][]*shmring.Ring
	bell  *shmring.Doorbell
	rng   *rand.Rand // if set, step serves the ports in random order
}

func memory(t testing.TB, n int) []byte {
	t.Helper()
	b := make([]byte, n+64)
	return b[-uintptr(unsafe.Pointer(&b[0]))%64:]
}

func newLoop(t testing.TB, maps []circuit.Permutation, slots, mtu int) *loop {
	t.Helper()
	bell := func() *shmring.Doorbell {
		d, err := shmring.NewDoorbell(memory(t, shmring.DoorbellSize))
		require.NoError(t, err)
		return d
	}
	l := &loop{maps: maps, bell: bell()}
	for range maps[0] {
		own := bell()
		var ports []emulator.PortMemory
		var tx, rx []*shmring.Ring
		for range maps {
			var views [4]*shmring.Ring
			for i := range 2 {
				mem := memory(t, shmring.Size(slots, mtu))
				for j := range 2 {
					r, err := shmring.New(mem, slots, mtu)
					require.NoError(t, err)
					views[2*i+j] = r
				}
			}
			ports = append(ports, emulator.PortMemory{TX: views[0], RX: views[2], Bell: own, Switch: l.bell})
			tx, rx = append(tx, views[1]), append(rx, views[3])
		}
		l.ports, l.tx, l.rx = append(l.ports, ports), append(l.tx, tx), append(l.rx, rx)
	}
	return l
}

// step moves at most one frame of every port and reports whether it moved any.
func (l *loop) step(t testing.TB) (moved bool) {
	order := make([]int, 0, 64)[:len(l.ports)]
	for i := range order {
		order[i] = i
	}
	if l.rng != nil {
		l.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for plane, m := range l.maps {
		for _, from := range order {
			b, tag, err := l.tx[from][plane].Peek()
			if err != nil {
				t.Error(err)
			}
			if b == nil {
				continue
			}
			slot := l.rx[m[from]][plane].Reserve()
			if slot == nil {
				continue
			}
			l.rx[m[from]][plane].Commit(copy(slot, b), tag)
			l.tx[from][plane].Release()
			l.ports[from][plane].Bell.Ring()
			l.ports[m[from]][plane].Bell.Ring()
			moved = true
		}
	}
	return moved
}

// run moves frames until the test ends.
func (l *loop) run(t testing.TB) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			armed := l.bell.Arm()
			if l.step(t) {
				continue
			}
			select {
			case <-stop:
				return
			default:
				l.bell.Wait(armed, 20*time.Millisecond)
			}
		}
	}()
	t.Cleanup(func() { close(stop); l.bell.Ring(); <-done })
}

func (l *loop) endpoint(t testing.TB, rank, mtu int) transport.Endpoint {
	t.Helper()
	e, err := New(Options{Rank: rank, Ranks: len(l.ports), Ports: l.ports[rank], MTU: mtu})
	require.NoError(t, err)
	return e
}

// rings returns circuits from each rank to the next on even planes and to the previous on odd planes. So every rank
// reaches every other by forwarding.
func rings(ranks, planes int) []circuit.Permutation {
	maps := make([]circuit.Permutation, planes)
	for p := range maps {
		maps[p] = circuit.Shift(ranks, 1)
		if p%2 == 1 {
			maps[p] = circuit.Shift(ranks, ranks-1)
		}
	}
	return maps
}

func suite(slots, mtu int) transporttest.Config {
	return transporttest.Config{
		Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
			l := newLoop(t, rings(ranks, planes), slots, mtu)
			var endpoints []transport.Endpoint
			for r := range ranks {
				endpoints = append(endpoints, l.endpoint(t, r, mtu))
			}
			l.run(t)
			return endpoints
		},
		Epoch: func(plane, src int) uint32 { return uint32(10*plane + src) },
	}
}

func TestConformance(t *testing.T) {
	t.Run("64x8K", func(t *testing.T) { transporttest.Run(t, suite(64, 8192+wire.HeaderSize)) })
	// Two slots are the smallest ring; the MTU is odd.
	t.Run("2x4K", func(t *testing.T) { transporttest.Run(t, suite(2, 4099)) })
}

// TestRingOfForwardersDoesNotDeadlock lets all ranks send half way around a ring at once, with two slots per ring
// and random interleavings.
func TestRingOfForwardersDoesNotDeadlock(t *testing.T) {
	for seed := range uint64(20) {
		const ranks, slots, mtu, frames = 8, 2, 128, 40
		rng := rand.New(rand.NewPCG(seed, 0))
		l := newLoop(t, []circuit.Permutation{circuit.Shift(ranks, 1)}, slots, mtu)
		l.rng = rng
		type state struct {
			p         transport.Forwarder
			sent, got int
		}
		var all []*state
		for r := range ranks {
			all = append(all, &state{p: l.endpoint(t, r, mtu).Planes()[0].(transport.Forwarder)})
		}
		want := func(src, i int) byte { return byte(31*src + i) }
		act := func(r int) (bool, error) {
			s := all[r]
			switch rng.IntN(4) {
			case 0:
				if s.sent == frames {
					return false, nil
				}
				h := wire.Header{Src: uint16(r), Dst: uint16((r + ranks/2) % ranks), Offset: uint64(s.sent)}
				n, err := s.p.TrySend(&h, []byte{want(r, s.sent)})
				s.sent += n
				return n > 0, err
			case 1:
				src := (r + ranks/2) % ranks
				h, data, err := s.p.Peek(src)
				if err != nil || h == nil {
					return false, err
				}
				if len(data) != 1 || data[0] != want(src, s.got) || h.Offset != uint64(s.got) {
					return false, fmt.Errorf("rank %d, frame %d: %+v %v", r, s.got, *h, data)
				}
				s.p.Release(src)
				s.got++
				return true, nil
			case 2:
				h, _, err := s.p.PeekTransit()
				if err != nil || h == nil {
					return false, err
				}
				return s.p.Forward(uint32(r))
			}
			return l.step(t), nil
		}
		done := func() bool {
			for _, s := range all {
				if s.got != frames {
					return false
				}
			}
			return true
		}
		idle := 0
		for !done() {
			moved, err := act(rng.IntN(ranks))
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if idle++; moved {
				idle = 0
			}
			if idle > 100000 {
				t.Fatalf("seed %d: no progress", seed)
			}
		}
		for r, s := range all {
			if ok, err := s.p.Drained(); !ok || err != nil {
				t.Errorf("seed %d: rank %d not drained: %v", seed, r, err)
			}
		}
	}
}

// TestFramesForThisRankDoNotBlockTransit checks that PeekTransit copies frames for this rank out of the ring, and stops
// at the limit of the stash. Peek still returns them in order.
func TestFramesForThisRankDoNotBlockTransit(t *testing.T) {
	l := newLoop(t, rings(3, 1), 64, 128)
	send := l.endpoint(t, 0, 128).Planes()[0]
	e, err := New(Options{Rank: 1, Ranks: 3, Ports: l.ports[1], MTU: 128})
	require.NoError(t, err)
	e.planes[0].(*plane).pool.Limit = 5
	p := e.Planes()[0].(transport.Forwarder)
	put := func(dst, i int) {
		t.Helper()
		h := wire.Header{Dst: uint16(dst), Offset: uint64(i)}
		if n, err := send.TrySend(&h, []byte{byte(i)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for i := range 5 {
		put(1, i)
	}
	put(2, 0)
	for l.step(t) {
	}
	if h, _, err := p.PeekTransit(); h != nil || err != nil {
		t.Fatalf("the first PeekTransit must leave the frame to Peek: %v, %v", h, err)
	}
	if _, data, err := p.Peek(0); err != nil || string(data) != "\x00" {
		t.Fatalf("Peek: %v, %v", data, err)
	}
	for i := range 5 { // PeekTransit leaves each frame to Peek once
		h, _, err := p.PeekTransit()
		if err != nil || (h != nil) != (i == 4) {
			t.Fatalf("PeekTransit %d: %v, %v", i, h, err)
		}
	}
	if ok, err := p.Forward(7); !ok || err != nil {
		t.Fatalf("Forward: %v, %v", ok, err)
	}
	if ok, err := p.Forward(7); ok || err != nil {
		t.Fatalf("Forward of nothing: %v, %v", ok, err)
	}
	put(1, 5)
	put(2, 1)
	for l.step(t) {
	}
	for range 3 {
		if h, _, err := p.PeekTransit(); h != nil || err != nil {
			t.Fatalf("PeekTransit with a full stash: %v, %v", h, err)
		}
	}
	for i := range 6 {
		h, data, err := p.Peek(0)
		if err != nil || h == nil || len(data) != 1 || data[0] != byte(i) || h.Offset != uint64(i) {
			t.Fatalf("frame %d: %v %v %v", i, h, data, err)
		}
		p.Release(0)
	}
	if h, _, err := p.PeekTransit(); h == nil || err != nil {
		t.Fatalf("PeekTransit after the stash has emptied: %v, %v", h, err)
	}
}

// TestBubbleRule checks that TrySend needs two free slots and Forward one.
func TestBubbleRule(t *testing.T) {
	l := newLoop(t, rings(3, 1), 2, 128)
	p := l.endpoint(t, 1, 128).Planes()[0].(transport.Forwarder)
	h := wire.Header{Src: 1, Dst: 2}
	if n, err := p.TrySend(&h, make([]byte, 200)); n != 64 || err != nil {
		t.Fatalf("with two slots free: %d, %v", n, err)
	}
	if n, err := p.TrySend(&h, []byte{1}); n != 0 || err != nil {
		t.Fatalf("with one slot free: %d, %v", n, err)
	}
	transit := wire.Header{Src: 0, Dst: 2, Length: 1}
	wire.Encode(&transit, l.rx[1][0].Reserve())
	l.rx[1][0].Commit(wire.HeaderSize+1, 0)
	if h, _, err := p.PeekTransit(); h == nil || err != nil {
		t.Fatal(h, err)
	}
	if ok, err := p.Forward(9); !ok || err != nil {
		t.Fatalf("Forward with one slot free: %v, %v", ok, err)
	}
	l.tx[1][0].Release() // the frame of TrySend
	b, tag, err := l.tx[1][0].Peek()
	var out wire.Header
	if err != nil || tag != 9 || wire.Decode(b, &out) != nil || out.Epoch != 9 || out.Src != 0 || out.Dst != 2 {
		t.Errorf("forwarded %+v with tag %d, %v", out, tag, err)
	}
}

func TestCorruptFrames(t *testing.T) {
	good := wire.Header{Src: 0, Dst: 1, Epoch: 3, Length: 1}
	for name, c := range map[string]struct {
		edit func(*wire.Header)
		tag  uint32
		size int
	}{
		"tag":    {tag: 4, size: 1},
		"length": {tag: 3, size: 2},
		"src":    {tag: 3, size: 1, edit: func(h *wire.Header) { h.Src = 3 }},
		"dst":    {tag: 3, size: 1, edit: func(h *wire.Header) { h.Dst = 3 }},
		"self":   {tag: 3, size: 1, edit: func(h *wire.Header) { h.Src = 1; h.Dst = 1 }},
		"back":   {tag: 3, size: 1, edit: func(h *wire.Header) { h.Src = 1; h.Dst = 2 }},
		"plane":  {tag: 3, size: 1, edit: func(h *wire.Header) { h.Plane = 1 }},
		"long":   {tag: 3, size: 65, edit: func(h *wire.Header) { h.Length = 65 }},
	} {
		l := newLoop(t, rings(3, 1), 2, 129)
		p := l.endpoint(t, 1, 128).Planes()[0].(transport.Forwarder)
		h := good
		if c.edit != nil {
			c.edit(&h)
		}
		wire.Encode(&h, l.rx[1][0].Reserve())
		l.rx[1][0].Commit(wire.HeaderSize+c.size, c.tag)
		if h, _, err := p.Peek(0); h != nil || !errors.Is(err, transport.ErrCorrupt) {
			t.Errorf("%s: Peek: %v, %v", name, h, err)
		}
		if h, _, err := p.PeekTransit(); h != nil || !errors.Is(err, transport.ErrCorrupt) {
			t.Errorf("%s: PeekTransit: %v, %v", name, h, err)
		}
	}
}

func TestDrainedReportsLostFrames(t *testing.T) {
	l := newLoop(t, rings(2, 1), 4, 128)
	lost := errors.New("lost")
	e, err := New(Options{Ranks: 2, Ports: l.ports[0], MTU: 128, Health: func(int) error { return lost }})
	require.NoError(t, err)
	if ok, err := e.Planes()[0].Drained(); ok || !errors.Is(err, transport.ErrDark) || !errors.Is(err, lost) {
		t.Errorf("Drained: %v, %v", ok, err)
	}
}

func TestBadOptions(t *testing.T) {
	l := newLoop(t, rings(2, 2), 2, 128)
	foreign := newLoop(t, rings(2, 1), 2, 128).ports[0][0]
	one := newLoop(t, rings(2, 1), 1, 128).ports[0]
	for name, o := range map[string]Options{
		"rank":  {Rank: 2, Ranks: 2, Ports: l.ports[0], MTU: 128},
		"ranks": {Ports: l.ports[0], MTU: 128},
		"ports": {Ranks: 2, MTU: 128},
		"mtu":   {Ranks: 2, Ports: l.ports[0], MTU: 71},
		"bells": {Ranks: 2, Ports: []emulator.PortMemory{l.ports[0][0], foreign}, MTU: 128},
		"slots": {Ranks: 2, Ports: one, MTU: 128},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestEmulator runs random traffic through the emulated OCS.
func TestEmulator(t *testing.T) {
	const ranks, planes = 4, 2
	socket := filepath.Join(t.TempDir(), "ocs")
	c := emulator.Config{Socket: socket, Ports: ranks, Initial: rings(ranks, planes), Slots: 4}
	for p := range planes {
		c.Planes = append(c.Planes, emulator.PlaneConfig{Name: fmt.Sprint(p), BandwidthBitsPerSec: 2e9})
	}
	s, err := emulator.Start(c)
	require.NoError(t, err)
	defer transporttest.Close(t, s)
	var endpoints []transport.Endpoint
	for r := range ranks {
		l, err := local.Dial(socket, r, "")
		require.NoError(t, err)
		defer transporttest.Close(t, l)
		client, err := emulator.Attach(l)
		require.NoError(t, err)
		e, err := New(Options{Rank: r, Ranks: ranks, Ports: client.Ports(), MTU: client.MTU(),
			Health: func(plane int) error { _, err := client.Poll(plane); return err }})
		require.NoError(t, err)
		defer transporttest.Close(t, e)
		endpoints = append(endpoints, e)
	}
	transporttest.Config{}.Exchange(t, endpoints, 3)
}

// FuzzFrame writes arbitrary bytes into a slot. Peek and PeekTransit return a frame of a known flow or an error.
func FuzzFrame(f *testing.F) {
	b := make([]byte, wire.HeaderSize+1)
	wire.Encode(&wire.Header{Dst: 1, Length: 1, Epoch: 3}, b)
	f.Add(b, uint32(3))
	wire.Encode(&wire.Header{Dst: 2, Length: 1}, b)
	f.Add(b, uint32(0))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, tag uint32) {
		l := newLoop(t, rings(3, 1), 2, 128)
		p := l.endpoint(t, 1, 128).Planes()[0].(transport.Forwarder)
		l.rx[1][0].Commit(copy(l.rx[1][0].Reserve(), b), tag)
		h, data, err := p.Peek(0)
		if err == nil && h == nil {
			h, data, err = p.PeekTransit()
		}
		if err != nil {
			return
		}
		if h == nil || h.Epoch != tag || int(h.Length) != len(data) || len(data) > 64 || h.Src > 2 || h.Dst > 2 {
			// The first PeekTransit leaves a frame from rank 2 to this rank to Peek(2).
			if h2, _, err := p.Peek(2); h2 == nil || err != nil {
				t.Errorf("%+v, %d bytes", h, len(data))
			}
		}
	})
}

// BenchmarkPort measures one rank's work per frame. The switch is a copy in the same goroutine.
func BenchmarkPort(b *testing.B) {
	for _, size := range []int{8, 8192} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			const mtu = 8192 + wire.HeaderSize
			l := newLoop(b, rings(2, 1), 64, mtu)
			tx, rx := l.endpoint(b, 0, mtu).Planes()[0], l.endpoint(b, 1, mtu).Planes()[0]
			h, payload := &wire.Header{Dst: 1}, make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				n, err := tx.TrySend(h, payload)
				l.step(b)
				got, _, err2 := rx.Peek(0)
				if n != size || got == nil || err != nil || err2 != nil {
					b.Fatal(n, got, err, err2)
				}
				rx.Release(0)
			}
		})
	}
}
