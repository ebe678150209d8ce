package shim_test

import (
	"testing"

	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/report"
	"lightpath/shim/shimtest"
)

// TestMemStats: calls leave memory behind, which Suspend gives back.
func TestMemStats(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring")
	w := shimtest.NewWorld(t, 2)
	c := w.Comms[0]
	stat := func(s report.MemStat) uint64 {
		n, err := report.MemStats(c, s)
		require.NoError(t, err)
		return n
	}
	if stat(report.MemSuspend) != 0 || stat(report.MemPersist) < 4096 || stat(report.MemSuspended) != 0 {
		t.Errorf("at first: %d %d %d", stat(report.MemSuspend), stat(report.MemPersist), stat(report.MemSuspended))
	}
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 5000))}) })
	if n := stat(report.MemSuspend); n == 0 || stat(report.MemTotal) != n+stat(report.MemPersist) {
		t.Errorf("after a call: %d of %d", n, stat(report.MemTotal))
	}
	require.NoError(t, c.Suspend())
	if stat(report.MemSuspend) != 0 || stat(report.MemSuspended) != 1 {
		t.Errorf("suspended: %d %d", stat(report.MemSuspend), stat(report.MemSuspended))
	}
	_, err := report.MemStats(c, 9)
	shimtest.WantError(t, err, errdefs.ErrInvalidArgument, "9")
	require.NoError(t, c.Destroy())
	_, err = report.MemStats(c, report.MemTotal)
	shimtest.WantError(t, err, errdefs.ErrDestroyed)
}
