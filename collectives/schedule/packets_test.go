package schedule

import (
	"testing"

	"lightpath/internal/require"
)

// TestPackets compares rounds and chunks with numbers made by hand.
func TestPackets(t *testing.T) {
	for _, k := range []struct {
		of             Collective
		algorithm      string
		ranks          int
		rounds, blocks int // blocks: of the call's count elements
	}{
		{AllToAll, "pairwise", 8, 1, 7}, // steps do not depend on each other
		{AllToAll, "bruck", 8, 3, 12},   // three exchanges of half of the blocks
		{AllReduce, "recursive-doubling-xor", 8, 3, 3},
		{AllReduce, "ring", 4, 6, 0},               // six quarters
		{AllGather, "ring", 4, 3, 3},               // each passes on what it has received
		{AllGather, "recursive-doubling", 4, 2, 3}, // one block, then two
		{ReduceScatter, "pairwise", 4, 1, 3},       // each sends its own values only
		{Broadcast, "binomial", 8, 3, 3},
		{Gather, "direct", 8, 1, 7}, // the root receives all
	} {
		s, err := Build(k.of, k.algorithm, k.ranks, 0, Disjoint)
		require.NoError(t, err)
		rounds, chunks := s.Packets()
		if want := k.blocks * s.Sub; k.blocks > 0 && chunks != want || rounds != k.rounds {
			t.Errorf("%v %s: %d rounds, %d chunks of 1/%d block; want %d rounds, %d blocks", k.of, k.algorithm, rounds,
				chunks, s.Sub, k.rounds, k.blocks)
		}
	}
}
