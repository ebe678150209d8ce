package planner

import (
	"context"
	"fmt"

	"lightpath/plans"
)

// solveAuto returns the best plan of all planners, under the name of the one that made it;
// among equals the simpler one, in the order static, perstep, harvest, swot, weave. They run
// side by side, each with all of the effort and until the deadline of all, so auto is never
// above one of them: since weave goes on from the plans of the others, auto is weave but for
// the name.
func solveAuto(ctx context.Context, p *plans.Problem, o Options) (*plans.Plan, error) {
	m, err := compile(p)
	if err != nil {
		return nil, fmt.Errorf("planner: auto: %w", err)
	}
	m.bound() // before the time is over
	best, err := m.bestOfAll(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("planner: auto: %w", err)
	}
	m.finish(best)
	return best, nil
}
