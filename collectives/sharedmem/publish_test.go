package sharedmem

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
	"lightpath/internal/require"
)

// newReadable returns a group whose ranks know that they can read each other's memory.
func newReadable(t testing.TB, ranks int) *group {
	t.Helper()
	return readable(t, newGroup(t, ranks, 1))
}

func readable(t testing.TB, g *group) *group {
	t.Helper()
	for _, a := range g.arenas {
		a.probe()
		if want := (uint64(1)<<a.ranks - 1) &^ (1 << a.rank); a.processInfo(a.rank).reads.Load() != want {
			t.Skip("the system does not let processes read each other's memory")
		}
	}
	return g
}

// TestPublishFrom checks the least size of published blocks: all ranks agree, and it depends on slots and pages.
func TestPublishFrom(t *testing.T) {
	for _, c := range []struct {
		coll        schedule.Collective
		ranks       int
		slots       uint64
		from, large int // least sizes, in small pages and in large ones
	}{
		{schedule.AllToAll, 2, fewSlots, 64 << 10, 64 << 10}, {schedule.AllToAll, 8, fewSlots, 64 << 10, 64 << 10},
		{schedule.AllGather, 2, fewSlots, 64 << 10, 64 << 10}, {schedule.AllToAll, 2, manySlots, 1 << 20, 256 << 10},
		{schedule.AllToAll, 4, manySlots, 512 << 10, 128 << 10}, {schedule.AllToAll, 8, halfSlots, 256 << 10, 64 << 10},
		{schedule.AllGather, 2, manySlots, 2 << 20, 2 << 20},
	} {
		if testing.Short() && c.ranks > 2 {
			continue
		}
		g := readable(t, newGroupOf(t, c.ranks, 1, c.slots))
		for _, below := range []int{0, 1} {
			j := &job{coll: c.coll, typ: datatype.Uint8, count: c.from - below}
			g.bind(t, j)
			g.drive(t, []*job{j})
			j.check(t)
			for r, op := range j.ops {
				if op.published != (below == 0) {
					t.Errorf("%v, %d ranks, %d slots: rank %d, block of %d: published %v", c.coll, c.ranks, c.slots, r, op.Block,
						op.published)
				}
				if from := op.publishFrom(true); from != c.large {
					t.Errorf("%v, %d ranks, %d slots: rank %d: in large pages from %d on, want %d", c.coll, c.ranks, c.slots,
						r, from, c.large)
				}
			}
		}
	}
}

// TestPublish checks that blocks are read in place, also where those of other ranks go through slots.
func TestPublish(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		for _, coll := range []schedule.Collective{schedule.AllToAll, schedule.AllGather, schedule.Broadcast} {
			sizes := []int{publishMin, largeRoom + 8, 2*publishRead + 8, publishMin + 8, publishRead + largeRoom}
			switch {
			case testing.Short() && ranks == 2 && coll == schedule.AllToAll: // one that takes several reads
				sizes = sizes[:3]
			case testing.Short():
				sizes = sizes[:1]
			}
			for _, size := range sizes {
				if coll == schedule.Broadcast {
					size += publishRoot - publishMin
				}
				t.Run(fmt.Sprintf("%v/%d/%d", coll, ranks, size), func(t *testing.T) {
					g := newReadable(t, ranks)
					j := &job{coll: coll, typ: datatype.Int64, count: size / 8}
					g.bind(t, j)
					if coll == schedule.AllToAll { // the last rank's call is in place
						r := ranks - 1
						j.out[r] = j.in[r]
						j.ops[r].Recv, j.ops[r].InPlace = j.ops[r].Send, true
					}
					g.drive(t, []*job{j})
					j.check(t)
					for r, op := range j.ops {
						want := !op.InPlace && (coll == schedule.AllToAll || ranks == 2) && (coll != schedule.Broadcast || r == op.Root)
						if op.published != want {
							t.Errorf("rank %d: published %v", r, op.published)
						}
					}
				})
			}
		}
	}
}

