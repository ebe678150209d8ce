package optical_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/transport"
	"lightpath/plans"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/path/optical"
	"lightpath/shim/result"
	"lightpath/shim/shimtest"
)

// TestCircuitsOverRDMA runs every collective over circuits of RDMA ports that a controller moves in the middle
// of them: every byte right, nothing lost, with acknowledgements on duplex circuits and without on simplex ones.
func TestCircuitsOverRDMA(t *testing.T) {
	for _, kind := range []plans.CircuitKind{plans.Duplex, plans.Simplex} {
		for _, name := range []string{"perstep", "swot"} {
			t.Run(fmt.Sprintf("%s-%s", kind, name), func(t *testing.T) {
				dev := shimtest.UseRDMACircuits(t, 4, 2, kind)
				t.Setenv("LIGHTPATH_PLANNER", name)
				t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
				t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
				w := shimtest.NewWorld(t, 4)
				rng := rand.New(rand.NewPCG(6, 6))
				for _, count := range []int{1, 40001} {
					w.RunAll(t, rng, count)
				}
				if n := len(optical.Of(w.Comms[0]).Packet); n > 0 && kind == plans.Simplex {
					t.Errorf("%d shapes ran on packet planes", n)
				}
				moved := 0
				for j, x := range dev.Planes {
					if n := x.Lost(); n != 0 {
						t.Errorf("plane %d has lost %d requests", j, n)
					}
					moved += int(circuits.Of(w.Comms[0]).Controller.State(j).Epoch)
				}
				if moved < 4 {
					t.Errorf("planes were moved %d times", moved)
				}
				w.Destroy()
			})
		}
	}
}

// TestSkippedDrainOverRDMA: a rank that asks for a switch with frames on the wire loses them. The call fails on
// every rank, and says what was lost where.
func TestSkippedDrainOverRDMA(t *testing.T) { shimtest.RetryUntilLost(t, skippedDrainOverRDMA) }

func skippedDrainOverRDMA(t *testing.T) bool {
	dev := shimtest.UseRDMACircuits(t, 4, 1, plans.Simplex)
	t.Setenv("LIGHTPATH_PLANNER", "perstep")
	t.Setenv("NCCL_IB_TIMEOUT", "17")
	t.Setenv("NCCL_IB_RETRY_CNT", "1")
	t.Setenv("LIGHTPATH_FAULT", "skip-drain:0:1") // after the move to where the plan begins
	w := shimtest.NewWorld(t, 4)
	errs := w.Each(func(c *shim.Comm) error {
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1<<18))})
	})
	if dev.Planes[0].Lost() == 0 {
		shimtest.NoErrors(t, errs)
		return false
	}
	for r, err := range errs {
		shimtest.WantError(t, err, transport.ErrDark, "rank ", "plane 0", "epoch ")
		if result.Of(err) != result.SystemError {
			t.Errorf("rank %d: result %d: %v", r, result.Of(err), err)
		}
	}
	return true
}

// TestRefusedOverRDMA: acknowledgements on circuits that lead one way are refused, with the reason.
func TestRefusedOverRDMA(t *testing.T) {
	shimtest.UseRDMACircuits(t, 2, 1, plans.Simplex)
	t.Setenv("LIGHTPATH_RDMA_MODE", "rc")
	id, err := shim.NewUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	_, err = shim.Init([]shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}})
	shimtest.WantError(t, err, errdefs.ErrInvalidUsage, "LIGHTPATH_RDMA_MODE=rc", "no way back for acknowledgements")
}
