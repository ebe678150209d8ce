package program

import (
	"slices"
	"testing"
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
