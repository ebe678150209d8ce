package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lightpath/plans"
	"lightpath/plans/spectra"
)

// demandPlanners are the names under which a demand matrix is planned. They all run the same algorithm.
var demandPlanners = []string{spectra.Name, "weave", "auto"}

// spectraPerSecond converts an effort to operations, as package effort does for the other planners.
const spectraPerSecond = 2e8

// solveDemand plans a demand matrix under the deadline of o. Other planners refuse one.
func solveDemand(ctx context.Context, name string, p *plans.Problem, o Options) (*plans.Plan, error) {
	if !slices.Contains(demandPlanners, name) {
		return nil, fmt.Errorf("planner: %s: %w: a demand matrix needs the planner spectra", name, ErrInfeasible)
	}
	plan, err := spectra.Solve(ctx, p, spectra.Options{
		Work:      max(1, int64(o.Effort.Seconds()*spectraPerSecond)),
		TimeLimit: o.TimeLimit,
		Seed:      o.Seed,
	})
	switch {
	case errors.Is(err, plans.ErrProblem):
		return nil, fmt.Errorf("planner: %s: %w", name, err)
	case err != nil:
		return nil, fmt.Errorf("planner: %s: %w: %w", name, ErrInfeasible, err)
	}
	if name == "weave" {
		plan.Planner = name
	}
	return plan, nil
}
