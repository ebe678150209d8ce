package shim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"lightpath/collectives/datatype"
)

// soakTime is how long TestSoak runs: moments, or in `make test-long` as long as
// LIGHTPATH_TEST_LONG says ("1" is ten minutes).
func soakTime(t *testing.T) time.Duration {
	switch v := os.Getenv("LIGHTPATH_TEST_LONG"); v {
	case "":
		if testing.Short() {
			t.Skip("-short; make test-long runs it for ten minutes")
		}
		return 2 * time.Second
	case "1":
		return 10 * time.Minute
	default:
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("LIGHTPATH_TEST_LONG: %v", err)
		}
		return d
	}
}

// TestSoak makes one communicator after another, of random size over random planes, and
// runs random collectives on each against the oracle. Nothing may differ, hang or be left.
func TestSoak(t *testing.T) {
	end := time.Now().Add(soakTime(t))
	before := openFiles(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	worlds, calls := 0, 0
	for ; time.Now().Before(end); worlds++ {
		transport := []string{"inproc", "shm", "tcp", "circuits"}[rng.IntN(4)]
		n := 1 + rng.IntN(8)
		t.Run(fmt.Sprintf("%s/%d", transport, n), func(t *testing.T) {
			t.Setenv("LIGHTPATH_PLANES", fmt.Sprint(1+rng.IntN(3)))
			if transport == "circuits" {
				lightFabric(t, n, 1+rng.IntN(3), nil)
				t.Setenv("LIGHTPATH_PLANNER", []string{"perstep", "harvest", "swot", "auto"}[rng.IntN(4)])
				t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
			} else {
				t.Setenv("LIGHTPATH_TRANSPORT", transport)
			}
			w := newWorld(t, n)
			for range 1 + rng.IntN(40) {
				k := randomCase(rng, n)
				if err := k.run(w, rng); err != nil {
					t.Fatalf("seed %d: %v: %v", seed, k, err)
				}
				if calls++; time.Now().After(end) {
					return
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d communicators, %d collectives", worlds, calls)
	if after := openFiles(t); after > before {
		t.Errorf("%d files open, %d at the start", after, before)
	}
}

// randomCase draws a call; counts are spread evenly over orders of magnitude.
func randomCase(rng *rand.Rand, n int) collectiveCase {
	return collectiveCase{
		kind: oracleKinds[rng.IntN(len(oracleKinds))], typ: datatype.Type(rng.IntN(int(datatype.NumTypes))),
		op: datatype.Op(rng.IntN(int(datatype.NumOps))), root: rng.IntN(n),
		count:   int(math.Exp(rng.Float64()*math.Log(100_000))) - rng.IntN(2),
		inPlace: rng.IntN(3) == 0, skew: rng.IntN(2) * rng.IntN(8),
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
