package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lightpath/plans"
	"lightpath/plans/planner/internal/baseline"
	"lightpath/plans/planner/internal/bound"
	"lightpath/plans/planner/internal/effort"
	"lightpath/plans/planner/internal/harvest"
	"lightpath/plans/planner/internal/model"
	"lightpath/plans/planner/internal/swot"
	"lightpath/plans/spectra"
)

// Errors of [Solve]; use errors.Is.
var (
	// ErrInfeasible wraps the step and the reason for which a planner has no plan.
	ErrInfeasible = model.ErrInfeasible
	// ErrUnknownPlanner wraps a name that is neither in [Names] nor spectra.
	ErrUnknownPlanner = errors.New("unknown planner")
)

// Version is raised when planners return other plans, so that cached plans of an earlier version are not used.
const Version = 3

// DefaultTimeLimit is the time of a search if Options states none.
const DefaultTimeLimit = 2 * time.Second

// Auto is the name of the planner that returns the best plan of all planners.
const Auto = "auto"

// EffortShare is TimeLimit over Effort if Options states no Effort. It leaves room for the five searches of weave on
// two cores, and for a machine that is not idle.
const EffortShare = 3

// EffortWithin returns the effort for p that a time limit allows: a share of it, or all of it for a demand matrix, which
// one planner plans.
func EffortWithin(limit time.Duration, p *plans.Problem) time.Duration {
	if p.Demand != nil {
		return limit
	}
	return limit / EffortShare
}

// Options tune a planner. The zero value is usable.
type Options struct {
	// TimeLimit caps a search; 0 is DefaultTimeLimit.
	TimeLimit time.Duration
	// Effort is the amount of search of one planner, as time on one ordinary core; 0 is [EffortWithin] TimeLimit. It is
	// counted in operations, not read from a clock, so results repeat unless TimeLimit ends the search: weave and auto
	// run all planners within TimeLimit, each with all of Effort.
	Effort time.Duration
	// SinglePlane asks for plans whose transmits stay on one plane each: no joint ones.
	SinglePlane bool
	// Seed of the pseudo-random search. Equal problem, options and seed give equal plans.
	Seed int64
}

// solver plans a compiled problem until ctx ends, which long work checks regularly. Solve sets the plan's bound, unless
// the solver proves a better one.
type solver func(ctx context.Context, m *model.Model, o effort.Search) (*plans.Plan, error)

// registry is ordered: auto prefers the earlier, simpler planner among equals.
var registry = [...]struct {
	name  string
	solve solver
}{
	{"static", baseline.Static},
	{"perstep", func(_ context.Context, m *model.Model, _ effort.Search) (*plans.Plan, error) {
		return baseline.PerStep(m), nil
	}},
	{"harvest", harvest.Solve},
	{"swot", swot.Solve},
	{"weave", solveWeave},
	{Auto, solveAuto},
}

// Names lists the planners that [Solve] knows for problems with steps, auto last. Spectra plans demand matrices.
func Names() []string {
	names := make([]string, 0, len(registry))
	for _, r := range registry {
		names = append(names, r.name)
	}
	return names
}

// Solve plans p with the named planner. The problem is not changed; the plan shares its
// permutations. A plan's circuits, times, CCTUS and LowerBoundUS follow
// the cost model of package plans. A search that is out of time or cancelled returns its best.
//
// Errors wrap [ErrUnknownPlanner], [ErrInfeasible], or [plans.ErrProblem] if p is not valid. Solve is safe for
// concurrent use.
func Solve(ctx context.Context, name string, p *plans.Problem, o Options) (*plans.Plan, error) {
	if o.TimeLimit <= 0 {
		o.TimeLimit = DefaultTimeLimit
	}
	if o.Effort <= 0 {
		o.Effort = EffortWithin(o.TimeLimit, p)
	}
	ctx, cancel := context.WithTimeout(ctx, o.TimeLimit)
	defer cancel()
	known := append(Names(), spectra.Name)
	if p.Demand != nil && slices.Contains(known, name) || name == spectra.Name {
		return solveDemand(ctx, name, p, o)
	}
	for _, r := range registry {
		if r.name != name {
			continue
		}
		m, err := model.Compile(p)
		if err != nil {
			return nil, fmt.Errorf("planner: %s: %w", name, err)
		}
		bound.Prove(m) // before the time is over
		plan, err := r.solve(ctx, m, effort.Search{Effort: o.Effort, Seed: o.Seed, SinglePlane: o.SinglePlane})
		if err != nil {
			return nil, fmt.Errorf("planner: %s: %w", name, err)
		}
		plan.FindRepeats()
		bound.State(m, plan)
		return plan, nil
	}
	return nil, fmt.Errorf("planner: %w %q (known: %s)", ErrUnknownPlanner, name, strings.Join(known, ", "))
}
