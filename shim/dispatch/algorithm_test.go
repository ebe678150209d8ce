package dispatch

import (
	"testing"

	"lightpath/collectives/schedule"
)

// TestChooseAlgorithm: the edges of the rows that were measured, and that every choice is defined.
func TestChooseAlgorithm(t *testing.T) {
	for _, k := range []struct {
		coll  schedule.Collective
		block int64
		ranks int
		want  string
	}{
		{schedule.AllReduce, 16 << 10, 4, "recursive-doubling-xor"},
		{schedule.AllReduce, 16<<10 + 1, 4, "rabenseifner"},
		{schedule.AllReduce, 16 << 20, 4, "rabenseifner"},
		{schedule.AllReduce, 16<<20 + 1, 4, "ring"},
		{schedule.AllReduce, 16 << 20, 2, "rabenseifner"},
		{schedule.AllReduce, 1 << 20, 8, "rabenseifner"},
		{schedule.AllReduce, 1<<20 + 1, 8, "ring"},
		{schedule.AllReduce, 2 << 20, 3, "ring"},
		{schedule.AllReduce, 32 << 10, 3, "recursive-doubling-xor"},
		{schedule.AllGather, 16 << 10, 4, "direct"},
		{schedule.AllGather, 16<<10 + 1, 4, "bruck"},
		{schedule.AllGather, 8, 5, "bruck"},
		{schedule.AllGather, 64 << 10, 4, "bruck"},
		{schedule.AllGather, 64<<10 + 1, 4, "ring"},
		{schedule.ReduceScatter, 16 << 10, 4, "pairwise"},
		{schedule.ReduceScatter, 16<<10 + 1, 4, "rabenseifner"},
		{schedule.ReduceScatter, 64 << 10, 5, "pairwise"},
		{schedule.ReduceScatter, 64<<10 + 1, 4, "ring"},
		{schedule.ReduceScatter, 64<<10 + 1, 2, "pairwise"},
		{schedule.ReduceScatter, 8, 8, "rabenseifner"},
	} {
		if got := Choose(k.coll, k.block, k.ranks, Packets, nil); got != k.want {
			t.Errorf("%v of %d bytes on %d ranks: %s, want %s", k.coll, k.block, k.ranks, got, k.want)
		}
	}
	for coll := schedule.Collective(0); coll < schedule.NumCollectives; coll++ {
		for ranks := 1; ranks <= 17; ranks++ {
			for block := int64(1); block <= 1<<30; block *= 2 {
				for _, from := range []*Choices{Packets, Circuits} {
					if name := Choose(coll, block, ranks, from, nil); !schedule.Defined(coll, name, ranks) {
						t.Fatalf("%v of %d bytes on %d ranks: %s is not defined", coll, block, ranks, name)
					}
				}
			}
		}
	}
}
