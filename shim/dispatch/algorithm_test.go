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
		{schedule.AllReduce, 128 << 10, 4, "rabenseifner"},
		{schedule.AllReduce, 128<<10 + 1, 4, "ring"},
		{schedule.AllReduce, 256 << 10, 8, "rabenseifner"},
		{schedule.AllReduce, 256<<10 + 1, 8, "ring"},
		{schedule.AllReduce, 2 << 20, 3, "ring"},
		{schedule.AllReduce, 32 << 10, 3, "recursive-doubling-xor"},
		{schedule.AllGather, 32 << 10, 4, "direct"},
		{schedule.AllGather, 32<<10 + 1, 4, "ring"},
		{schedule.AllGather, 16 << 10, 5, "bruck"},
		{schedule.AllGather, 16<<10 + 1, 5, "direct"},
		{schedule.AllGather, 32<<10 + 1, 5, "ring"},
		{schedule.ReduceScatter, 32 << 10, 4, "pairwise"},
		{schedule.ReduceScatter, 32<<10 + 1, 4, "ring"},
		{schedule.ReduceScatter, 16 << 10, 8, "rabenseifner"},
		{schedule.ReduceScatter, 16<<10 + 1, 8, "pairwise"},
		{schedule.ReduceScatter, 32 << 10, 5, "pairwise"},
		{schedule.ReduceScatter, 64<<10 + 1, 2, "pairwise"},
	} {
		if got := Choose(k.coll, k.block, k.ranks, PacketChoices("tcp"), nil); got != k.want {
			t.Errorf("%v of %d bytes on %d ranks: %s, want %s", k.coll, k.block, k.ranks, got, k.want)
		}
	}
	if got := Choose(schedule.AllReduce, 1<<20, 8, PacketChoices("rdma"), nil); got != "rabenseifner" {
		t.Errorf("RDMA: AllReduce of 1 MiB on 8 ranks: %s", got)
	}
	for coll := schedule.Collective(0); coll < schedule.NumCollectives; coll++ {
		for ranks := 1; ranks <= 17; ranks++ {
			for block := int64(1); block <= 1<<30; block *= 2 {
				for _, from := range []*Choices{PacketChoices("tcp"), PacketChoices("rdma"), Circuits} {
					if name := Choose(coll, block, ranks, from, nil); !schedule.Defined(coll, name, ranks) {
						t.Fatalf("%v of %d bytes on %d ranks: %s is not defined", coll, block, ranks, name)
					}
				}
			}
		}
	}
}
