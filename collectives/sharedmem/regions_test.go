package sharedmem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
)

// TestMapped compares every collective with the oracle, with buffers of ranks in regions or not. Buffers in regions are
// read in place once all ranks have mapped them.
func TestMapped(t *testing.T) {
	memories := []struct {
		name string
		has  func(rank int) bool
	}{
		{"all", func(int) bool { return true }},
		{"some", func(rank int) bool { return rank%2 == 0 }},
		{"none", func(int) bool { return false }},
	}
	groups := []int{2, 5}
	if testing.Short() {
		groups = []int{3} // the smallest group of which some ranks, but more than one, have regions
	}
	for _, ranks := range groups {
		for _, coll := range collectives {
			t.Run(fmt.Sprintf("%v/%d", coll, ranks), func(t *testing.T) {
				t.Parallel()
				for _, memory := range memories {
					g, m := newMapping(t, ranks)
					for _, size := range []int{
						mappedMin/ranks - 8, mappedMin/ranks&^7 + 8, flatMax(ranks) + 8, ranks * mappedRoot, 6*largeRoom/ranks + 8,
					} {
						for _, inPlace := range []bool{false, true} {
							j := &job{coll: coll, typ: datatype.Int64, count: size / 8, root: ranks - 1, inPlace: inPlace}
							g.bind(t, j)
							for r := range ranks {
								if memory.has(r) {
									m.move(j, r)
								}
							}
							g.repeat(t, j, 3)
							for r, op := range j.ops {
								if want := memory.has(r) && op.mappable() && op.sendsRegion(); (op.published && op.at.number != 0) != want {
									t.Errorf("%v of %d bytes, memory of %s, in place %v: rank %d mapped %v, want %v", coll, size, memory.name,
										inPlace, r, !want, want)
								}
							}
							if memory.name == "all" && size >= ranks*mappedRoot && !j.ops[0].published != staged(j) {
								t.Errorf("%v in place %v: rank 0 published %v", coll, inPlace, j.ops[0].published)
							}
							for len(m.known) > 0 {
								m.free(m.known[0].mem)
							}
						}
					}
				}
			})
		}
	}
}

// staged reports whether large blocks of a rank that is not the root go through slots, also from a region.
func staged(j *job) bool {
	switch j.coll {
	case schedule.Broadcast, schedule.Scatter:
		return true
	case schedule.AllToAll:
		return j.inPlace
	}
	return false
}

// TestMappedBits checks that sums read from the ranks' buffers equal those of a loop over the ranks in order.
func TestMappedBits(t *testing.T) {
	const ranks, count = 5, 200000
	g, m := newMapping(t, ranks)
	for _, inPlace := range []bool{false, true} {
		j := &job{coll: schedule.AllReduce, typ: datatype.Float32, count: count, inPlace: inPlace}
		g.bind(t, j)
		for r := range j.in {
			m.move(j, r)
			f := unsafe.Slice((*float32)(pointer(j.in[r])), count)
			for i := range f {
				f[i] = g.rng.Float32() * float32(int(1)<<g.rng.IntN(20))
			}
		}
		want := bytes.Clone(j.in[0])
		for r := 1; r < ranks; r++ {
			datatype.Reduce(datatype.Sum, datatype.Float32)(want, j.in[r])
		}
		for r := range j.want {
			j.want[r] = want
		}
		g.repeat(t, j, 3)
		if !j.ops[0].published {
			t.Error("not read in place")
		}
	}
}

// TestFreedRegion checks that new memory at the address of a freed region is not taken for it, and that the other ranks
// unmap the freed region.
func TestFreedRegion(t *testing.T) {
	g, m := newMapping(t, 2)
	j := &job{coll: schedule.AllGather, typ: datatype.Int32, count: 1 << 15}
	g.bind(t, j)
	m.move(j, 0)
	g.repeat(t, j, 3)
	if !j.ops[0].published || j.ops[1].at.number != 0 {
		t.Fatalf("rank 0 mapped %v, rank 1 %v", j.ops[0].published, j.ops[1].at.number != 0)
	}
	for range 3 {
		old := m.known[0].mem
		at, n, number := pointer(old), len(old), j.ops[0].at.number
		in, out := bytes.Clone(j.in[0]), bytes.Clone(j.out[0])
		m.free(old)
		m.alloc(n, at)
		for i := range in {
			in[i]++
		}
		copy(j.in[0], in)
		copy(j.out[0], out)
		for r := range j.want {
			copy(j.want[r], in)
		}
		g.rebind(j)
		g.drive(t, []*job{j})
		j.check(t)
		for r, a := range g.arenas {
			for _, v := range a.regions.theirs {
				if v.number == number {
					t.Errorf("rank %d still maps the region that rank 0 has freed", r)
				}
			}
		}
		g.repeat(t, j, 2)
		g.rebind(j)
		g.drive(t, []*job{j})
		j.check(t)
		if !j.ops[0].published || j.ops[0].at.number == number {
			t.Errorf("region %d: %+v", number, j.ops[0].at)
		}
	}
}