// TestPublishWaits checks that a rank's operation lasts until the others have read its buffer.
func TestPublishWaits(t *testing.T) {
	g := newReadable(t, 2)
	j := &job{coll: schedule.AllToAll, typ: datatype.Uint8, count: publishMin}
	g.bind(t, j)
	polls := func(r int) (done bool) {
		for range 10 {
			_, d, err := j.ops[r].Poll()
			require.NoError(t, err)
			done = done || d
		}
		return done
	}
	if polls(0) {
		t.Error("done before rank 1 has come")
	}
	// Rank 1 publishes its block, and rank 0 reads it, before rank 1 reads.
	j.ops[1].begin()
	j.ops[1].fill(j.ops[1].first)
	j.ops[1].filled++
	if polls(0) {
		t.Error("done before rank 1 has read")
	}
	if w := j.ops[0].Waiting(); w.Peer != 1 {
		t.Errorf("waits for rank %d", w.Peer)
	}
	if !polls(1) || !polls(0) {
		t.Error("not done when all have read")
	}
	j.check(t)
}

// TestAbandon checks that data read from a rank that has abandoned its call is not used: its buffer may have changed.
func TestAbandon(t *testing.T) {
	g := newReadable(t, 2)
	j := &job{coll: schedule.AllToAll, typ: datatype.Uint8, count: publishMin}
	g.bind(t, j)
	if _, _, err := j.ops[0].Poll(); err != nil {
		t.Fatal(err)
	}
	op := j.ops[1]
	op.begin()
	if ok, err := op.arrivedFrom(0, op.first); !ok || err != nil {
		t.Fatalf("rank 0's block has not come: %v", err)
	}
	j.ops[0].Abandon() // after rank 1 has read the header, before it copies
	err := op.fetch(0, op.first, 1, op.Recv)
	if !errors.Is(err, transport.ErrPeerLost) || !strings.Contains(err.Error(), "rank 0 has given up") {
		t.Errorf("got %v", err)
	}
	for range 10 {
		if _, done, _ := op.Poll(); done {
			t.Error("complete with data of the abandoned call")
		}
	}
}

// TestUnreadable checks that blocks go through slots where a rank's memory, or a part of it, cannot be read.
func TestUnreadable(t *testing.T) {
	run := func(t *testing.T, g *group, j *job) {
		g.bind(t, j)
		g.drive(t, []*job{j})
		j.check(t)
		for r, op := range j.ops {
			if op.published {
				t.Errorf("rank %d: published", r)
			}
		}
	}
	t.Run("another process", func(t *testing.T) {
		g := newGroup(t, 2, 1)
		for _, a := range g.arenas {
			a.processInfo(a.rank).token.Store(token + 2) // as if another process had its number here
		}
		for range 3 {
			run(t, g, &job{coll: schedule.AllToAll, typ: datatype.Uint8, count: publishMin})
		}
	})
	t.Run("not there yet", func(t *testing.T) {
		g := newGroup(t, 2, 1)
		for _, a := range g.arenas {
			a.processInfo(a.rank).token.Store(0)
		}
		run(t, g, &job{coll: schedule.AllGather, typ: datatype.Uint8, count: publishMin})
	})
	t.Run("memory without access", func(t *testing.T) {
		g := newReadable(t, 2)
		mem, err := unix.Mmap(-1, 0, publishMin, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		require.NoError(t, err)
		defer func() { _ = unix.Munmap(mem) }()
		if g.arenas[0].readable(unsafe.Pointer(unsafe.SliceData(mem)), len(mem)) {
			t.Error("memory without access is readable")
		}
	})
}

// TestReadProcess checks that a read is complete or an error.
func TestReadProcess(t *testing.T) {
	g := newReadable(t, 2)
	pid := g.arenas[0].processInfo(1).pid
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(mem) }()
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	at := uint64(uintptr(pointer(mem)))
	got := make([]byte, 2*page)
	if err := readProcess(pid, pointer(got), at, len(got)); err != nil || !bytes.Equal(got, mem) {
		t.Errorf("%v", err)
	}
	require.NoError(t, unix.Mprotect(mem[page:], unix.PROT_NONE))
	if err := readProcess(pid, pointer(got), at, len(got)); !errors.Is(err, unix.EFAULT) {
		t.Errorf("half of it cannot be read: %v", err)
	}
}
