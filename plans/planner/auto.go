package planner

import (
	"context"
	"fmt"

	"lightpath/plans"
)

// solveAuto returns the best plan of all planners, under the name of its planner. Among equal plans it prefers the
// simpler planner, in the order static, perstep, harvest, swot, weave. The planners run side by side, each with all
// of the effort and until the common deadline, so auto is never above one of them. Since weave starts from the plans
// of the others, auto equals weave except for the name.
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
