package membership_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/membership"
	"lightpath/shim/shimtest"
)

// TestKinOnCircuits: children keep the ports of their parent's ranks, whatever their own numbers
// are, and compute on circuits too, by turns with the parent.
func TestKinOnCircuits(t *testing.T) {
	server := shimtest.UseEmulator(t, 6, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	w := shimtest.NewWorld(t, 6)
	w.Must(shimtest.CheckSums)
	halves, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
		return membership.Origin{Parent: c, How: membership.BySplit, Color: c.Rank % 2, Key: -c.Rank}
	})
	shimtest.NoErrors(t, errs)
	for r, c := range halves.Children {
		if got := circuits.Of(c).Site.Places.Ports()[c.Rank]; got != r {
			t.Errorf("rank %d has port %d in the child", r, got)
		}
		if want := []int{4 + r%2, 2 + r%2, r % 2}; !slices.Equal(circuits.Of(c).Site.Places.Ports(), want) {
			t.Errorf("ports %v, want %v", circuits.Of(c).Site.Places.Ports(), want)
		}
	}
	left := shimtest.WorldOf(t, w.Comms[1:4])
	small := left.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{0, 4, 5}})
	for range 3 {
		halves.Must(shimtest.CheckSums)
		small.Must(shimtest.CheckSums)
		w.Must(shimtest.CheckSums)
	}
	for _, f := range []*shimtest.Family{halves, small} {
		for _, c := range f.Children {
			if shimtest.ProgramsOnCircuits(c) == 0 {
				t.Errorf("comm %#x rank %d never used a circuit", c.ID, c.Rank)
			}
		}
	}
	shimtest.NoLosses(t, server)
}

// TestCircuitsToOutside: the parent has left circuits from ports of the child to others. They go with
// the first switch that the child asks for, although the ranks on those ports have nothing to send.
func TestCircuitsToOutside(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	w := shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(6, 6))
	for _, k := range []shimtest.Collective{
		{Kind: calls.Broadcast, Type: datatype.Int32, Count: 2000},
		{Kind: calls.Reduce, Type: datatype.Int32, Count: 2000, Root: 1},
	} {
		ring := shimtest.Collective{Kind: calls.ReduceScatter, Type: datatype.Int32, Count: 2000}
		require.NoError(t, ring.Run(w, rng))
		halves, errs := w.InitFrom(func(c *shim.Comm) membership.Origin {
			return membership.Origin{Parent: c, How: membership.BySplit, Color: c.Rank % 2}
		})
		shimtest.NoErrors(t, errs)
		for _, color := range []int{0, 1} {
			half := shimtest.WorldOf(t, []*shim.Comm{halves.Children[color], halves.Children[color+2]})
			require.NoError(t, k.Run(half, rng))
			if shimtest.ProgramsOnCircuits(half.Comms[0]) == 0 {
				t.Errorf("%v, colour %d: not on circuits", k, color)
			}
		}
	}
	shimtest.NoLosses(t, server)
}

// TestShrinkOnCircuits: ranks that are left after a failure go on with their ports.
func TestShrinkOnCircuits(t *testing.T) {
	shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	w := shimtest.NewWorld(t, 4)
	w.Must(shimtest.CheckSums)
	require.NoError(t, w.Comms[0].Abort())
	left := shimtest.WorldOf(t, w.Comms[1:])
	f := left.Derive(membership.Origin{How: membership.ByShrink, Exclude: []int{0}, Abort: true})
	f.Must(shimtest.CheckSums)
	f.Must(shimtest.CheckSums)
	for r, c := range f.Children {
		if got := circuits.Of(c).Site.Places.Ports()[r]; got != r+1 {
			t.Errorf("rank %d has port %d", r, got)
		}
	}
}
