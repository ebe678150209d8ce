package optical_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/shim/session"
	"lightpath/shim/shimtest"
)

// TestPodsOracle runs every collective on circuits of fabrics whose pods are not in the order of ranks. The results are
// right, and the programs place the ranks of a pod next to each other.
func TestPodsOracle(t *testing.T) {
	for _, pods := range [][][]int{{{0, 2}, {1, 3}}, {{0, 3}, {1, 4}, {2, 5}}, {{4, 0, 2}, {1, 3}}} {
		n := 0
		for _, pod := range pods {
			n += len(pod)
		}
		t.Run(fmt.Sprint(pods), func(t *testing.T) {
			server := shimtest.UseEmulator(t, n, 2, func(f *fabric.Fabric) { f.Pods = pods })
			t.Setenv("LIGHTPATH_PLANNER", "perstep")
			t.Setenv("LIGHTPATH_PLAN_WAIT", "1")
			t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
			rng := rand.New(rand.NewPCG(uint64(n), 7))
			w := shimtest.NewWorld(t, n)
			for _, size := range []int{1, 1023, 5003} {
				for _, kind := range shimtest.OracleKinds {
					k := shimtest.Collective{
						Kind: kind, Type: datatype.Type(rng.IntN(int(datatype.NumTypes))),
						Op:   datatype.Op(rng.IntN(int(datatype.NumOps))),
						Root: rng.IntN(n), Count: size, InPlace: rng.IntN(3) == 0,
					}
					require.NoError(t, k.Run(w, rng))
				}
			}
			shimtest.NoLosses(t, server)
			seated := 0
			for s, e := range session.Of(w.Comms[0]).Programs.Programs {
				if e.Plan != nil && !strings.Contains(e.Algorithm, "~") {
					t.Errorf("%v ran %s, as if there were no pods", s.Kind, e.Algorithm)
				}
				if e.Plan != nil {
					seated++
				}
			}
			if seated == 0 {
				t.Error("nothing ran on circuits")
			}
		})
	}
}
