package exec

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/collectives/program"
	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// TestPlanners executes the plans of all planners on planes that lose every frame that is sent too early or too late,
// and checks the results.
func TestPlanners(t *testing.T) {
	for _, tc := range []struct {
		c         schedule.Collective
		algorithm string
		n         int
		forward   bool
	}{
		{schedule.AllReduce, "rabenseifner", 8, false},
		{schedule.AllReduce, "recursive-doubling", 8, true},
		{schedule.AllToAll, "pairwise", 6, true},
		{schedule.ReduceScatter, "ring", 5, false},
	} {
		s, err := schedule.Build(tc.c, tc.algorithm, tc.n, 0)
		require.NoError(t, err)
		for _, name := range planner.Names() {
			t.Run(tc.c.String()+"/"+tc.algorithm+"/"+name, func(t *testing.T) { planned(t, s, name, tc.forward, false) })
			t.Run(tc.c.String()+"/"+tc.algorithm+"/"+name+"/steered",
				func(t *testing.T) { planned(t, s, name, tc.forward, true) })

		}
	}
}

func planned(t *testing.T, s *schedule.Schedule, name string, forward, steer bool) {
	const count = 1000
	size := float64(count * 4 * max(s.Blocks[schedule.Input], s.Blocks[schedule.Output]))
	problem, stepOf, err := schedule.Problem(s, size, &plans.Problem{
		Planes: 2, Circuits: plans.Simplex, BandwidthGbps: 1, ReconfigUS: 8, Forwarding: forward,
		Final: plans.Final{Kind: plans.FinalInitial},
	})
	require.NoError(t, err)
	plan, err := planner.Solve(context.Background(), name, problem,
		planner.Options{TimeLimit: 50 * time.Millisecond, SinglePlane: true})
	if errors.Is(err, planner.ErrInfeasible) {
		t.Skip(err)
	}
	require.NoError(t, err)
	progs, err := lowerAll(s, plan, program.Args{Count: count, ElemSize: 4, Problem: problem, StepOf: stepOf})
	require.NoError(t, err)
	execute(t, s, plan, progs, count, false, steer)
}

// execute makes two calls. The second begins with the maps that the first has left.
func execute(t *testing.T, s *schedule.Schedule, plan *plans.Plan, progs []*program.Program, count int64, inPlace,
	steer bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	f := newFabric(s.Ranks, 4, plan.Initial, 1)
	f.mtu, f.steer = 512, steer
	for op := range uint64(2) {
		tm := assemble(t, programtest.NewCase(s, count, 1, rng.Uint64()), progs, inPlace, func(r int, c *Call) {
			e := f.endpoint(r)
			c.Endpoint, c.OCS, c.Op = e, e, op
			for j := range f.planes {
				c.Base = append(c.Base, 10+uint32(op)*progs[0].Switches(j))
			}
		})
		require.NoError(t, Run(tm.tasks, patience))
		if f.lost != nil {
			t.Fatal(f.lost)
		}
		tm.verify(t)
	}
}
