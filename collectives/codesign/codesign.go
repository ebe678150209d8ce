package codesign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lightpath/collectives/schedule"
	"lightpath/plans"
	"lightpath/plans/planner"
)

// Sentinels of this package.
var (
	// ErrRequest is wrapped by errors about a request that makes no sense.
	ErrRequest = errors.New("codesign: bad request")
	// ErrTooLarge says that an alternative was left out because its schedule is too large to
	// be planned within the time limit.
	ErrTooLarge = errors.New("codesign: schedule too large to be considered")
	// ErrOutOfTime says that an alternative was left out because the time limit was over.
	ErrOutOfTime = errors.New("codesign: out of time")
)

// Request is a call and the fabric that it is to run on.
type Request struct {
	Collective  schedule.Collective
	Ranks, Root int     // Root is read by rooted collectives only
	Bytes       float64 // of the call, as nccl-tests counts them
	// Fabric is a template as [schedule.Problem] takes it: planes, costs, circuits, initial and
	// final state. It is not changed.
	Fabric *plans.Problem
	// Planner is the name of a planner; "" is auto.
	Planner string
	// Algorithms are the names to choose from, which may carry parameters and orders; nil: all
	// that are defined, with parameters that suit the fabric.
	Algorithms []string
	// FixedOrder keeps every algorithm's own order.
	FixedOrder bool
	// Options are for everything together: TimeLimit caps the whole choice.
	Options planner.Options
}

// Alternative is an algorithm that was considered.
type Alternative struct {
	Algorithm    string // canonical name, with parameters and order
	Steps        int    // of its problem
	Planner      string // that made its best plan
	CCTUS        float64
	LowerBoundUS float64
	// Final says that it was planned with the full effort, not only screened.
	Final bool
	// Err is why it was left out or has no plan, nil otherwise.
	Err error
}

// Choice is the best that was found.
type Choice struct {
	Algorithm string // canonical name, with parameters and order: what [schedule.Build] takes
	Problem   *plans.Problem
	StepOf    []int // schedule step of each problem step
	Plan      *plans.Plan
	// Considered are all alternatives, the best first, those without a plan last.
	Considered []Alternative
}

// Choose returns the best algorithm, with its plan, for a call on a fabric. Equal requests
// get equal choices, unless the time limit cuts the search short; TimeLimit is a cap. It
// screens all alternatives with little effort, tries other orders of the best, and plans the
// few best with what effort is left, so an algorithm whose plans take long to find may be
// missed; none is left out that the others are not better than at that effort. The schedule is
// built as [schedule.Disjoint].
//
// Errors: [ErrRequest], [schedule.ErrRoot], [schedule.ErrProblem] and [plans.ErrProblem] about the
// request; [planner.ErrInfeasible] where no alternative has a plan, with the reason of each; that
// of ctx where it ends before there is any plan. It is safe for concurrent use.
func Choose(ctx context.Context, r Request) (*Choice, error) {
	s, err := newSearch(ctx, r)
	if err != nil {
		return nil, err
	}
	s.screen()
	if !r.FixedOrder {
		s.reorder()
	}
	s.finish()
	return s.choice()
}

// candidate is an alternative with what planning it needs.
type candidate struct {
	Alternative
	planned bool  // it has or had a plan
	failed  error // why it has none so far
	// Those of the best candidates are kept, the others' are made again where they are asked for.
	problem *plans.Problem
	stepOf  []int
	plan    *plans.Plan
}

// kept is of how many candidates problems and plans are kept: of many ranks they are large.
const kept = finalists + 1

// search is one call of Choose.
type search struct {
	Request
	ctx      context.Context
	deadline time.Time
	effort   time.Duration // left
	known    map[string]*candidate
	planned  bool         // some candidate has a plan
	all      []*candidate // in the order of consideration
}

func newSearch(ctx context.Context, r Request) (*search, error) {
	switch {
	case r.Collective >= schedule.NumCollectives:
		return nil, fmt.Errorf("%w: %v", ErrRequest, r.Collective)
	case r.Ranks < 1 || r.Ranks > plans.MaxRanks:
		return nil, fmt.Errorf("%w: ranks: %d", ErrRequest, r.Ranks)
	case r.Fabric == nil || r.Fabric.Planes < 1:
		return nil, fmt.Errorf("%w: fabric: no planes", ErrRequest)
	case r.Planner == "":
		r.Planner = "auto"
	case !slices.Contains(planner.Names(), r.Planner):
		return nil, fmt.Errorf("%w: planner: %q is none of %v", ErrRequest, r.Planner, planner.Names())
	}
	for _, name := range r.Algorithms {
		if err := schedule.Check(r.Collective, name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequest, err)
		}
	}
	if r.Options.TimeLimit <= 0 {
		r.Options.TimeLimit = planner.DefaultTimeLimit
	}
	if r.Options.Effort <= 0 {
		r.Options.Effort = r.Options.TimeLimit
	}
	return &search{
		Request: r, ctx: ctx, deadline: time.Now().Add(r.Options.TimeLimit), effort: r.Options.Effort,
		known: map[string]*candidate{},
	}, nil
}

// add makes a candidate of an algorithm's name, or returns the one it has.
func (s *search) add(name string) *candidate {
	canonical, err := schedule.Canonical(s.Collective, name, s.Ranks)
	if err != nil {
		canonical = name
	}
	if c := s.known[canonical]; c != nil {
		return c
	}
	c := &candidate{Alternative: Alternative{Algorithm: canonical, Err: err}}
	s.known[canonical] = c
	s.all = append(s.all, c)
	switch {
	case err != nil:
	case s.over():
		c.Err = ErrOutOfTime
	case predictedFlows(canonical, s.Ranks) > maxFlows:
		c.Err = ErrTooLarge
	default:
		c.Err = s.pose(c)
	}
	return c
}

