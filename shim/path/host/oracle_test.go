package host_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim/calls"
	"lightpath/shim/shimtest"
)

// TestOracle samples every dimension: collective, type, operator, root, size, in place or
// not, alignment, ranks, transport and number of planes.
func TestOracle(t *testing.T) {
	for _, transport := range []string{"inproc", "shm", "tcp"} {
		for _, n := range []int{1, 2, 3, 5, 8} {
			if testing.Short() && n > 3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", transport, n), func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
				t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(1+n%3))
				rng := rand.New(rand.NewPCG(uint64(n), uint64(len(transport))))
				w := shimtest.NewWorld(t, n)
				for _, size := range shimtest.OracleSizes {
					for _, kind := range shimtest.OracleKinds {
						require.NoError(t, shimtest.RandomCollective(rng, kind, n, size).Run(w, rng))
					}
				}
			})
		}
	}
}

// TestEveryTypeAndOperator is exhaustive in what a kernel is chosen by where each rank reduces a part. Short calls and
// programs are in [TestEveryTypeAndOperatorOnEveryPath].
func TestEveryTypeAndOperator(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	rng := rand.New(rand.NewPCG(1, 1))
	w := shimtest.NewWorld(t, 3)
	for _, kind := range []calls.Kind{calls.AllReduce, calls.Reduce} {
		for typ := range datatype.NumTypes {
			if testing.Short() && typ%4 != 2 { // int32, float16 and an 8-bit float are left
				continue
			}
			for op := range datatype.NumOps {
				k := shimtest.Collective{Kind: kind, Type: typ, Op: op, Root: 1, Count: 40009, InPlace: op%2 == 1}
				assert.NoError(t, k.Run(w, rng))
			}
		}
	}
}

// TestEveryAlgorithm runs each algorithm by its override.
func TestEveryAlgorithm(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, kind := range shimtest.OracleKinds {
		coll := calls.Kinds[kind].Collective
		for _, name := range append(schedule.Algorithms(coll), "bruck:3", "swing:2x2", "pairwise:2@3.1.2",
			"rabenseifner@1.0") {
			if !schedule.Defined(coll, name, 4) {
				continue
			}
			t.Run(coll.String()+"/"+name, func(t *testing.T) {
				t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
				t.Setenv("LIGHTPATH_ALGORITHM", coll.String()+":"+name)
				w := shimtest.NewWorld(t, 4)
				for _, inPlace := range []bool{false, true} {
					k := shimtest.Collective{Kind: kind, Type: datatype.Int32, Root: 2, Count: 101, InPlace: inPlace}
					assert.NoError(t, k.Run(w, rng))
				}
			})
		}
	}
}
