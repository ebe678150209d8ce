package optical_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/shimtest"
)

// iteration is the calls of an iteration whose plans have other circuits.
var iteration = []shimtest.Collective{
	{Kind: calls.AllReduce, Type: datatype.Float32, Count: 20000},
	{Kind: calls.AllToAll, Type: datatype.Float32, Count: 8000},
	{Kind: calls.AllGather, Type: datatype.Float32, Count: 3000},
}

// TestIterationAhead checks that a repeating sequence is learnt: its tickets go out ahead, and each plan ends where the
// next one begins.
func TestIterationAhead(t *testing.T) {
	server := shimtest.UseEmulator(t, 4, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "50ms")
	w := shimtest.NewWorld(t, 4)
	rng := rand.New(rand.NewPCG(1, 2))
	l := live.Of(w.Comms[0])
	learnt := shimtest.Eventually(func() bool {
		for _, k := range iteration {
			require.NoError(t, k.Run(w, rng))
		}
		hits, _ := l.Predictions()
		return hits >= 10*uint64(len(iteration))
	})
	if hits, misses := l.Predictions(); !learnt || misses > 3 {
		t.Fatalf("%d tickets that went out ahead were used, %d were not", hits, misses)
	}
	for _, c := range w.Comms {
		if n := circuits.Of(c).Uses(); n.Ahead < 10 {
			t.Errorf("rank %d: %+v", c.Rank, n)
		}
	}
	shimtest.NoLosses(t, server)
}

// TestMispredictions runs traces that repeat only in part. Results are those of the calls, whatever was predicted.
func TestMispredictions(t *testing.T) {
	server := shimtest.UseEmulator(t, 3, 2, nil)
	t.Setenv("LIGHTPATH_PLAN_LIMIT", "20ms")
	w := shimtest.NewWorld(t, 3)
	rng := rand.New(rand.NewPCG(3, 4))
	l := live.Of(w.Comms[0])
	other := shimtest.Collective{Kind: calls.Broadcast, Type: datatype.Int32, Count: 777}
	small := shimtest.Collective{Kind: calls.AllReduce, Type: datatype.Float32, Count: 20001}
	run := func(k shimtest.Collective) {
		t.Helper()
		if err := k.Run(w, rng); err != nil {
			t.Fatalf("%+v: %v", k, err)
		}
	}
	deadline := time.Now().Add(40 * time.Second)
	missed := func() bool { _, misses := l.Predictions(); return misses >= 10 }
	for n := 0; !missed() && time.Now().Before(deadline) || n < 60; n++ {
		for i, k := range iteration {
			switch r := rng.IntN(20); {
			case r == 0 && n > 5:
				run(other)
			case r == 1 && n > 5:
				run(small)
			case r == 2 && i == 1 && n > 5:
				continue // it does not come
			}
			run(k)
		}
	}
	hits, misses := l.Predictions()
	if t.Log(fmt.Sprintf("%d hits, %d misses", hits, misses)); hits == 0 || misses == 0 {
		t.Error("nothing was predicted, or all of it rightly")
	}
	shimtest.NoLosses(t, server)
}
