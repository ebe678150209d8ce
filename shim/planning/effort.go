package planning

import (
	"context"
	"time"

	"lightpath/plans"
	"lightpath/plans/planner"
)

const (
	// firstEffort is the search for the first plan of a call. It is enough for the best known plan of most small calls.
	firstEffort = 2 * time.Millisecond
	// worthCalls bounds the search for a better plan: it takes at most the time that a plan at the lower bound would
	// save in so many calls.
	worthCalls = 1000
)

// firstPlan plans a problem with little effort, within a limit.
func firstPlan(ctx context.Context, name string, p *plans.Problem, limit time.Duration) (*plans.Plan, error) {
	o := planner.Options{TimeLimit: limit, Effort: min(firstEffort, limit), SinglePlane: true}
	return planner.Solve(ctx, name, p, o)
}

// search plans a problem within a limit. It searches in stages, each with more effort than the one before. It ends when
// a better plan could save little, or when a stage finds none. The effort depends on the problem alone, so plans
// repeat.
func search(ctx context.Context, name string, p *plans.Problem, limit time.Duration) (*plans.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	solve := func(effort time.Duration) (*plans.Plan, error) {
		return planner.Solve(ctx, name, p, planner.Options{TimeLimit: limit, Effort: effort, SinglePlane: true})
	}
	full := limit / planner.EffortShare // as much effort as the limit allows
	best, err := firstPlan(ctx, name, p, limit)
	if err != nil {
		return solve(full)
	}
	spent := firstEffort
	for _, effort := range []time.Duration{full / 10, full} {
		if effort = min(effort, worthOf(best)); effort <= spent {
			continue
		}
		plan, err := solve(effort)
		if err != nil || best.CCTUS <= plan.CCTUS {
			break
		}
		best, spent = plan, effort
	}
	return best, nil
}

// worthOf returns how long a search for a better plan may take.
func worthOf(p *plans.Plan) time.Duration {
	us := min(worthCalls*(p.CCTUS-p.LowerBoundUS), float64(time.Hour/time.Microsecond))
	return time.Duration(us * float64(time.Microsecond))
}
