package traced

import (
	"context"
	"fmt"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/delta/calls"
	"lightpath/plans/delta/train"
	"lightpath/plans/iteration"
	"lightpath/plans/iteration/check"
	"lightpath/plans/iteration/play"
	"lightpath/plans/iteration/trace"
)

func fabricOf(ranks, planes int, reconfig float64) *plans.Problem {
	return &plans.Problem{Version: plans.Version, Ranks: ranks, Planes: planes, BandwidthGbps: 800 / float64(planes),
		AlphaUS: 5, HopUS: 0.5, ReconfigUS: reconfig, Forwarding: true, Circuits: plans.Simplex}
}

func TestTiming(t *testing.T) {
	for _, name := range train.Names() {
		c, err := train.Preset(name)
		require.NoError(t, err)
		tr, err := calls.Model(&c, "ring:2")
		require.NoError(t, err)
		for _, reconfig := range []float64{10, 1000, 10000, 100000} {
			p, err := iteration.Pose(fabricOf(tr.Ranks, 8, reconfig), "", tr, Steps)
			require.NoError(t, err)
			cmp, err := iteration.Compare(context.Background(), p, iteration.Options{})
			require.NoError(t, err)
			fmt.Println(name, len(tr.Calls), reconfig, "compute", cmp.Plan.ComputeUS, "bound", cmp.Plan.LowerBoundUS, "shapes", cmp.Shapes, cmp.Tried)
			for _, o := range cmp.Outcomes {
				fmt.Printf("   %-10s exposed %.6g  switching %.6g exposed %.6g hidden %.3f\n", o.Name, o.ExposedUS, o.SwitchingUS, o.ExposedSwitchingUS, o.Hidden())
			}
			_, err = check.Check(p, cmp.Plan)
			require.NoError(t, err)
			pl, err := play.Run(p, cmp.Plan, 8)
			require.NoError(t, err)
			if !plans.SameUS(pl.IterationUS, cmp.Plan.IterationUS) { t.Error(pl.IterationUS, cmp.Plan.IterationUS) }
		}
	}
}

var _ = circuit.Dark

// BenchmarkSolve is 500 calls of six shapes on 512 ranks and 16 planes.
func BenchmarkSolve(b *testing.B) {
	all := make([]int, 512)
	for i := range all {
		all[i] = i
	}
	t := &trace.Trace{Ranks: 512, Communicators: []trace.Communicator{{Groups: [][]int{all}}}}
	kinds := []trace.Call{
		{Collective: "allreduce", Algorithm: "rabenseifner", Bytes: 64 << 20},
		{Collective: "allgather", Algorithm: "recursive-doubling", Bytes: 16 << 20},
		{Collective: "reducescatter", Algorithm: "rabenseifner", Bytes: 16 << 20},
		{Collective: "alltoall", Algorithm: "bruck:4", Bytes: 32 << 20},
		{Collective: "allreduce", Algorithm: "swing", Bytes: 8 << 20},
		{Collective: "allreduce", Algorithm: "rabenseifner", Bytes: 8 << 20},
	}
	for i := range 500 {
		c := kinds[i%6]
		c.After = []trace.After{{Call: i - 1, GapUS: float64(100 * (i % 7))}}
		t.Calls = append(t.Calls, c)
	}
	p, err := iteration.Pose(fabricOf(512, 16, 1000), "", t, Steps)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := iteration.Compare(context.Background(), p, iteration.Options{})
		if err != nil {
			b.Fatal(err)
		}
		fmt.Println(c.Shapes, c.Tried, c.Plan.LowerBoundUS)
		for _, o := range c.Outcomes { fmt.Printf("%+v\n", o) }
	}
}