// pose makes the problem of a candidate.
func (s *search) pose(c *candidate) (err error) {
	if c.problem, c.stepOf, err = schedule.Pose(s.Collective, c.Algorithm, s.Ranks, s.Root, s.Bytes, s.Fabric, schedule.Disjoint()); err == nil {
		c.Steps = len(c.problem.Steps)
	}
	return err
}

// forget drops the problems and plans of all candidates but the best.
func (s *search) forget() {
	list := s.ranked()
	for _, c := range list[min(kept, len(list)):] {
		c.problem, c.plan = nil, nil
	}
}

// over reports whether the time limit has passed. The first plan is made all the same.
func (s *search) over() bool {
	return s.ctx.Err() != nil || s.planned && !time.Now().Before(s.deadline)
}

// solve plans a candidate with a planner and an effort, and keeps the plan if it is better.
func (s *search) solve(c *candidate, name string, effort time.Duration) {
	if c.Err != nil && !c.planned {
		return
	}
	if s.over() {
		if !c.planned {
			c.Err = ErrOutOfTime
		}
		return
	}
	if c.problem == nil { // it was possible before
		if err := s.pose(c); err != nil {
			return
		}
	}
	o := s.Options
	o.Effort, o.TimeLimit = effort, max(leastEffort, min(time.Until(s.deadline), slackFactor*effort+slackTime))
	plan, err := planner.Solve(s.ctx, name, c.problem, o)
	if err != nil {
		if !c.planned && c.failed == nil {
			c.failed = err
		}
		return
	}
	s.planned = true
	c.LowerBoundUS = max(c.LowerBoundUS, plan.LowerBoundUS)
	if !c.planned || plan.CCTUS < c.CCTUS-plans.Tolerance(plan.CCTUS, c.CCTUS) {
		c.planned, c.plan, c.CCTUS, c.Planner = true, plan, plan.CCTUS, plan.Planner
	}
	if c.plan != nil && c.plan.LowerBoundUS < c.LowerBoundUS { // a worse plan came with a better proof
		c.plan.LowerBoundUS, c.plan.BoundProof = min(plan.LowerBoundUS, c.plan.CCTUS), plan.BoundProof
	}
}

// ranked returns the candidates that have plans, the best first; among equals the first.
func (s *search) ranked() []*candidate {
	var list []*candidate
	for _, c := range s.all {
		if c.planned {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, byTime)
	return list
}

// byTime orders candidates by completion time, to a ten-thousandth of a microsecond; those
// that have no plan are last.
func byTime(a, b *candidate) int {
	key := func(c *candidate) float64 {
		if !c.planned {
			return math.Inf(1)
		}
		return math.Round(c.CCTUS * 1e4)
	}
	return cmp.Compare(key(a), key(b))
}

func (s *search) choice() (*Choice, error) {
	for _, c := range s.all {
		if !c.planned && (c.Err == nil || errors.Is(c.Err, ErrOutOfTime)) && c.failed != nil {
			c.Err = c.failed
		}
	}
	list := s.ranked()
	if len(list) == 0 {
		var reasons []string
		for _, c := range s.all {
			switch {
			case errors.Is(c.Err, ErrOutOfTime):
				return nil, fmt.Errorf("codesign: %v on %d ranks: %w", s.Collective, s.Ranks, cmp.Or(s.ctx.Err(), c.Err))
			case errors.Is(c.Err, planner.ErrInfeasible) || errors.Is(c.Err, ErrTooLarge) || errors.Is(c.Err, schedule.ErrRanks):
			default: // the request is at fault, not the algorithm
				return nil, fmt.Errorf("codesign: %w", c.Err)
			}
			reasons = append(reasons, fmt.Sprintf("%s: %v", c.Algorithm, c.Err))
		}
		return nil, fmt.Errorf("codesign: %v on %d ranks: %w: %s", s.Collective, s.Ranks, planner.ErrInfeasible, strings.Join(reasons, "; "))
	}
	best := list[0]
	ch := &Choice{Algorithm: best.Algorithm, Problem: best.problem, StepOf: best.stepOf, Plan: best.plan}
	for _, c := range list {
		ch.Considered = append(ch.Considered, c.Alternative)
	}
	for _, c := range s.all {
		if !c.planned {
			ch.Considered = append(ch.Considered, c.Alternative)
		}
	}
	return ch, nil
}

// Common returns the algorithm to use where one has to serve several calls: the one whose
// completion times, relative to the best of each call, have the least geometric mean, of those
// that have a plan for every call. "" where there is none.
func Common(choices []*Choice) string {
	type total struct {
		calls int
		log   float64
	}
	totals := map[string]total{}
	for _, ch := range choices {
		for _, a := range ch.Considered {
			if a.Err == nil {
				t := totals[a.Algorithm]
				totals[a.Algorithm] = total{t.calls + 1, t.log + math.Log(math.Max(a.CCTUS, plans.ToleranceUS))}
			}
		}
	}
	best, least := "", math.Inf(1)
	if len(choices) == 0 {
		return ""
	}
	for _, a := range choices[0].Considered {
		if t := totals[a.Algorithm]; t.calls == len(choices) && t.log < least-1e-9 {
			best, least = a.Algorithm, t.log
		}
	}
	return best
}
