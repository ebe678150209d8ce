package shares_test

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/session"
	"lightpath/shim/shares"
	"lightpath/shim/shimtest"
)

// TestSharesLateInCalls is TestSharesLate with calls. Between the leader's proposal and its arrival, rank 1 runs ahead
// as a root of broadcasts, which waits for no rank.
func TestSharesLateInCalls(t *testing.T) {
	w := newSharing(t, 2, 2)
	broadcast := func(c *shim.Comm) error {
		buf := []float32{float32(c.Rank)}
		p := unsafe.Pointer(unsafe.SliceData(buf))
		if err := shim.Run([]calls.Call{{Comm: c, Kind: calls.Broadcast, Type: datatype.Float32, Count: 1, Peer: 1, Send: p,
			Recv: p}}); err != nil {
			return err
		}
		if buf[0] != 1 {
			return fmt.Errorf("rank %d has got %v", c.Rank, buf[0])
		}
		return nil
	}
	type ran struct {
		ahead int
		err   error
	}
	passed := make(chan ran, 1)
	lead := shares.Of(w.Comms[0]).Lead
	send := lead.Send
	lead.Send = func(m *control.Message) {
		if m.Arg == shares.SharesPropose && passed != nil {
			var r ran
			for r.err == nil && session.Of(w.Comms[1]).Seq < shares.WordsOf(m.Body, 3)[0] {
				r.err = broadcast(w.Comms[1])
				r.ahead++
			}
			passed <- r
			passed = nil
		}
		send(m)
	}
	done := passed
	see(w, 0, func(int) []uint64 { return []uint64{900, 100} })
	r := <-done
	if r.err != nil || r.ahead == 0 {
		t.Fatalf("rank 1 is %d operations ahead: %v", r.ahead, r.err)
	}
	for range r.ahead {
		require.NoError(t, broadcast(w.Comms[0]))
	}
	if !shimtest.Eventually(func() bool {
		w.Must(func(c *shim.Comm) error { return gatherOne(c, 1) })
		units, all := inForce(w)
		if !all {
			t.Fatalf("ranks differ: %v", units)
		}
		return units != nil
	}) {
		t.Error("no shares have been agreed on after those that were refused")
	}
}

// TestSharesAllocateNothing: calls that are measured, by even shares and by others, all ranks on one thread.
func TestSharesAllocateNothing(t *testing.T) {
	for name, units := range map[string][]int{"even": nil, "uneven": {3 * shares.ShareTotal / 4, shares.ShareTotal / 4}} {
		t.Run(name, func(t *testing.T) {
			w := newSharing(t, 2, 2)
			var calls []calls.Call
			for _, c := range w.Comms {
				calls = append(calls, shimtest.AllReduce(c, make([]float32, 4*shares.PaceBytes/4)))
				c.Turn.Lock()
				if p := shares.Of(c); units != nil {
					p.Version, p.Units = 1, units
				}
				// No window ends, so no other shares result. TestWindow measures the cost of a window's end.
				shares.Of(c).Window.Ops, shares.Of(c).Window.Since = 1, math.MaxInt64
				c.Turn.Unlock()
			}
			w.AllocatesNothing(t, calls)
			for r, c := range w.Comms {
				if shares.Of(c).Window.Ops < 1+20 {
					t.Errorf("rank %d: %d operations have been measured", r, shares.Of(c).Window.Ops-1)
				}
			}
		})
	}
}
