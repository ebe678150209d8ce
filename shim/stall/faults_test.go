package stall_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lightpath/collectives/transport"
	"lightpath/shim"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/shimtest"
	"lightpath/shim/stall"
	"lightpath/shim/status"
)

// TestFaultIsNamedFirst: a rank that fails first names the plane that another rank has lost, not the ranks and the
// plane for which it waited itself. Mistakes of the program have no plane.
func TestFaultIsNamedFirst(t *testing.T) {
	for _, k := range []struct {
		class error
		named bool
	}{
		{errdefs.ErrTimeout, true}, {errdefs.ErrRemote, true}, {transport.ErrDark, true}, {errdefs.ErrAborted, false},
		{fmt.Errorf("send: %w", unix.ENETUNREACH), true}, {errdefs.ErrMismatch, false},
	} {
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
		_ = w.Comms[1].Fail(fmt.Errorf("shim: rank 1: receive from rank 0 (plane 0): %w", k.class))
		w.Each(func(c *shim.Comm) error { <-c.FailedChan(); return nil })
		for _, c := range w.Comms {
			err := c.AsyncError()
			if !strings.Contains(err.Error(), "receive from rank 0") || result.Of(err) != result.Of(k.class) ||
				strings.HasPrefix(err.Error(), "shim: plane 1 of rank 2 (") != k.named {
				t.Errorf("%v: rank %d: %v", k.class, c.Rank, err)
			}
		}
	}
}
