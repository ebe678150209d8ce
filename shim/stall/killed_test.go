package stall_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/shim/shimtest"
)

// TestKilledRank: when a rank process dies in the middle of a collective, every other
// rank's call returns an error that names it; leader or not, on every path.
func TestKilledRank(t *testing.T) {
	for _, path := range []string{"arena", "regions", "frames", "tcp", "circuits", "elsewhere", "kernel"} {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s/%d", path, victim), func(t *testing.T) {
				shimtest.UsePath(t, path, 3)
				t.Setenv("LIGHTPATH_TIMEOUT", "60s")
				ranks := shimtest.StartRanks(t, 3)
				if path == "arena" || path == "regions" || path == "frames" {
					nameless(t, ranks[victim].Process.Pid)
				}
				require.NoError(t, ranks[victim].Process.Signal(unix.SIGKILL))
				for r, p := range ranks {
					s := <-p.LastLine
					if r == victim {
						continue
					}
					// The switch may be the first to notice, and names the port.
					if !strings.Contains(s, fmt.Sprintf("rank %d", victim)) && !strings.Contains(s, fmt.Sprintf("port %d", victim)) {
						t.Errorf("rank %d says %q", r, s)
					} else if strings.Contains(s, "timed out") {
						t.Errorf("rank %d has waited for its timeout: %q", r, s)
					}
				}
				for _, p := range ranks {
					_ = p.Wait() // the victim's status is its signal
				}
			})
		}
	}
}

// nameless checks that a segment that ranks have attached has no name any more, which a killed rank
// would leave.
func nameless(t *testing.T, pid int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	require.NoError(t, err)
	all := 0
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/dev/shm/lightpath-") {
			if all++; !strings.Contains(line, "(deleted)") {
				t.Errorf("a segment has a name still: %s", line)
			}
		}
	}
	if all == 0 {
		t.Errorf("no segment in\n%s", maps)
	}
}
