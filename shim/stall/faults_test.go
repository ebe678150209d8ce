package stall_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lightpath/shim"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
	"lightpath/shim/stall"
	"lightpath/shim/status"
)

// TestFaultIsNamedFirst: a rank that gives up first names the plane that another rank has lost, not the ranks and the
// plane for which it waited itself.
func TestFaultIsNamedFirst(t *testing.T) {
	w := shimtest.NewWorld(t, 3)
	w.Comms[2].AddHooks(comm.Hooks{Faults: func(time.Duration) []status.Fault {
		return []status.Fault{{Plane: 1, Peer: -1, Seen: "interface e1 has no carrier"}}
	}})
	stall.ReportFaults(w.Comms[2])
	for _, c := range w.Comms {
		if !shimtest.Eventually(func() bool { return c.Above.Verdict() != "" }) {
			t.Fatalf("rank %d is not told", c.Rank)
		}
	}
	_ = w.Comms[1].Fail(fmt.Errorf("shim: rank 1: receive from rank 0 (plane 0): %w", errdefs.ErrTimeout))
	w.Each(func(c *shim.Comm) error { <-c.FailedChan(); return nil })
	for _, c := range w.Comms {
		err := c.AsyncError()
		shimtest.WantError(t, err, errdefs.ErrTimeout, "receive from rank 0")
		if !strings.HasPrefix(err.Error(), "shim: plane 1 of rank 2 (") {
			t.Errorf("rank %d: %v", c.Rank, err)
		}
	}
}
