package planner

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"lightpath/plans"
	"lightpath/plans/planner/internal/baseline"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/harvest"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/swot"
	"lightpath/plans/planner/internal/timeline"
	"lightpath/plans/planner/internal/weave"
)

// solveAuto returns the best plan of all planners, under the name of its planner. Among equal plans it prefers the
// simpler planner, in the order static, perstep, harvest, swot, weave. The planners run side by side, each with all
// of the effort and until the common deadline, so auto is never above one of them. Since weave starts from the plans
// of the others, auto equals weave except for the name.
func solveAuto(ctx context.Context, m *model.Model, o effort.Search) (*plans.Plan, error) {
	first := swot.Begin(ctx, m, o)
	if ctx.Err() != nil {
		return first.Best, nil
	}
	s := weave.New(ctx, m, o)
	early, cancel := ctx, context.CancelFunc(func() {})
	if s != nil { // it needs time after the others
		early, cancel = effort.Within(ctx, othersShare)
	}
	defer cancel()
	best, others, err := bestOfOthers(early, m, o, first, func() {
		if s != nil {
			s.Start()
		}
	})
	if err == nil && s != nil {
		best = s.Finish(best, others)
	}
	for _, plan := range others {
		if divided := m.DividedAs(plan); divided != nil {
			if plan, err := swot.Solve(ctx, divided, o); err == nil && timeline.Better(m, plan, best) {
				best = plan
			}
		}
	}
	for _, plan := range others { // a bound that one of them proved holds for every plan
		if plan.LowerBoundUS > best.LowerBoundUS {
			best.LowerBoundUS, best.BoundProof = plan.LowerBoundUS, plan.BoundProof
		}
	}
	return best, err
}

// solveWeave returns the plan of solveAuto under its own name.
func solveWeave(ctx context.Context, m *model.Model, o effort.Search) (*plans.Plan, error) {
	best, err := solveAuto(ctx, m, o)
	if err == nil {
		best.Planner = "weave"
	}
	return best, err
}

// othersShare is the part of the time after which weave continues from the plans of the others.
const othersShare = 0.7

// bestOfOthers runs the other planners, each with all of the effort, and a function beside them.
func bestOfOthers(ctx context.Context, m *model.Model, o effort.Search, first *swot.Start,
	meanwhile func()) (best *plans.Plan, all []*plans.Plan, err error) {
	solvers := []struct {
		name  string
		solve func() (*plans.Plan, error)
	}{
		{"static", func() (*plans.Plan, error) { return baseline.Static(ctx, m, o) }},
		{"perstep", func() (*plans.Plan, error) { return baseline.PerStepBelow(m, first.Best) }},
		{"harvest", func() (*plans.Plan, error) { // its competitors run here as well
			plan, _, err := harvest.Search(ctx, m, o)
			return plan, err
		}},
		{"swot", func() (*plans.Plan, error) { return first.Solve(ctx, o) }},
	}
	found := make([]*plans.Plan, len(solvers))
	errs := make([]error, len(solvers))
	var wait sync.WaitGroup
	for i, s := range solvers {
		wait.Go(func() { found[i], errs[i] = s.solve() })
	}
	meanwhile()
	wait.Wait()
	var reasons []string
	for i, plan := range found {
		if errs[i] != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", solvers[i].name, errs[i]))
			continue
		}
		all = append(all, plan)
		if timeline.Better(m, plan, best) {
			best = plan
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("%w: %s", model.ErrInfeasible, strings.Join(reasons, "; "))
	}
	return best, all, nil
}
