package report_test

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/traced"
	"lightpath/internal/require"
	"lightpath/plans/fabric"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/shim/calls"
	"lightpath/shim/flight"
	"lightpath/shim/flight/job"
	"lightpath/shim/recorder"
	"lightpath/shim/shimtest"
)

// TestIterationOfRecorders: the recorders of ranks on circuits give the iteration that the ranks repeated, with its
// gaps, and it has a plan on their fabric.
func TestIterationOfRecorders(t *testing.T) {
	shimtest.UseEmulator(t, 4, 2, nil)
	shimtest.UseStatusDir(t)
	t.Setenv("LIGHTPATH_ALGORITHM", "allreduce:ring,alltoall:pairwise")
	w := shimtest.NewWorld(t, 4)
	const gap = 5 * time.Millisecond
	for range 4 {
		for _, kind := range []calls.Kind{calls.AllReduce, calls.AllToAll, calls.AllToAll} {
			k := shimtest.Collective{Kind: kind, Type: datatype.Float32, Count: 10000}
			require.NoError(t, k.Run(w, rand.New(rand.NewPCG(1, 1))))
			time.Sleep(gap)
		}
	}
	var dumps []*flight.Dump
	for _, c := range w.Comms {
		text, err := recorder.Dump(c)
		require.NoError(t, err)
		d, err := flight.Decode(text)
		require.NoError(t, err)
		dumps = append(dumps, d)
	}
	found, err := job.Find(dumps)
	require.NoError(t, err)
	var kinds []string
	for _, c := range found.Trace.Calls {
		kinds = append(kinds, c.Collective+" "+c.Algorithm)
	}
	slices.Sort(kinds)
	if want := []string{"allreduce ring", "alltoall pairwise", "alltoall pairwise"}; !slices.Equal(kinds, want) {
		t.Fatalf("%v, want %v", kinds, want)
	}
	for _, c := range found.Trace.Calls {
		if want := map[string]float64{"allreduce": 40000, "alltoall": 160000}[c.Collective]; c.Bytes != want {
			t.Errorf("%s of %v bytes, want %v", c.Collective, c.Bytes, want)
		}
	}
	if us := float64(gap.Microseconds()); found.Repeats() < 3 || found.Trace.Longest(nil) < 3*us {
		t.Errorf("%d repeats, computation %v us", found.Repeats(), found.Trace.Longest(nil))
	}
	f, err := fabric.Load(os.Getenv("LIGHTPATH_FABRIC"))
	require.NoError(t, err)
	p, err := traced.Pose(f, found.Trace)
	require.NoError(t, err)
	compared, err := iteration.Compare(context.Background(), p, iteration.Options{})
	require.NoError(t, err)
	if _, err := check.Check(p, compared.Plan); err != nil {
		t.Error(err)
	}
}
