package optical_test

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/shim"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/shimtest"
)

// groups are the communicators of a job with tensor and data parallelism on 4 ranks. They come from separate ids.
type groups struct {
	all           *shimtest.World
	tensor, model [2]*shimtest.World
}

func newGroups(t *testing.T) *groups {
	t.Helper()
	return &groups{
		all:    shimtest.NewWorld(t, 4),
		tensor: [2]*shimtest.World{shimtest.NewWorldAt(t, 0, 1), shimtest.NewWorldAt(t, 2, 3)},
		model:  [2]*shimtest.World{shimtest.NewWorldAt(t, 0, 2), shimtest.NewWorldAt(t, 1, 3)},
	}
}

// both runs a collective in two groups at once, with checked results.
func both(t *testing.T, k shimtest.Collective, rng *rand.Rand, groups [2]*shimtest.World) error {
	seeds := [2]uint64{rng.Uint64(), rng.Uint64()}
	return errors.Join(shimtest.Concurrently(t, 2, func(g int) error {
		return k.Run(groups[g], rand.New(rand.NewPCG(seeds[g], 1)))
	})...)
}

// hits returns how many tickets that went out ahead were used, by group.
func (g *groups) hits() (n [4]uint64) {
	for i, w := range []*shimtest.World{g.tensor[0], g.tensor[1], g.model[0], g.model[1]} {
		n[i], _ = live.Of(w.Comms[0]).Predictions()
	}
	return n
}

// TestGroupsByTurns checks that communicators of one job get their planes and tickets before they call, though each of
// them uses all planes, and that groups side by side hold the planes together, with other circuits in each turn.
func TestGroupsByTurns(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	g := newGroups(t)
	rng := rand.New(rand.NewPCG(6, 1))
	var together [3]int // turns in which two groups have held all planes
	if !shimtest.Eventually(func() bool {
		for turn, w := range [][2]*shimtest.World{g.tensor, g.tensor, g.model} {
			require.NoError(t, both(t, iteration[0], rng, w))
			s, err := server.Core().Snapshot()
			require.NoError(t, err)
			if len(s.Planes[0].Holders) == 2 && len(s.Planes[1].Holders) == 2 {
				together[turn]++
			}
			time.Sleep(5 * time.Millisecond) // computation: tickets come meanwhile
		}
		n := g.hits()
		return min(n[0], n[1], n[2], n[3]) >= 5 && together[1] > 0
	}) {
		t.Errorf("tickets ahead were used %v times, two groups held the planes in %v turns", g.hits(), together)
	}
	shimtest.NoLosses(t, server)
}

// TestGroupsSideBySide checks that groups of disjoint ranks hold the planes together, also while their operations move
// circuits, and get right results.
func TestGroupsSideBySide(t *testing.T) {
	server := shimtest.UseEmulator(t, 8, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	groups := [2]*shimtest.World{shimtest.NewWorldAt(t, 0, 1, 2, 3), shimtest.NewWorldAt(t, 4, 6, 5, 7)}
	var together atomic.Int64 // moves of planes that both groups held
	held := map[int]uint64{}  // by the port of the leader
	defer server.Core().Watch(func(e controller.Event) {
		switch e.Kind {
		case controller.Granted:
			held[e.Port] |= e.Mask
		case controller.Released:
			held[e.Port] &^= e.Mask
		case controller.Switched:
			if held[0]&held[4]>>e.Plane&1 != 0 {
				together.Add(1)
			}
		}
	})()
	rng := rand.New(rand.NewPCG(6, 5))
	if !shimtest.Eventually(func() bool {
		require.NoError(t, both(t, iteration[1], rng, groups))
		require.NoError(t, both(t, iteration[0], rng, groups))
		return together.Load() >= 20
	}) {
		t.Errorf("planes of both groups moved %d times", together.Load())
	}
	require.NoError(t, iteration[1].Run(shimtest.NewWorld(t, 8), rng))
	shimtest.NoLosses(t, server)
}

// TestGroupsOutOfOrder checks that results are right, and nothing waits for long, if ranks call their communicators in
// another order than before: all of them, or one that calls the other communicator first.
func TestGroupsOutOfOrder(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	g := newGroups(t)
	rng := rand.New(rand.NewPCG(6, 2))
	for n := range 30 {
		require.NoError(t, both(t, iteration[0], rng, g.tensor))
		if n%10 == 7 {
			require.NoError(t, both(t, iteration[2], rng, g.tensor))
		}
		if n%10 == 9 {
			require.NoError(t, iteration[1].Run(g.all, rng))
		}
		require.NoError(t, both(t, iteration[0], rng, g.model))
	}
	one := func(w *shimtest.World, rank int) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[rank], make([]float32, iteration[0].Count))})
	}
	for range 5 { // rank 1 begins in its tensor group; rank 0 calls its model group first
		shimtest.NoErrors(t, shimtest.Concurrently(t, 4, func(r int) error {
			first, second := func() error { return one(g.tensor[r/2], r%2) }, func() error { return one(g.model[r%2], r/2) }
			if r == 0 || r == 2 {
				first, second = second, first
			}
			if err := first(); err != nil {
				return err
			}
			return second()
		}))
	}
	shimtest.NoLosses(t, server)
}

// TestOtherJobBesideGroups checks that another job gets the planes that communicators of one job pass to each other.
func TestOtherJobBesideGroups(t *testing.T) {
	server := shimtest.UseEmulator(t, 6, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	g, other := newGroups(t), shimtest.NewWorldAt(t, 4, 5)
	rng := rand.New(rand.NewPCG(6, 3))
	for range 8 {
		require.NoError(t, both(t, iteration[0], rng, g.tensor))
		require.NoError(t, both(t, iteration[0], rng, g.model))
	}
	mine := rand.New(rand.NewPCG(6, 4))
	beside(t, func() error {
		return errors.Join(both(t, iteration[0], mine, g.tensor), both(t, iteration[0], mine, g.model))
	}, func() {
		for range 10 {
			require.NoError(t, iteration[1].Run(other, rng))
		}
	})
	shimtest.NoLosses(t, server)
}
