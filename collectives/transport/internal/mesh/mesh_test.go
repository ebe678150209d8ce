package mesh

import (
	"errors"
	"testing"
	"unsafe"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
	"lightpath/internal/shmring"
)

func memory(g Geometry) []byte {
	b := make([]byte, g.Size()+lineSize)
	return b[-uintptr(unsafe.Pointer(&b[0]))%lineSize:]
}

// TestLayoutCoversMemoryOnce checks that every byte belongs to one part and that every part begins on a cache line.
func TestLayoutCoversMemoryOnce(t *testing.T) {
	for _, g := range []Geometry{{1, 1, 2, 8}, {2, 1, 2, 8}, {5, 3, 3, 1000}} {
		taken := make([]bool, g.Size())
		take := func(at, size int) {
			t.Helper()
			if at%lineSize != 0 {
				t.Errorf("%+v: part at %d", g, at)
			}
			for i := at; i < at+size; i++ {
				if taken[i] {
					t.Fatalf("%+v: byte %d is in two parts", g, i)
				}
				taken[i] = true
			}
		}
		for r := range g.Ranks {
			take(g.bell(r), lineSize)
			take(g.state(r), lineSize)
			for plane := range g.Planes {
				for dst := range g.Ranks {
					if dst != r {
						take(g.ring(plane, r, dst), g.ringSize())
					}
				}
			}
		}
		for i, ok := range taken {
			if !ok {
				t.Fatalf("%+v: byte %d is in no part", g, i)
			}
		}
	}
}

// TestLargestGeometry checks that no size overflows.
func TestLargestGeometry(t *testing.T) {
	g := Geometry{Ranks: MaxRanks, Planes: MaxPlanes, Slots: maxSlots, Payload: maxPayload}
	require.NoError(t, g.Check())
	if size, least := float64(g.Size()), float64(g.rings())*maxSlots*maxPayload; size < least || size > 1.1*least {
		t.Errorf("%v bytes, want little more than %v", size, least)
	}
}

func TestAttachRefuses(t *testing.T) {
	g := Geometry{Ranks: 2, Planes: 1, Slots: 2, Payload: 64}
	mem := memory(g)
	for name, f := range map[string]func() error{
		"geometry": func() error {
			_, err := Attach(mem, Geometry{Ranks: 2, Planes: 1, Slots: 2, Payload: 9}, 0, nil)
			return err
		},
		"memory":  func() error { _, err := Attach(mem[:g.Size()-1], g, 0, nil); return err },
		"aligned": func() error { _, err := Attach(mem[8:], g, 0, nil); return err },
		"rank":    func() error { _, err := Attach(mem, g, 2, nil); return err },
	} {
		if f() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Attach(mem, g, 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(mem, g, 1, nil); !errors.Is(err, ErrTaken) {
		t.Errorf("second rank 1: %v", err)
	}
}

// TestDrainedByPeerThatCloses lets a peer release all frames and close while a rank drains. The plane is drained then.
func TestDrainedByPeerThatCloses(t *testing.T) {
	g := Geometry{Ranks: 2, Planes: 1, Slots: 2, Payload: 64}
	for range 2000 {
		mem := memory(g)
		from, err := Attach(mem, g, 0, nil)
		require.NoError(t, err)
		to, err := Attach(mem, g, 1, nil)
		require.NoError(t, err)
		p, q := from.Planes()[0], to.Planes()[0]
		if n, err := p.TrySend(&wire.Header{Dst: 1}, []byte("x")); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		_, _, err = q.Peek(0)
		require.NoError(t, err)
		go func() { q.Release(0); _ = to.Close() }()
		for done := false; !done; {
			done, err = p.Drained()
			require.NoError(t, err)
		}
		_ = from.Close()
	}
}

// FuzzFrame writes arbitrary bytes into a ring. Peek returns a frame of its flow or an error.
func FuzzFrame(f *testing.F) {
	b := make([]byte, wire.HeaderSize+1)
	wire.Encode(&wire.Header{Src: 1, Length: 1}, b)
	f.Add(b)
	wire.Encode(&wire.Header{Src: 1, Plane: 1, Length: 1}, b)
	f.Add(b)
	f.Add([]byte{})
	g := Geometry{Ranks: 2, Planes: 1, Slots: 2, Payload: 64}
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := memory(g)
		e, err := Attach(mem, g, 0, nil)
		require.NoError(t, err)
		ring, err := shmring.New(mem[g.ring(0, 1, 0):], g.Slots, wire.HeaderSize+g.Payload)
		require.NoError(t, err)
		ring.Commit(copy(ring.Reserve(), b), 0)
		h, data, err := e.Planes()[0].Peek(1)
		if err != nil && !errors.Is(err, transport.ErrCorrupt) {
			t.Error(err)
		}
		if err == nil && (h == nil || h.Src != 1 || h.Dst != 0 || h.Plane != 0 || int(h.Length) != len(data)) {
			t.Errorf("%+v, %d bytes", h, len(data))
		}
	})
}
