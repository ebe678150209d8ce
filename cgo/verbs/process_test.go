package verbs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/internal/require"
	"lightpath/shim/endpoints"
	"lightpath/shim/shimtest"
)

// TestMain gives verbs also to the ranks that tests start as processes.
func TestMain(m *testing.M) {
	endpoints.UseVerbs(Library{})
	shimtest.Main(m, nil)
}

// rankProcesses starts a communicator's ranks as processes, and returns when all make calls.
func rankProcesses(t *testing.T, ranks int, timeout string) []*shimtest.RankProcess {
	t.Helper()
	rdmaEnvironment(t, len(ends(t)))
	t.Setenv("LIGHTPATH_TIMEOUT", timeout)
	return shimtest.StartRanks(t, ranks)
}

// fails waits for a rank's error, and checks that it contains all of the texts.
func fails(t *testing.T, rank int, p *shimtest.RankProcess, want ...string) string {
	t.Helper()
	begin := time.Now()
	s := <-p.LastLine
	t.Logf("rank %d after %v: %s", rank, time.Since(begin).Round(time.Millisecond), s)
	for _, w := range append(want, "error: ") {
		if !strings.Contains(s, w) {
			t.Errorf("rank %d does not say %q: %q", rank, w, s)
		}
	}
	return s
}

// TestKilledRank kills a rank's process in the middle of a collective. All others get an error that names it.
func TestKilledRank(t *testing.T) {
	const ranks, victim = 3, 2
	all := rankProcesses(t, ranks, "60s")
	require.NoError(t, all[victim].Process.Kill())
	for r := range victim {
		fails(t, r, all[r], fmt.Sprintf("rank %d", victim))
	}
}

// TestStoppedRank stops a rank's process while its devices continue. Within the timeout, all others get an error that
// names the rank, and the plane if a transfer had begun. When the process continues, it gets an error, too.
func TestStoppedRank(t *testing.T) {
	const ranks, victim = 3, 2
	all := rankProcesses(t, ranks, "20s")
	require.NoError(t, all[victim].Process.Signal(unix.SIGSTOP))
	for r := range victim {
		s := fails(t, r, all[r], "timed out", fmt.Sprintf("rank %d", victim), fmt.Sprintf("process %d) is stopped",
			all[victim].Process.Pid))
		if !strings.Contains(s, "plane ") && !strings.Contains(s, fmt.Sprintf("rank %d did not arrive", victim)) {
			t.Errorf("rank %d does not say where: %q", r, s)
		}
	}
	require.NoError(t, all[victim].Process.Signal(unix.SIGCONT))
	fails(t, victim, all[victim])
}
