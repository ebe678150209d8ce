package stream_test

import (
	"slices"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/stream"
)

// usePool returns a pool whose context has been entered, over a driver with one device and some queues.
func usePool(t *testing.T, queues string) *stream.Pool {
	t.Helper()
	t.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues)
	d := devicetest.NewPeers(stream.Places(), 1)
	return usePoolOf(t, d)
}

func usePoolOf(t *testing.T, d devicetest.Peers) *stream.Pool {
	t.Helper()
	device.Use(d)
	require.NoError(t, d.EnterContext(1))
	t.Cleanup(func() {
		d.Leave()
		device.Use(nil)
		d.Driver.Close()
	})
	p := stream.PoolOf(1, 0)
	require.NoError(t, p.Prepare())
	return p
}

// TestSides checks that launches of two communicators never share a side stream. A communicator keeps its own, and
// leaves them when its launch has ended, or the communicator itself.
func TestSides(t *testing.T) {
	p := usePool(t, "16") // 4 side streams
	var words [2]uint32
	first := p.Sides(nil, 3, "a", &words[0], 1)
	second := p.Sides(nil, 3, "b", &words[1], 1)
	if len(first) != 3 || len(second) != 1 || slices.Contains(first, second[0]) {
		t.Fatalf("a has %v, b has %v", first, second)
	}
	if again := p.Sides(nil, 3, "a", &words[0], 2); !slices.Equal(first, again) {
		t.Errorf("a has %v, had %v", again, first)
	}
	words[0] = 1 // its first launch has ended, its second has not
	if got := p.Sides(nil, 4, "b", &words[1], 2); len(got) != 1 {
		t.Errorf("b has %v", got)
	}
	words[0] = 2
	if got := p.Sides(nil, 4, "b", &words[1], 3); len(got) != 4 {
		t.Errorf("b has %v after a's launches", got)
	}
	if got := p.Sides(nil, 4, "a", &words[0], 3); len(got) != 0 {
		t.Errorf("a has %v", got)
	}
	p.Leave("b")
	if got := p.Sides(nil, 4, "a", &words[0], 3); len(got) != 4 {
		t.Errorf("a has %v after b", got)
	}
	list := make([]device.Stream, 0, 4)
	if n := testing.AllocsPerRun(10, func() { list = p.Sides(list[:0], 4, p, &words[0], 4) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOneQueue checks that there are no side streams if they would wait for each other.
func TestOneQueue(t *testing.T) {
	p := usePool(t, "1")
	var word uint32
	if got := p.Sides(nil, 4, "a", &word, 1); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestFreedLater checks that what a communicator leaves is freed when the next one is made, and only once.
func TestFreedLater(t *testing.T) {
	p := usePool(t, "")
	freed := 0
	p.Later(func() { freed++ })
	s, err := p.Take()
	require.NoError(t, err)
	p.Give(s)
	if again, err := p.Take(); again != s || err != nil {
		t.Errorf("stream %v, %v, want %v", again, err, s)
	}
	if freed != 0 {
		t.Error("it was freed at once")
	}
	require.NoError(t, p.Prepare())
	require.NoError(t, p.Prepare())
	if freed != 1 {
		t.Errorf("it was freed %d times", freed)
	}
}

// TestReset checks that a context with the handle of one that has ended gets nothing of that one.
func TestReset(t *testing.T) {
	d := devicetest.NewPeers(stream.Places(), 1)
	p := usePoolOf(t, d)
	s, err := p.Take()
	require.NoError(t, err)
	p.Give(s)
	pinned, err := memory.Pin(1)
	require.NoError(t, err)
	memory.Unpin(pinned)
	if stream.PoolOf(1, 0) != p {
		t.Error("the context has another pool")
	}
	d.Reset()
	later := stream.PoolOf(1, 0)
	if again, err := later.Take(); again == s || err != nil {
		t.Errorf("stream %v, %v", again, err)
	}
	if again, err := memory.Pin(1); again == pinned || err != nil {
		t.Errorf("page-locked memory %v, %v", again, err)
	}
}
