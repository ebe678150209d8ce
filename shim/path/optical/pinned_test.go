package optical_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestPinnedCircuits: on a pinned fabric, collectives and exchanges use the circuits that an operator has set, and move
// none, also while plans are being made. An exchange uses packet planes if a pair has no circuit. A communicator of two
// ranks, to which other ports have circuits, uses them as well.
func TestPinnedCircuits(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, func(f *fabric.Fabric) { f.PinnedBy = "job" })
	maps := []circuit.Permutation{circuit.Shift(4, 1), circuit.Shift(4, 3)}
	for j, m := range maps {
		require.NoError(t, server.Core().Set(j, m, "ann"))
	}
	before, err := server.Core().Snapshot()
	require.NoError(t, err)
	t.Setenv("LIGHTPATH_FAULT", "plan-delay:20ms")
	t.Setenv("LIGHTPATH_DEMAND_WAIT", "40s")
	w := shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		for _, kind := range shimtest.OracleKinds {
			k := shimtest.Collective{Kind: kind, Type: datatype.Int32, Op: datatype.Sum, Count: 20011}
			require.NoError(t, k.Run(w, rng))
		}
		require.NoError(t, shimtest.RandomMessages(rng, 4, 50000).Exchange(w, 1, func(int) time.Duration { return 0 }))
	}
	carried := func(m shimtest.Messages) uint64 {
		before := framesOf(t, server)
		require.NoError(t, m.Exchange(w, 2, shimtest.NoDelay))
		return framesOf(t, server) - before
	}
	ring := make(shimtest.Messages, 4) // both directions
	for r := range ring {
		ring[r] = make([][]int, 4)
		ring[r][(r+1)%4], ring[r][(r+3)%4] = []int{50000}, []int{3, 40000}
	}
	if carried(ring) < 100 {
		t.Error("messages between neighbours use packet planes")
	}
	ring[0][2] = []int{50000}
	if carried(ring) > 0 {
		t.Error("circuits carry messages, and a pair has none")
	}
	part := shimtest.NewWorld(t, 2)
	k := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Int32, Op: datatype.Sum, Count: 20011}
	if !shimtest.Eventually(func() bool {
		require.NoError(t, k.Run(part, rng))
		return shimtest.ProgramsOnCircuits(part.Comms[0]) > 0
	}) {
		t.Error("the two ranks use packet planes only")
	}
	after, err := server.Core().Snapshot()
	require.NoError(t, err)
	for j := range maps {
		was, is := &before.Planes[j], &after.Planes[j]
		if is.Switches != was.Switches || !is.Map.Equal(maps[j]) {
			t.Errorf("plane %d: %d switches, %v; was %d, %v", j, is.Switches, is.Map, was.Switches, maps[j])
		}
	}
	shimtest.NoLosses(t, server) // and both planes have carried something
}

// TestPinnedPlanner: a planner that moves circuits does not go with a pinned fabric.
func TestPinnedPlanner(t *testing.T) {
	shimtest.UseEmulator(t, 2, 1, func(f *fabric.Fabric) { f.PinnedBy = "job" })
	t.Setenv("LIGHTPATH_PLANNER", "swot")
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	if _, err := shim.Init([]shim.InitArgs{{ID: id, Ranks: 2}}); !errors.Is(err, errdefs.ErrInvalidUsage) {
		t.Errorf("%v", err)
	}
}
