package handle

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"lightpath/internal/require"
)

func TestHandlesAgainstMap(t *testing.T) {
	var table Table[int]
	rng := rand.New(rand.NewPCG(1, 2))
	live := map[uint64]*int{}
	var stale []uint64
	for step := range 20000 {
		if len(live) == 0 || rng.IntN(2) == 0 {
			v := step
			h, err := table.Add(&v)
			if err != nil || h == 0 || live[h] != nil {
				t.Fatalf("step %d: Add = %#x, %v", step, h, err)
			}
			live[h] = &v
			continue
		}
		for h, v := range live {
			if got := table.Remove(h); got != v {
				t.Fatalf("step %d: Remove(%#x) = %v, want %v", step, h, got, v)
			}
			delete(live, h)
			stale = append(stale, h)
			break
		}
	}
	for h, v := range live {
		if got := table.Get(h); got != v {
			t.Errorf("Get(%#x) = %v, want %v", h, got, v)
		}
	}
	for _, h := range stale {
		if table.Get(h) != nil || table.Remove(h) != nil {
			t.Errorf("stale handle %#x is still good", h)
		}
	}
}

func TestForeignHandles(t *testing.T) {
	var table Table[int]
	v := 7
	h, err := table.Add(&v)
	require.NoError(t, err)
	for _, bad := range []uint64{
		0, 1, 0x7ffd_1234_5678_9abc, 0x0000_5555_5555_0000, ^uint64(0),
		h &^ (0xffff << tagShift), // no tag
		h ^ 1<<genShift,           // another generation
		h + 1, h + perChunk,       // slots never used
	} {
		if table.Get(bad) != nil || table.Remove(bad) != nil {
			t.Errorf("foreign handle %#x is good", bad)
		}
	}
	if table.Get(h) != &v {
		t.Error("the good handle was lost")
	}
}

func TestFull(t *testing.T) {
	var table Table[int]
	v := 0
	var last uint64
	for range most {
		h, err := table.Add(&v)
		require.NoError(t, err)
		last = h
	}
	if _, err := table.Add(&v); !errors.Is(err, errFull) {
		t.Fatalf("Add to a full table: %v", err)
	}
	table.Remove(last)
	if _, err := table.Add(&v); err != nil {
		t.Fatalf("Add after Remove: %v", err)
	}
}

// Several threads remove a handle: exactly one gets its value.
func TestRemoveOnce(t *testing.T) {
	var table Table[int]
	for range 200 {
		v := 0
		h, err := table.Add(&v)
		require.NoError(t, err)
		var wg sync.WaitGroup
		got := make([]*int, 4)
		for i := range got {
			wg.Go(func() { table.Get(h); got[i] = table.Remove(h) })
		}
		wg.Wait()
		n := 0
		for _, g := range got {
			if g != nil {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d threads removed the handle", n)
		}
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	var table Table[int]
	v := 0
	h, err := table.Add(&v)
	require.NoError(t, err)
	if n := testing.AllocsPerRun(100, func() { table.Get(h) }); n != 0 {
		t.Errorf("Get allocates %v times", n)
	}
}
