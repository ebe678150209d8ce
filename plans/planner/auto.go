package planner

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lightpath/plans"
)

// autoShares divides what auto may spend: a planner gets this part of the effort and time
// that are left when its turn comes. Those that are not listed construct a plan rather
// than search for one, and leave nearly all there is; the last gets the rest.
var autoShares = map[string]float64{"swot": 1. / 3}

// solveAuto returns the best plan of all planners, under the name of the one that made it;
// among equals the earlier, simpler one. TimeLimit and Effort are for all of them together.
func solveAuto(ctx context.Context, p *plans.Problem, o Options) (*plans.Plan, error) {
	m, err := compile(p)
	if err != nil {
		return nil, fmt.Errorf("planner: auto: %w", err)
	}
	var best *plans.Plan
	var reasons []string
	for i, r := range registry {
		part := o
		if share, searches := autoShares[r.name]; searches && i < len(registry)-1 {
			part = o.part(share)
			o.Effort -= part.Effort
		}
		plan, err := r.solve(ctx, m, part)
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v", r.name, err))
		case best == nil || plan.CCTUS < best.CCTUS-tolerance(best.CCTUS):
			best = plan
		}
	}
	if best == nil {
		return nil, fmt.Errorf("planner: auto: %w: %s", ErrInfeasible, strings.Join(reasons, "; "))
	}
	m.stateBound(best)
	return best, nil
}

// part returns the options of one of auto's planners. Effort decides what a search finds,
// so it must not depend on how long the planners before it took; only the deadline does.
func (o Options) part(share float64) Options {
	o.Effort = time.Duration(share * float64(o.Effort))
	o.TimeLimit = time.Duration(share * float64(time.Until(o.deadline)))
	o.deadline = time.Now().Add(o.TimeLimit)
	return o
}
