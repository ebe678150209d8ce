package exec

import (
	"context"
	"fmt"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/collectives/transport/inproc"
	"lightpath/internal/require"
	"lightpath/ocsctl"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
)

// TestSections checks the results of programs in sections over several calls, on planes that delay frames and
// reconfigurations.
func TestSections(t *testing.T) {
	for _, tc := range []struct {
		c         schedule.Collective
		algorithm string
		planes    int
	}{
		{schedule.AllToAll, "pairwise", 3}, {schedule.ReduceScatter, "pairwise", 2},
		{schedule.AllGather, "ring", 2}, {schedule.AllReduce, "ring", 1},
	} {
		for _, inPlace := range []bool{false, true} {
			const count = 6
			s, plan, args := repeating(t, tc.c, tc.algorithm, 23, tc.planes, count)
			args.InPlace, args.SectionSteps = inPlace, 2
			progs, err := lowerAll(s, plan, args)
			require.NoError(t, err)
			if n := len(progs[0].Sections); n < 1 || n > 12 {
				t.Errorf("%v %s: %d sections", tc.c, tc.algorithm, n)
			}
			execute(t, s, plan, progs, count, inPlace, false)
		}
	}
}

// repeating returns a schedule with a plan that mostly repeats.
func repeating(t testing.TB, c schedule.Collective, algorithm string, ranks, planes int,
	count int64) (*schedule.Schedule, *plans.Plan, program.Args) {
	t.Helper()
	s, err := schedule.Build(c, algorithm, ranks, 0)
	require.NoError(t, err)
	problem, stepOf, err := schedule.Problem(s, float64(4*count*int64(ranks)), &plans.Problem{
		Planes: planes, Circuits: plans.Simplex, BandwidthGbps: 0.001, ReconfigUS: 40,
		Final: plans.Final{Kind: plans.FinalInitial},
	})
	require.NoError(t, err)
	plan, err := planner.Solve(context.Background(), "swot", problem,
		planner.Options{TimeLimit: time.Minute, Effort: time.Nanosecond})
	require.NoError(t, err)
	return s, plan, program.Args{Count: count, ElemSize: 4, Problem: problem, StepOf: stepOf}
}

// ready is a switch that completes every reconfiguration at once.
type ready struct {
	ocsctl.Client
	posts int
}

func (r *ready) Post(int, uint32, circuit.Permutation) error { r.posts++; return nil }
func (r *ready) Poll(int) (uint32, error)                    { return 1 << 30, nil }

// sectionsTeam returns ranks for an exchange over planes in memory, in sections of at least roll steps.
func sectionsTeam(t testing.TB, ranks, planes, roll int, count int64) *team {
	t.Helper()
	s, plan, args := repeating(t, schedule.AllToAll, "pairwise", ranks, planes, count)
	args.SectionSteps = roll
	progs, err := lowerAll(s, plan, args)
	require.NoError(t, err)
	if (progs[0].Sections != nil) != (roll > 0) {
		t.Fatalf("%d sections of %d steps", len(progs[0].Sections), roll)
	}
	endpoints, err := inproc.NewGroup(ranks, planes, inproc.Options{})
	require.NoError(t, err)
	return assemble(t, programtest.NewCase(s, count, 1, 1), progs, false, func(r int, c *Call) {
		c.Endpoint, c.OCS, c.Base = endpoints[r], new(ready), make([]uint32, planes)
	})
}

// again runs one more call.
func (tm *team) again(t testing.TB) {
	for _, task := range tm.tasks {
		c := task.call
		c.Op++
		require.NoError(t, task.Bind(c))
	}
	require.NoError(t, Run(tm.tasks, patience))
}

// TestSectionsAllocateNothing checks that neither the next repetition nor the next call allocates.
func TestSectionsAllocateNothing(t *testing.T) {
	tm := sectionsTeam(t, 23, 3, 2, 6)
	if n := testing.AllocsPerRun(5, func() { tm.again(t) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
	tm.verify(t)
}

// BenchmarkSections compares a program in sections with the same program without sections.
func BenchmarkSections(b *testing.B) {
	for _, roll := range []int{0, 8} {
		b.Run(fmt.Sprintf("roll=%d", roll), func(b *testing.B) {
			tm := sectionsTeam(b, 48, 4, roll, 64)
			for b.Loop() {
				tm.again(b)
			}
		})
	}
}
