package timeline

import (
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/check"
	"lightpath/plans/circuit"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/plantest"
)

// TestBeginAtEnd: a plane that is idle at first and works to the end makes its reset at the
// beginning, if it has the time.
func TestBeginAtEnd(t *testing.T) {
	for _, tc := range []struct {
		reconfig, period float64
		resets           bool // after the last transmit
	}{{100, 500, false}, {200, 700, true}} {
		p := plantest.LoopProblem(tc.reconfig, [2]int{1, 1}, [2]int{2, 1}, [2]int{1, 2}, [2]int{3, 1})
		m, err := model.Compile(p)
		require.NoError(t, err)
		line := New(m, []circuit.Permutation{circuit.Shift(8, 1), circuit.Shift(8, 2)})
		send := func(plane, i int) {
			line.Transmit(plane, &m.Steps[i], m.Steps[i].Bytes, Direct)
			line.CloseAt(i)
		}
		send(0, 0)
		send(1, 1)
		send(0, 2)
		line.Reconfigure(1, m.Pages[m.Steps[3].Page])
		send(1, 3)
		plan := line.Finish("test")
		if _, err := check.Check(p, plan); err != nil {
			t.Fatal(err)
		}
		last := plan.Planes[1][len(plan.Planes[1])-1]
		if plan.CCTUS != 500 || Period(plan) != tc.period || (last.Kind == plans.Reconfigure) != tc.resets {
			t.Errorf("reconfig %v: %v us, period %v, last entry %+v", tc.reconfig, plan.CCTUS, Period(plan), last)
		}
	}
}
