package sharedmem

import (
	"fmt"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// TestTrials counts the trials of each placement, and checks the bounds of the cost classes.
func TestTrials(t *testing.T) {
	var tried [numPlacements]int
	for k := range uint64(3 * TrialEvery) {
		p, ok := trial(k)
		if !ok {
			continue
		}
		if at := k % TrialEvery; at < TrialAt || at >= TrialAt+TrialChunks {
			t.Errorf("chunk %d is a trial", k)
		}
		tried[p]++
	}
	if tried != [numPlacements]int{3 * trialRun, 3 * trialRun} {
		t.Errorf("%v trials", tried)
	}
	for _, c := range []struct{ n, class int }{
		{0, noClass}, {classMin - 1, noClass}, {classMin, 0}, {classMiddle - 1, 0},
		{classMiddle, 1}, {classLarge - 1, 1}, {classLarge, 2}, {largeRoom, 2},
	} {
		if got := costClass(c.n, false); got != c.class {
			t.Errorf("%d bytes are of class %d", c.n, got)
		}
		if got := costClass(c.n, true); got != c.class+copyClasses && c.class != noClass {
			t.Errorf("%d bytes to be combined are of class %d", c.n, got)
		}
	}
}

// TestNote checks that the least cost of the last trials counts, whatever it was before.
func TestNote(t *testing.T) {
	var c costs
	for _, s := range []struct {
		k     uint64
		bytes int
		took  time.Duration
		want  uint32
	}{
		{64, 0, time.Second, 0},
		{64, 10000, time.Microsecond, 100},
		{65, 10000, time.Hour, 100}, // interrupted
		{66, 20000, time.Microsecond, 50},
		{67, 10000, time.Microsecond, 50},
		{64 + TrialEvery, 10000, 3 * time.Microsecond, 300},
		{65 + TrialEvery, 1, time.Hour, 300},
		{64 + 2*TrialEvery, 1, time.Hour, costMask},
		{64 + 257*TrialEvery, 1 << 20, 0, 1}, // 0 would mean unknown
	} {
		c.note(s.k, 1, pastCache, s.bytes, s.took)
		if got := c.perByte[1][pastCache].Load() & costMask; got != s.want {
			t.Errorf("chunk %d, %d bytes in %v: %d ps/B, not %d", s.k, s.bytes, s.took, got, s.want)
		}
	}
}

// TestCompareCosts checks that a rank chooses the placement that costs itself and its slowest reader less, and
// changes its choice only for a clear gain.
func TestCompareCosts(t *testing.T) {
	a := newGroup(t, 3, 1).arenas[1]
	type pair [numPlacements]uint32
	set := func(from int, cost pair) {
		for p, c := range cost {
			a.costs(from, 1).perByte[2][p].Store(c)
		}
	}
	for _, s := range []struct {
		name               string
		fill, read0, read2 pair
		want               uint32
	}{
		{"nothing is known", pair{}, pair{}, pair{}, 0},
		{"no reader", pair{30, 10}, pair{}, pair{}, 0},
		{"no reader past the caches", pair{30, 10}, pair{100, 0}, pair{}, 0},
		{"near", pair{25, 40}, pair{50, 80}, pair{50, 80}, 0},
		{"one is far", pair{25, 40}, pair{50, 80}, pair{500, 80}, 4},
		{"nearly equal, after past", pair{25, 40}, pair{85, 80}, pair{50, 80}, 4},
		{"near again", pair{25, 40}, pair{50, 80}, pair{50, 80}, 0},
		{"nearly equal, after in", pair{25, 40}, pair{100, 80}, pair{0, 0}, 0},
	} {
		set(1, s.fill)
		set(0, s.read0)
		set(2, s.read2)
		if a.compareCosts(); a.costs(1, 1).choice.Load() != s.want {
			t.Errorf("%s: %b", s.name, a.costs(1, 1).choice.Load())
		}
	}
}

// TestEitherPlacement checks that results are the same for every choice of the ranks, that all ranks measure all
// others, and that this allocates nothing.
func TestEitherPlacement(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			if testing.Short() && ranks > 2 {
				t.Skip("long")
			}
			g := newGroup(t, ranks, 5)
			for _, coll := range collectives {
				for _, size := range []int{classMin, classMiddle + 8, classLarge, 3*largeRoom + 8} {
					for seed := range 2 {
						for r, a := range g.arenas {
							a.costs(r, r).choice.Store([]uint32{1<<costClasses - 1, 0o25, 0}[(r+seed)%3])
						}
						j := &job{coll: coll, typ: datatype.Int64, count: size / 8, root: seed}
						g.bind(t, j)
						g.drive(t, []*job{j})
						j.check(t)
					}
				}
			}
			for _, coll := range []schedule.Collective{schedule.AllGather, schedule.ReduceScatter} {
				j := &job{coll: coll, typ: datatype.Uint8, count: classMiddle}
				g.bind(t, j)
				if n := testing.AllocsPerRun(TrialEvery, func() {
					for r, op := range j.ops {
						g.seq[r]++
						c := op.Call
						c.Seq = g.seq[r]
						op.Bind(g.arenas[r], &c)
					}
					g.finish(t, j)
				}); n != 0 {
					t.Errorf("%v: %v allocations", coll, n)
				}
				j.check(t)
				for r, a := range g.arenas {
					for p := range ranks {
						for way := range numPlacements {
							if a.costs(r, p).perByte[j.ops[0].costClass(classMiddle)][way].Load() == 0 {
								t.Errorf("%v: rank %d does not know the cost of placement %d of rank %d", coll, r, way, p)
							}
						}
					}
				}
			}
		})
	}
}

// TestNoCostClass checks that scaled contributions, and small slots, have no trials.
func TestNoCostClass(t *testing.T) {
	for name, o := range map[string]*Op{
		"scaled": {Call: Call{Collective: schedule.AllReduce, Scale: datatype.Scale(datatype.Float32)}, ring: large},
		"small":  {Call: Call{Collective: schedule.AllGather}, ring: small},
	} {
		if c := o.costClass(classMin); c != noClass {
			t.Errorf("%s: class %d", name, c)
		}
	}
}
