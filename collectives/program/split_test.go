package program

import (
	"slices"
	"testing"

	"lightpath/collectives/schedule"
	"lightpath/internal/require"
)

// TestSmallFlowsAvoidSlowPlanes checks that a flow of few pieces uses planes with at least half of an even share.
func TestSmallFlowsAvoidSlowPlanes(t *testing.T) {
	split := packetSplit{planes: 4, shares: []int{40, 4, 40, 16}, minPiece: 16, elem: 4}
	for src, want := range [][]int{{0, 2}, {2, 3}, {3, 0}, {0, 2}} {
		var planes []int
		for _, p := range split.spread(src, 0, 0, 8, nil) {
			planes = append(planes, p.plane)
		}
		if !slices.Equal(planes, want) {
			t.Errorf("rank %d uses planes %v, want %v", src, planes, want)
		}
	}
}

// TestSmallFlowsUseAllPlanes checks that planes have equal parts of the flows that a rank may send or receive at once.
func TestSmallFlowsUseAllPlanes(t *testing.T) {
	for _, coll := range []schedule.Collective{schedule.AllToAll, schedule.AllGather, schedule.ReduceScatter} {
		for _, algorithm := range []string{"pairwise", "pairwise-xor", "direct"} {
			for _, n := range []int{4, 8, 16} {
				s, err := schedule.Build(coll, algorithm, n, 0)
				require.NoError(t, err)
				for _, planes := range []int{2, 4} {
					progs, err := lowerAll(s, nil, Args{Planes: planes, Count: 1, ElemSize: 4})
					require.NoError(t, err)
					most := (n - 1 + planes - 1) / planes
					if algorithm == "pairwise-xor" { // distances do not follow the steps
						most++
					}
					for r, p := range progs {
						for j, l := range p.Lanes {
							if len(l.TX) > most || len(l.RX) > most {
								t.Errorf("%v, %s, %d ranks: rank %d sends %d flows and receives %d on plane %d of %d",
									coll, algorithm, n, r, len(l.TX), len(l.RX), j, planes)
							}
						}
					}
				}
			}
		}
	}
}

// TestSmallFlowsOfAPairTakeTurns checks that consecutive chunks from one rank to the next use planes by turns.
func TestSmallFlowsOfAPairTakeTurns(t *testing.T) {
	const planes = 3
	s, err := schedule.Build(schedule.Broadcast, "ring", 6, 0)
	require.NoError(t, err)
	progs, err := lowerAll(s, nil, Args{Planes: planes, Count: 6, ElemSize: 4})
	require.NoError(t, err)
	for j, l := range progs[0].Lanes {
		if len(l.TX) != 6/planes {
			t.Errorf("plane %d carries %d of 6 chunks", j, len(l.TX))
		}
	}
}
