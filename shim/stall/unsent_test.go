package stall_test

import (
	"sync"
	"testing"

	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
	"lightpath/shim/stall"
)

// TestReceiveWithoutSend: a rank receives from a rank that makes a collective instead, after both have exchanged
// messages. It is a mismatch, found by counts and not by the timeout.
func TestReceiveWithoutSend(t *testing.T) {
	var wg sync.WaitGroup
	for _, path := range []string{"arena", "frames", "tcp", "circuits"} {
		t.Setenv("LIGHTPATH_ALGORITHM", "")
		shimtest.UsePath(t, path, 3)
		t.Setenv("LIGHTPATH_TIMEOUT", "60s")
		w := shimtest.NewWorld(t, 3)
		wg.Go(func() { // each waits for its own stall
			shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error { return receiveOnly(w, c) }), errdefs.ErrMismatch,
				"rank 0 has called 2 receives from rank 2, which has called 1 sends to it", "rank 2 in operation 1, ")
		})
	}
	wg.Wait()
}

// receiveOnly exchanges messages between ranks 0 and 2. Then rank 0 receives, and the others make a collective.
func receiveOnly(w *shimtest.World, c *shim.Comm) error {
	if c.Rank != 1 {
		if err := exchange(c, w.Comms[2-c.Rank]); err != nil {
			return err
		}
	}
	call := shimtest.AllReduce(c, make([]float32, 1000))
	if c.Rank == 0 {
		call.Kind, call.Peer = calls.Recv, 2
	}
	return shim.Run([]calls.Call{call})
}

// TestUnsentByCounts: a message that has been sent, however slow its plane, is no mismatch, and neither is a wait of a
// rank that has called the collective.
func TestUnsentByCounts(t *testing.T) {
	w := shimtest.NewWorld(t, 2)
	c := w.Comms[1]
	stall.ReportAwaited(w.Comms[0], 1, stall.Awaited{Rank: 0, Messages: 2, Collectives: 5})
	unsent := func(seq, sends uint64) error {
		return stall.Unsent(c, seq, "AllReduce", func(int) uint64 { return sends })
	}
	if !shimtest.Eventually(func() bool { return unsent(6, 1) != nil }) {
		t.Error("no mismatch")
	}
	for _, ok := range [][2]uint64{{6, 2}, {6, 3}, {5, 1}} {
		if err := unsent(ok[0], ok[1]); err != nil {
			t.Errorf("operation %d, %d sends: %v", ok[0], ok[1], err)
		}
	}
}
