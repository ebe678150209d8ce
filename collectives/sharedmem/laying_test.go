package sharedmem

import (
	"fmt"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// TestTrials: of every 256 chunks four are laid out the one way and four the other, by everybody.
func TestTrials(t *testing.T) {
	var tried [numWays]int
	for k := range uint64(3 * TrialEvery) {
		way, ok := trial(k)
		if !ok {
			continue
		}
		if at := k % TrialEvery; at < TrialAt || at >= TrialAt+numWays*TrialRun {
			t.Errorf("chunk %d is a trial", k)
		}
		tried[way]++
	}
	if tried != [numWays]int{3 * TrialRun, 3 * TrialRun} {
		t.Errorf("%v trials", tried)
	}
	for _, c := range []struct{ n, class int }{
		{0, noClass}, {layLeast - 1, noClass}, {layLeast, 0}, {layMiddle - 1, 0}, {layMiddle, 1}, {layLarge - 1, 1}, {layLarge, 2}, {largeRoom, 2},
	} {
		if got := costClass(c.n, false); got != c.class {
			t.Errorf("%d bytes are of class %d", c.n, got)
		}
		if got := costClass(c.n, true); got != c.class+copyClasses && c.class != noClass {
			t.Errorf("%d bytes to be combined are of class %d", c.n, got)
		}
	}
}

// TestNote: the least of the last trials counts, whatever it was before.
func TestNote(t *testing.T) {
	var c Costs
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
		{64 + 257*TrialEvery, 1 << 20, 0, 1}, // nothing is not known
	} {
		c.note(s.k, 1, past, s.bytes, s.took)
		if got := c.perByte[1][past].Load() & costMask; got != s.want {
			t.Errorf("chunk %d, %d bytes in %v: %d ps/B, not %d", s.k, s.bytes, s.took, got, s.want)
		}
	}
}

// TestWeigh: a rank goes the way that costs itself and the slowest of its readers less, and changes it for a good reason only.
func TestWeigh(t *testing.T) {
	a := newGroup(t, 3, 1).arenas[1]
	set := func(from int, keep, through uint32) {
		c := a.costs(from, 1)
		c.perByte[2][kept].Store(keep)
		c.perByte[2][past].Store(through)
	}
	for _, s := range []struct {
		what          string
		lay, one, two [numWays]uint32
		want          uint32
	}{
		{"nothing is known", [numWays]uint32{}, [numWays]uint32{}, [numWays]uint32{}, 0},
		{"nobody has read", [numWays]uint32{30, 10}, [numWays]uint32{}, [numWays]uint32{}, 0},
		{"nobody has read the one way", [numWays]uint32{30, 10}, [numWays]uint32{100, 0}, [numWays]uint32{}, 0},
		{"near", [numWays]uint32{25, 40}, [numWays]uint32{50, 80}, [numWays]uint32{50, 80}, 0},
		{"one is far", [numWays]uint32{25, 40}, [numWays]uint32{50, 80}, [numWays]uint32{500, 80}, 4},
		{"much the same", [numWays]uint32{25, 40}, [numWays]uint32{85, 80}, [numWays]uint32{50, 80}, 4},
		{"near again", [numWays]uint32{25, 40}, [numWays]uint32{50, 80}, [numWays]uint32{50, 80}, 0},
		{"much the same, from there", [numWays]uint32{25, 40}, [numWays]uint32{100, 80}, [numWays]uint32{0, 0}, 0},
	} {
		set(1, s.lay[kept], s.lay[past])
		set(0, s.one[kept], s.one[past])
		set(2, s.two[kept], s.two[past])
		if a.weigh(); a.costs(1, 1).Choice.Load() != s.want {
			t.Errorf("%s: %b", s.what, a.costs(1, 1).Choice.Load())
		}
	}
}

// TestLaidEitherWay: results are the same whichever way each rank's chunks go, all measure all, and nothing is allocated for it.
func TestLaidEitherWay(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			if testing.Short() && ranks > 2 {
				t.Skip("long")
			}
			g := newGroup(t, ranks, 5)
			for _, coll := range collectives {
				for _, size := range []int{layLeast, layMiddle + 8, layLarge, 3*largeRoom + 8} {
					for seed := range 2 {
						for r, a := range g.arenas {
							a.costs(r, r).Choice.Store([]uint32{1<<costClasses - 1, 0o25, 0}[(r+seed)%3])
						}
						j := &job{coll: coll, typ: datatype.Int64, count: size / 8, root: seed}
						g.bind(t, j)
						g.drive(t, []*job{j})
						j.check(t)
					}
				}
			}
			for _, coll := range []schedule.Collective{schedule.AllGather, schedule.ReduceScatter} {
				j := &job{coll: coll, typ: datatype.Uint8, count: layLeast}
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
						for way := range numWays {
							if a.costs(r, p).perByte[j.ops[0].costClass(layLeast)][way].Load() == 0 {
								t.Errorf("%v: rank %d does not know what way %d of rank %d costs", coll, r, way, p)
							}
						}
					}
				}
			}
		})
	}
}

// TestNoTrialOfWhatIsScaled: that is laid out one way only.
func TestNoTrialOfWhatIsScaled(t *testing.T) {
	o := &Op{Call: Call{Collective: schedule.AllReduce, Scale: datatype.Scale(datatype.Float32)}}
	if c := o.costClass(1 << 20); c != noClass {
		t.Errorf("class %d", c)
	}
}
