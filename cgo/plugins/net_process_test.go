package plugins

import (
	"fmt"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/shimtest"
)

// TestKilledRank kills a rank's process in the middle of a collective. All others get an error that names it.
func TestKilledRank(t *testing.T) {
	const ranks, victim = 3, 2
	useNet(t, version(t, newest), "")
	all := shimtest.StartRanks(t, ranks)
	require.NoError(t, all[victim].Process.Kill())
	for r := range victim {
		if s := <-all[r].LastLine; !strings.HasPrefix(s, "error: ") || !strings.Contains(s, fmt.Sprintf("rank %d", victim)) {
			t.Errorf("rank %d says %q", r, s)
		}
	}
}
