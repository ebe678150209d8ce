package shim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/membership"
	"lightpath/shim/session"
)

// onCircuits tells how many of a communicator's programs run on circuits.
func onCircuits(c *Comm) (n int) {
	for _, e := range session.Of(c).Programs.Programs {
		if e.Plan != nil {
			n++
		}
	}
	return n
}

// TestKinOnCircuits: children keep the ports of their parent's ranks, whatever their own numbers
// are, and compute on circuits too, by turns with the parent.
func TestKinOnCircuits(t *testing.T) {
	server := lightFabric(t, 6, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	w := newWorld(t, 6)
	w.must(sums)
	halves, errs := w.bears(func(c *Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit, Color: c.Rank % 2, Key: -c.Rank}
	})
	none(t, errs)
	for r, c := range halves.children {
		if got := circuits.Of(c).Ports[c.Rank]; got != r {
			t.Errorf("rank %d has port %d in the child", r, got)
		}
		if want := []int{4 + r%2, 2 + r%2, r % 2}; !slices.Equal(circuits.Of(c).Ports, want) {
			t.Errorf("ports %v, want %v", circuits.Of(c).Ports, want)
		}
	}
	left := worldOf(t, w.comms[1:4])
	small, errs := left.bears(func(c *Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{0, 4, 5}}
	})
	none(t, errs)
	for range 3 {
		halves.must(sums)
		small.must(sums)
		w.must(sums)
	}
	for _, f := range []*family{halves, small} {
		for _, c := range f.children {
			if onCircuits(c) == 0 {
				t.Errorf("comm %#x rank %d never used a circuit", c.ID, c.Rank)
			}
		}
	}
	noLosses(t, server)
}

// TestCircuitsToOutside: the parent has left circuits from ports of the child to others. They go with
// the first switch that the child asks for, although the ranks on those ports have nothing to send.
func TestCircuitsToOutside(t *testing.T) {
	server := lightFabric(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := newWorld(t, 4)
	rng := rand.New(rand.NewPCG(6, 6))
	for _, k := range []collectiveCase{
		{kind: calls.Broadcast, typ: datatype.Int32, count: 2000},
		{kind: calls.Reduce, typ: datatype.Int32, count: 2000, root: 1},
	} {
		ring := collectiveCase{kind: calls.ReduceScatter, typ: datatype.Int32, count: 2000}
		if err := ring.run(w, rng); err != nil {
			t.Fatal(err)
		}
		halves, errs := w.bears(func(c *Comm) membership.Origin {
			return membership.Origin{Parent: c, How: membership.BySplit, Color: c.Rank % 2}
		})
		none(t, errs)
		for _, color := range []int{0, 1} {
			half := worldOf(t, []*Comm{halves.children[color], halves.children[color+2]})
			if err := k.run(half, rng); err != nil {
				t.Fatalf("%v, colour %d: %v", k, color, err)
			}
			if onCircuits(half.comms[0]) == 0 {
				t.Errorf("%v, colour %d: not on circuits", k, color)
			}
		}
	}
	noLosses(t, server)
}

// TestShrinkOnCircuits: ranks that are left after a failure go on with their ports.
func TestShrinkOnCircuits(t *testing.T) {
	lightFabric(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	w := newWorld(t, 4)
	w.must(sums)
	if err := w.comms[0].Abort(); err != nil {
		t.Fatal(err)
	}
	left := worldOf(t, w.comms[1:])
	f, errs := left.bears(func(c *Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.ByShrink, Exclude: []int{0}, Abort: true}
	})
	none(t, errs)
	f.must(sums)
	f.must(sums)
	for r, c := range f.children {
		if got := circuits.Of(c).Ports[r]; got != r+1 {
			t.Errorf("rank %d has port %d", r, got)
		}
	}
}
