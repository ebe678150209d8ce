package offer

import (
	"math/rand/v2"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/plantest"
)

// TestTableBracketsTimes: a floor is never above a time that is attained, and searches bring
// them together.
func TestTableBracketsTimes(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 1))
	opened := 0
	for i := range 60 {
		p := plantest.RandomForwarding(rng)
		p.Planes, p.Initial = 2+rng.IntN(2), nil
		p.Steps = append(p.Steps, plans.Step{Bytes: 1e4, Flows: plantest.AllToAll(p.Ranks)})
		m, err := model.Compile(p)
		require.NoError(t, err)
		o := effort.Search{Effort: 2 * time.Second, SinglePlane: i%4 == 0}
		pieces, _ := Pieces(m, nil)
		var set States
		for _, maps := range Graphs(t.Context(), m) {
			set.Add(maps)
		}
		alike := m.Candidates(model.MaxCandidates)
		for i, maps := range alike { // one plane differs
			set.Add(append(m.EveryUnit(maps)[1:], alike[(i+1)%len(alike)]...))
		}
		tab := NewTable(t.Context(), m, o, true, pieces, set.All)
		for k := range tab.kinds {
			for c := range tab.States {
				for tab.IsOpen(k, c) {
					floor := tab.Floor[k][c]
					tab.Refine(k, c)
					opened++
					if tab.Floor[k][c] < floor-model.Tolerance(floor) {
						t.Fatalf("problem %d: a floor of %v fell to %v", i, floor, tab.Floor[k][c])
					}
					if tab.US[k][c] < tab.Floor[k][c]-model.Tolerance(floor) {
						t.Fatalf("problem %d: %v us below the floor %v", i, tab.US[k][c], tab.Floor[k][c])
					}
				}
			}
		}
	}
	if opened == 0 {
		t.Error("nothing was open")
	}
}
