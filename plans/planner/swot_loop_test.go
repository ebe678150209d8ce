package planner

import (
	"context"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
)

// loopProblem has two planes and, per step, a shift and megabytes that take 100 us each.
func loopProblem(reconfig float64, steps ...[2]int) *plans.Problem {
	p := &plans.Problem{
		Version: plans.Version, Ranks: 8, Planes: 2, BandwidthGbps: 80, ReconfigUS: reconfig,
		Circuits: plans.Simplex, Final: plans.Final{Kind: plans.FinalInitial},
	}
	for _, s := range steps {
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e6 * float64(s[1]), To: circuit.Shift(8, s[0])})
	}
	return p
}

// TestBeginAtEnd: a plane that is idle at first and works to the end makes its reset at the
// beginning, if it has the time.
func TestBeginAtEnd(t *testing.T) {
	for _, tc := range []struct {
		reconfig, period float64
		resets           bool // after the last transmit
	}{{100, 500, false}, {200, 700, true}} {
		p := loopProblem(tc.reconfig, [2]int{1, 1}, [2]int{2, 1}, [2]int{1, 2}, [2]int{3, 1})
		m, err := compile(p)
		require.NoError(t, err)
		line := newTimeline(m, []circuit.Permutation{circuit.Shift(8, 1), circuit.Shift(8, 2)})
		send := func(plane, i int) {
			line.transmit(plane, &m.steps[i], m.steps[i].bytes, 1, 1)
			line.closeAt(i)
		}
		send(0, 0)
		send(1, 1)
		send(0, 2)
		line.reconfigure(1, m.pages[m.steps[3].page].maps)
		send(1, 3)
		plan := line.finish("test")
		if _, err := check.Check(p, plan); err != nil {
			t.Fatal(err)
		}
		last := plan.Planes[1][len(plan.Planes[1])-1]
		if plan.CCTUS != 500 || Period(plan) != tc.period || (last.Kind == plans.Reconfigure) != tc.resets {
			t.Errorf("reconfig %v: %v us, period %v, last entry %+v", tc.reconfig, plan.CCTUS, Period(plan), last)
		}
	}
}

// TestLoopPeriod: among plans of one CCT, swot takes one whose reset is hidden.
func TestLoopPeriod(t *testing.T) {
	for name, p := range map[string]*plans.Problem{
		"two patterns": loopProblem(100, [2]int{1, 1}, [2]int{2, 1}, [2]int{1, 1}, [2]int{2, 1}),
		"palindrome": loopProblem(100, [2]int{1, 4}, [2]int{2, 2}, [2]int{3, 1}, [2]int{3, 1}, [2]int{2, 2},
			[2]int{1, 4}),
		"a long, once":   loopProblem(100, [2]int{1, 4}, [2]int{2, 1}, [2]int{3, 4}, [2]int{1, 4}),
		"neighbour":      loopProblem(150, [2]int{2, 1}, [2]int{3, 5}, [2]int{2, 5}, [2]int{3, 1}),
		"shift and back": loopProblem(50, [2]int{1, 2}, [2]int{2, 2}, [2]int{3, 2}, [2]int{1, 2}),
	} {
		m, err := compile(p)
		require.NoError(t, err)
		plan, err := solveSWOT(context.Background(), m, Options{Effort: time.Second})
		require.NoError(t, err)
		if _, err := check.Check(p, plan); err != nil {
			t.Fatal(err)
		}
		if Period(plan) != plan.CCTUS {
			t.Errorf("%s: %v us, period %v", name, plan.CCTUS, Period(plan))
		}
		q := *p
		q.Final.Kind = plans.FinalAny
		m, _ = compile(&q)
		once, err := solveSWOT(context.Background(), m, Options{Effort: time.Second})
		require.NoError(t, err)
		if !plans.SameUS(plan.CCTUS, once.CCTUS) {
			t.Errorf("%s: %v us in a loop, %v once", name, plan.CCTUS, once.CCTUS)
		}
	}
}
