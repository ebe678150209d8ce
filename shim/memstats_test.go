package shim

import (
	"testing"

	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
)

// TestMemStats: calls leave memory behind, which Suspend gives back.
func TestMemStats(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring")
	w := newWorld(t, 2)
	c := w.comms[0]
	stat := func(s MemStat) uint64 {
		n, err := MemStats(c, s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if stat(MemSuspend) != 0 || stat(MemPersist) < 4096 || stat(MemSuspended) != 0 {
		t.Errorf("at first: %d %d %d", stat(MemSuspend), stat(MemPersist), stat(MemSuspended))
	}
	w.must(func(c *Comm) error { return Run([]calls.Call{allReduce(c, make([]float32, 5000))}) })
	if n := stat(MemSuspend); n == 0 || stat(MemTotal) != n+stat(MemPersist) {
		t.Errorf("after a call: %d of %d", n, stat(MemTotal))
	}
	if err := c.Suspend(); err != nil {
		t.Fatal(err)
	}
	if stat(MemSuspend) != 0 || stat(MemSuspended) != 1 {
		t.Errorf("suspended: %d %d", stat(MemSuspend), stat(MemSuspended))
	}
	_, err := MemStats(c, 9)
	wantError(t, err, errdefs.ErrInvalidArgument, "9")
	if err := c.Destroy(); err != nil {
		t.Fatal(err)
	}
	_, err = MemStats(c, MemTotal)
	wantError(t, err, errdefs.ErrDestroyed)
}