// TestManyRegions uses more regions than a table holds. They take turns without effect on results, keep no files
// open, and the ones in frequent use keep their places.
func TestManyRegions(t *testing.T) {
	g, m := newMapping(t, 2)
	var jobs []*job
	for range regionsOffered + 4 {
		j := &job{coll: schedule.AllToAll, typ: datatype.Int64, count: mappedMin / 16}
		g.bind(t, j)
		m.move(j, 0)
		m.move(j, 1)
		g.repeat(t, j, 3)
		jobs = append(jobs, j)
	}
	files := openFiles(t)
	run := func(j *job) bool {
		g.rebind(j)
		g.drive(t, []*job{j})
		j.check(t)
		return j.ops[0].at.number != 0
	}
	if last := jobs[len(jobs)-1]; run(last) {
		t.Error("there was no room for the last one")
	}
	for range offerAge {
		run(jobs[0])
	}
	for range 2 {
		run(jobs[len(jobs)-1])
	}
	if !run(jobs[len(jobs)-1]) || !run(jobs[0]) {
		t.Error("a region that is no longer used has kept its place from one in use")
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d files, %d before", n, files)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

// TestNewRegions checks that memory of large calls is offered after repeated use, also where several regions take
// turns.
func TestNewRegions(t *testing.T) {
	g, m := newMapping(t, 2)
	var mem [regionsOffered][]byte
	for i := range mem {
		mem[i] = m.alloc(offerLarge, nil)
	}
	for use := 1; use <= offerUse+1; use++ {
		for i := range mem {
			for _, a := range g.arenas {
				a.mapOffers()
			}
			if _, known, ok := g.arenas[0].findMapped(pointer(mem[i]), offerLarge); !known || ok != (use > offerUse) {
				t.Errorf("use %d of region %d: mapped %v", use, i, ok)
			}
		}
	}
}

// TestRefusedRegion checks that memory which another rank cannot map is used like any other memory, and that the
// failure is reported once.
func TestRefusedRegion(t *testing.T) {
	g, m := newMapping(t, 3)
	reports := 0
	g.arenas[2].UseRegions(m.find, func(rank int, err error) {
		if reports++; rank != 0 || err == nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
	for range 2 {
		for _, coll := range []schedule.Collective{schedule.AllReduce, schedule.AllToAll, schedule.Broadcast} {
			j := &job{coll: coll, typ: datatype.Int64, count: 1 << 14}
			g.bind(t, j)
			m.move(j, 0)
			m.move(j, 1)
			// Rank 0 offers a region; rank 2 finds another file under the number of its file.
			g.arenas[0].mapOffers()
			g.arenas[0].findMapped(j.ops[0].Send, 8)
			for i := range g.arenas[0].offers(0) {
				g.arenas[0].offers(0)[i].ino.Add(1)
			}
			g.arenas[2].mapOffers()
			for i := range g.arenas[0].offers(0) {
				g.arenas[0].offers(0)[i].ino.Add(^uint64(0))
			}
			g.repeat(t, j, 4)
			if j.ops[0].at.number != 0 {
				t.Errorf("%v: mapped", coll)
			}
			if _, known, _ := g.arenas[0].findMapped(j.ops[0].Send, 8); known {
				t.Errorf("%v: still to be mapped", coll)
			}
			if coll != schedule.Broadcast && j.ops[1].at.number == 0 {
				t.Errorf("%v: rank 1's buffer is not mapped", coll)
			}
		}
	}
	if reports != 1 {
		t.Errorf("reported %d times", reports)
	}
}

// TestMappedTakenBack checks that data read from a rank that has abandoned its call is not used. Reading from a view
// that no longer exists is an error.
func TestMappedTakenBack(t *testing.T) {
	for _, coll := range []schedule.Collective{schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather} {
		for _, gone := range []bool{false, true} {
			g, m := newMapping(t, 2)
			j := &job{coll: coll, typ: datatype.Uint8, count: 1 << 16}
			g.bind(t, j)
			m.move(j, 0)
			g.repeat(t, j, 3)
			g.rebind(j)
			if _, _, err := j.ops[0].Poll(); err != nil {
				t.Fatal(err)
			}
			op := j.ops[1]
			op.begin()
			op.fill(op.first)
			if ok, err := op.arrivedFrom(0, op.first); !ok || err != nil {
				t.Fatalf("rank 0's block has not come: %v", err)
			}
			want, says := transport.ErrPeerLost, "rank 0 has given up"
			if gone {
				for i := range g.arenas[1].regions.theirs {
					g.arenas[1].regions.theirs[i].drop()
				}
				want, says = os.ErrInvalid, "rank 0's send buffer"
			} else {
				j.ops[0].Abandon() // after rank 1 has read the header, before it copies
			}
			err := error(nil)
			if coll == schedule.AllReduce {
				err = op.reduce(op.first)
			} else {
				err = op.consume(op.first)
			}
			if !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, gone %v: %v", coll, gone, err)
			}
		}
	}
}

// TestMappedWaits checks that a rank's operation lasts until the others have read its buffer.
func TestMappedWaits(t *testing.T) {
	for _, coll := range []schedule.Collective{schedule.AllReduce, schedule.Reduce, schedule.ReduceScatter,
		schedule.AllGather, schedule.Broadcast} {
		g, m := newMapping(t, 2)
		j := &job{coll: coll, typ: datatype.Int32, count: 1 << 15, root: 0}
		if coll == schedule.Reduce {
			j.root = 1
		}
		g.bind(t, j)
		m.move(j, 0)
		g.repeat(t, j, 3)
		g.rebind(j)
		op := j.ops[1]
		op.begin() // rank 1 makes its call, and fills its slots
		op.fill(op.first)
		op.filled++
		for range 10 {
			if _, done, err := j.ops[0].Poll(); err != nil || done {
				t.Fatalf("%v: done %v before rank 1 has read; %v", coll, done, err)
			}
		}
		if w := j.ops[0].Waiting(); w.Peer != 1 {
			t.Errorf("%v: waits for rank %d", coll, w.Peer)
		}
		g.finish(t, j)
		j.check(t)
	}
}

// TestViewed checks that only references to bytes within the right region are valid.
func TestViewed(t *testing.T) {
	g, m := newMapping(t, 2)
	const size = 1 << 16
	mem := m.alloc(size, nil)
	mem[100] = 77
	g.arenas[0].findMapped(pointer(mem), 1)
	g.arenas[1].mapOffers()
	at, _, ok := g.arenas[0].findMapped(unsafe.Pointer(&mem[100]), 5)
	if !ok || at.offset != 100 {
		t.Fatal(at, ok)
	}
	if p, err := g.arenas[1].viewed(0, at, size-100); err != nil || *(*byte)(p) != 77 {
		t.Error(err)
	}
	for _, c := range []struct {
		at regionRef
		n  int
	}{
		{regionRef{at.number + 1, at.offset, at.place}, 1},
		{regionRef{at.number, at.offset, at.place + 1}, 1},
		{regionRef{0, 0, at.place + 1}, 0},
		{regionRef{at.number, at.offset, regionsOffered}, 1},
		{regionRef{at.number, size, at.place}, 1},
		{regionRef{at.number, 1 << 63, at.place}, 1},
		{at, size - 99},
	} {
		if _, err := g.arenas[1].viewed(0, c.at, c.n); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%d bytes at %+v: %v", c.n, c.at, err)
		}
	}
}

func TestMappedAllocates(t *testing.T) {
	g, m := newMapping(t, 2)
	for _, coll := range collectives {
		j := &job{coll: coll, typ: datatype.Float32, count: 1 << 18}
		g.bind(t, j)
		m.move(j, 0)
		m.move(j, 1)
		run := func() { g.rebind(j); g.finish(t, j) }
		for range 4 {
			run()
		}
		if n := testing.AllocsPerRun(3, run); n != 0 {
			t.Errorf("%v allocates %v times", j, n)
		}
	}
}
