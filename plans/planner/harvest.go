package planner

import (
	"context"

	"lightpath/plans"
)

func solveHarvest(_ context.Context, m *model, _ Options) (*plans.Plan, error) {
	return nil, ErrInfeasible
}
