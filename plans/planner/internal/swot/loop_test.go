package swot

import (
	"testing"

	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/planner/internal/plantest"
	"lightpath/plans/planner/internal/timeline"
)

// TestLoopPeriod: among plans of one CCT, swot takes one whose reset is hidden.
func TestLoopPeriod(t *testing.T) {
	for name, p := range map[string]*plans.Problem{
		"two patterns": plantest.LoopProblem(100, [2]int{1, 1}, [2]int{2, 1}, [2]int{1, 1}, [2]int{2, 1}),
		"palindrome": plantest.LoopProblem(100, [2]int{1, 4}, [2]int{2, 2}, [2]int{3, 1}, [2]int{3, 1}, [2]int{2, 2},
			[2]int{1, 4}),
		"a long, once":   plantest.LoopProblem(100, [2]int{1, 4}, [2]int{2, 1}, [2]int{3, 4}, [2]int{1, 4}),
		"neighbour":      plantest.LoopProblem(150, [2]int{2, 1}, [2]int{3, 5}, [2]int{2, 5}, [2]int{3, 1}),
		"shift and back": plantest.LoopProblem(50, [2]int{1, 2}, [2]int{2, 2}, [2]int{3, 2}, [2]int{1, 2}),
	} {
		_, plan := proven(t, p)
		if _, err := check.Check(p, plan); err != nil {
			t.Fatal(err)
		}
		if timeline.Period(plan) != plan.CCTUS {
			t.Errorf("%s: %v us, period %v", name, plan.CCTUS, timeline.Period(plan))
		}
		q := *p
		q.Final.Kind = plans.FinalAny
		_, once := proven(t, &q)
		if !plans.SameUS(plan.CCTUS, once.CCTUS) {
			t.Errorf("%s: %v us in a loop, %v once", name, plan.CCTUS, once.CCTUS)
		}
	}
}
