package milp

import (
	"context"
	"math"
	"time"

	"lightpath/plans"
	"lightpath/plans/mip/solver"
)

// Result is CBC's result for a problem.
type Result struct {
	CCTUS   float64 // of the best solution; +Inf: it found none
	BoundUS float64 // proven lower bound of every solution
	Optimal bool    // CCTUS is proven to be the optimum
}

// SolveCBC solves SWOT's program of p (see [SWOT]) with cbc on one thread, within a limit of wall time. Numbers are as
// exact as the solver's tolerances: 1e-6 of the program's big-M. Errors: [ErrUnsupported], [solver.ErrNone],
// [solver.ErrSolver], and that of ctx.
func SolveCBC(ctx context.Context, p *plans.Problem, timeLimit time.Duration) (Result, error) {
	program, err := SWOT(p)
	if err != nil {
		return Result{}, err
	}
	if program.Size().Integers == 0 { // no step: nothing to solve
		return Result{Optimal: true}, nil
	}
	cbc, err := solver.Find("cbc")
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	r, err := cbc.Solve(ctx, program, solver.Options{})
	if err != nil {
		return Result{}, err
	}
	return Result{CCTUS: r.Objective, BoundUS: math.Max(0, r.Bound), Optimal: r.Status == solver.Optimal}, nil
}
