package baseline

import (
	"math/rand/v2"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/plantest"
)

// TestStaticSearches: greedy choice with exchange is as good as trying everything.
func TestStaticSearches(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 1))
	for i := range 60 {
		p := plantest.RandomSteps(rng, 1+rng.IntN(6), 3+rng.IntN(3))
		p.Initial = nil
		m, err := model.Compile(p)
		require.NoError(t, err)
		c := newStaticChoice(t.Context(), m)
		want := c.evaluate(c.exhaustive())
		if got := c.evaluate(c.exchange(c.greedy())); want.Better(got) {
			t.Errorf("problem %d: greedy %v, exhaustive %v", i, got, want)
		}
	}
}
