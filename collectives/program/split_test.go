package program

import (
	"errors"
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
		for _, p := range split.spread(src, 0, 8, nil) {
			planes = append(planes, p.plane)
		}
		if !slices.Equal(planes, want) {
			t.Errorf("rank %d uses planes %v, want %v", src, planes, want)
		}
	}
}

// TestPlanesAreIndependent checks that no instruction of a plane waits for one of another plane, and that planes carry
// equal parts, or their shares.
func TestPlanesAreIndependent(t *testing.T) {
	for name, c := range map[string]struct {
		collective schedule.Collective
		ranks      int
		shares     []int
	}{
		"rabenseifner": {schedule.AllReduce, 8, nil}, "ring": {schedule.AllReduce, 5, nil},
		"bruck": {schedule.AllGather, 7, nil}, "recursive-doubling": {schedule.AllGather, 8, []int{3, 1, 4}},
	} {
		s, err := schedule.Build(c.collective, name, c.ranks, 0)
		require.NoError(t, err)
		progs, err := lowerAll(s, nil, Args{Planes: 3, Shares: c.shares, Count: 1<<18 + 3, ElemSize: 4})
		require.NoError(t, err)
		for _, p := range progs {
			sent := make([]int64, 3)
			for i := range p.Code {
				in := &p.Code[i]
				if in.Kind == Send {
					sent[in.Plane] += in.Bytes
				}
				for _, dep := range in.Deps {
					if from := p.Code[dep].Plane; from >= 0 && in.Plane >= 0 && from != in.Plane {
						t.Fatalf("%s: rank %d: step %d on plane %d waits for plane %d",
							name, p.Rank, in.Step, in.Plane, from)
					}
				}
			}
			for j, n := range sent {
				want := (sent[0] + sent[1] + sent[2]) / 3
				if c.shares != nil {
					want = (sent[0] + sent[1] + sent[2]) * int64(c.shares[j]) / 8
				}
				if n < want*99/100 || n > want*101/100 {
					t.Errorf("%s: rank %d sends %d bytes, plane %d carries %d", name, p.Rank, want, j, n)
				}
			}
		}
	}
}

// TestMovesOnPlanes: a move of no chunk is refused on several planes, too. A move may pair chunks of different sizes,
// if all of them together are as long.
func TestMovesOnPlanes(t *testing.T) {
	s := &schedule.Schedule{Ranks: 2, Sub: 3, Blocks: [schedule.NumBuffers]int{schedule.Input: 1, schedule.Output: 2}}
	move := schedule.Move{Src: 0, Dst: 1, From: schedule.Ref{Buf: schedule.Input, Chunk: 1},
		To: schedule.Ref{Buf: schedule.Output, Chunk: 2}, Count: 2}
	s.Steps = []schedule.Step{{Transfers: []schedule.Move{move}}}
	args := Args{Planes: 2, Count: 5, ElemSize: 4, MinPiece: 2} // parts of 2, 2 and 1 elements
	progs, err := lowerAll(s, nil, args)
	require.NoError(t, err)
	sent, received := make([]bool, 20), make([]bool, 40)
	touch := func(of []bool, list []Segment) {
		for _, g := range list {
			for at := g.Off; at < g.Off+g.Len; at++ {
				if of[at] {
					t.Errorf("byte %d twice", at)
				}
				of[at] = true
			}
		}
	}
	for i := range progs[0].Code {
		touch(sent, progs[0].Code[i].Src)
	}
	for i := range progs[1].Code {
		touch(received, progs[1].Code[i].Dst)
	}
	for at := range received {
		if at < len(sent) && sent[at] != (at >= 8) || received[at] != (at >= 16 && at < 28) {
			t.Errorf("byte %d: sent %v\nreceived %v", at, sent, received)
		}
	}
	s.Steps[0].Transfers[0].Count = 0
	if _, err := lowerAll(s, nil, args); !errors.Is(err, ErrSchedule) {
		t.Errorf("a move of no chunk: %v", err)
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
