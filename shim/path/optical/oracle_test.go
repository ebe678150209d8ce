package optical_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim/calls"
	"lightpath/shim/path/optical"
	"lightpath/shim/shimtest"
)

// TestOpticalOracle runs every collective on circuits, under each planner. If a planner has no plan for one, all ranks
// run it on packet planes.
func TestOpticalOracle(t *testing.T) {
	for _, c := range []struct {
		n       int
		planner string
		wait    string
		initial string
	}{
		{4, "swot", "1", "free"}, {4, "perstep", "1", "current"}, {4, "static", "1", "free"},
		{4, "harvest", "1", "current"}, {4, "auto", "0", "free"}, {3, "auto", "1", "free"}, {2, "auto", "0", "current"},
	} {
		t.Run(fmt.Sprintf("%d/%s/wait=%s/%s", c.n, c.planner, c.wait, c.initial), func(t *testing.T) {
			server := shimtest.UseEmulator(t, c.n, 2, nil)
			t.Setenv("LIGHTPATH_PLANNER", c.planner)
			t.Setenv("LIGHTPATH_PLAN_WAIT", c.wait)
			t.Setenv("LIGHTPATH_PLAN_INITIAL", c.initial)
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			rng := rand.New(rand.NewPCG(uint64(c.n), 7))
			w := shimtest.NewWorld(t, c.n)
			for _, size := range []int{0, 1, 1023, 20011} {
				for _, kind := range shimtest.OracleKinds {
					k := shimtest.Collective{
						Kind: kind, Type: datatype.Type(rng.IntN(int(datatype.NumTypes))),
						Op:   datatype.Op(rng.IntN(int(datatype.NumOps))),
						Root: rng.IntN(c.n), Count: size, InPlace: rng.IntN(3) == 0,
					}
					require.NoError(t, k.Run(w, rng))
				}
			}
			shimtest.NoLosses(t, server)
		})
	}
}

// TestMixedSteps runs algorithms whose steps hold several permutations, which the planners divide
// over the planes flow by flow, under the planners that do so.
func TestMixedSteps(t *testing.T) {
	for _, planner := range []string{"perstep", "swot", "weave", "auto"} {
		t.Run(planner, func(t *testing.T) {
			server := shimtest.UseEmulator(t, 4, 2, nil)
			t.Setenv("LIGHTPATH_PLANNER", planner)
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			t.Setenv("LIGHTPATH_PLAN_TOLERANCE", "0")
			t.Setenv("LIGHTPATH_ALGORITHM",
				"alltoall:bruck:3,allreduce:swing:2x2,allgather:pairwise:2@3.1.2,reducescatter:direct")
			rng := rand.New(rand.NewPCG(4, 7))
			w := shimtest.NewWorld(t, 4)
			for _, size := range []int{1, 1023, 20011} {
				for _, kind := range []calls.Kind{calls.AllToAll, calls.AllReduce, calls.AllGather, calls.ReduceScatter} {
					k := shimtest.Collective{Kind: kind, Type: datatype.Int32, Op: datatype.Sum, Count: size,
						InPlace: rng.IntN(2) == 0}
					require.NoError(t, k.Run(w, rng))
				}
			}
			if n := len(optical.Of(w.Comms[0]).Packet); n > 0 {
				t.Errorf("%d shapes ran on packet planes", n)
			}
			shimtest.NoLosses(t, server)
		})
	}
}
