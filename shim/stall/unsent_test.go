package stall_test

import (
	"testing"

	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestReceiveWithoutSend: a rank receives from a rank that makes a collective instead, after both have exchanged
// messages. It is a mismatch, found by counts and not by the timeout.
func TestReceiveWithoutSend(t *testing.T) {
	for _, path := range []string{"arena", "frames", "tcp"} {
		t.Run(path, func(t *testing.T) {
			shimtest.UsePath(t, path, 3)
			t.Setenv("LIGHTPATH_TIMEOUT", "60s")
			w := shimtest.NewWorld(t, 3)
			w.Must(func(c *shim.Comm) error {
				if c.Rank == 1 {
					return nil
				}
				return exchange(c, w.Comms[2-c.Rank])
			})
			for _, err := range w.Each(func(c *shim.Comm) error {
				call := shimtest.AllReduce(c, make([]float32, 1000))
				if c.Rank == 0 {
					call.Kind, call.Peer = calls.Recv, 2
				}
				return shim.Run([]calls.Call{call})
			}) {
				shimtest.WantError(t, err, errdefs.ErrMismatch,
					"rank 0 has called 2 receives from rank 2, which has called 1 sends to it",
					"rank 2 in operation 1, ")
			}
		})
	}
}
