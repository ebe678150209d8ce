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

// Errors of this package.
var (
	// ErrRequest reports an invalid request.
	ErrRequest = errors.New("codesign: bad request")
	// ErrTooLarge reports an alternative that was skipped because its schedule has too many flows.
	ErrTooLarge = errors.New("codesign: schedule too large to be considered")
	// ErrOutOfTime reports an alternative that was skipped because the time limit had passed.
	ErrOutOfTime = errors.New("codesign: out of time")
)

// Request describes a call and the fabric on which it runs.
type Request struct {
	Collective  schedule.Collective
	Ranks, Root int     // only rooted collectives use Root
	Bytes       float64 // size of the call as nccl-tests counts it
	// Fabric has the planes, costs, circuits, initial and final state, as for [schedule.Problem]. Choose does not
	// change it.
	Fabric *plans.Problem
	// Planner is the name of a planner; "" means auto.
	Planner string
	// FixedOrder keeps the default order of every algorithm.
	FixedOrder bool
	// Options apply to the whole search. In particular, TimeLimit is the limit for the whole search.
	Options planner.Options
}

// Alternative is an algorithm that Choose considered.
type Alternative struct {
	Algorithm    string // canonical name, with parameters and order
	Steps        int    // steps of its planning problem
	Planner      string // the planner of its best plan
	CCTUS        float64
	LowerBoundUS float64
	// Final is set if it was planned with full effort, not only screened.
	Final bool
	// Err is the reason if it was skipped or has no plan, and nil otherwise.
	Err error
}

// Choice is the best alternative found.
type Choice struct {
	Algorithm string // canonical name for [schedule.Build], with parameters and order
	Problem   *plans.Problem
	Plan      *plans.Plan
	// Considered lists all alternatives: first those with plans, the best first, then those without.
	Considered []Alternative
}

// Choose returns the best algorithm found for a call on a fabric, with its plan, of all defined algorithms with
// parameters that suit the fabric. The schedule is built with [schedule.Disjoint]. Equal requests return equal choices
// unless the time limit ends the search early.
//
// Choose first screens all alternatives with little effort. Then it tries other orders of the best ones, and plans the
// few best with the remaining effort. It may therefore miss an algorithm whose good plans take long to find. It drops
// an alternative only if others were better at the same effort.
//
// Errors: [ErrRequest], [schedule.ErrRoot], [schedule.ErrProblem] or [plans.ErrProblem] if the request is invalid;
// [planner.ErrInfeasible] with the reasons if no alternative has a plan; ctx.Err if ctx ends before the first plan.
// Choose is safe for concurrent use.
func Choose(ctx context.Context, r Request) (*Choice, error) {
	s, err := newSearch(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.among(s.names())
}

// among chooses among algorithms.
func (s *search) among(names []string) (*Choice, error) {
	s.screen(names)
	if !s.FixedOrder {
		s.reorder()
	}
	s.finish()
	return s.choice()
}

// candidate is an alternative together with its problem and its best plan.
type candidate struct {
	Alternative
	planned bool   // a planner has found a plan
	failed  error  // error of the first planner that found none
	proof   string // of LowerBoundUS
	// Only the best candidates keep these. For the others, solve computes the problem again.
	problem *plans.Problem
	plan    *plans.Plan
}

// kept is the number of candidates that keep problem and plan. With many ranks they need much memory.
const kept = finalists + 1

// search is the state of one call of Choose.
type search struct {
	Request
	ctx      context.Context
	deadline time.Time
	effort   time.Duration         // remaining effort
	known    map[string]*candidate // by canonical name
	planned  bool                  // at least one candidate has a plan
	all      []*candidate          // in the order in which they were added
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

// add returns the candidate of an algorithm. It creates the candidate if there is none.
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

// pose sets the planning problem of a candidate.
func (s *search) pose(c *candidate) (err error) {
	c.problem, _, err = schedule.ProblemOf(
		s.Collective, c.Algorithm, s.Ranks, s.Root, s.Bytes, s.Fabric, schedule.Disjoint)
	if err == nil {
		c.Steps = len(c.problem.Steps)
	}
	return err
}

// dropPlans releases the problems and plans of all candidates except the best.
func (s *search) dropPlans() {
	list := s.ranked()
	for _, c := range list[min(kept, len(list)):] {
		c.problem, c.plan = nil, nil
	}
}

// over reports whether the search must end. The time limit does not apply before the first plan.
func (s *search) over() bool {
	return s.ctx.Err() != nil || s.planned && !time.Now().Before(s.deadline)
}

// solve plans a candidate with a planner and an effort. It stores the plan if it is the candidate's best.
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
	if c.problem == nil { // dropPlans released it
		if err := s.pose(c); err != nil {
			return
		}
	}
	o := s.Options
	slack := slackTime + time.Duration(max(slackFactor, float64(o.TimeLimit)/float64(o.Effort))*float64(effort))
	o.Effort, o.TimeLimit = effort, max(leastEffort, min(time.Until(s.deadline), slack))
	plan, err := planner.Solve(s.ctx, name, c.problem, o)
	if err != nil {
		if !c.planned && c.failed == nil {
			c.failed = err
		}
		return
	}
	s.planned = true
	if plan.LowerBoundUS >= c.LowerBoundUS {
		c.LowerBoundUS, c.proof = plan.LowerBoundUS, plan.BoundProof
	}
	if !c.planned || plan.CCTUS < c.CCTUS-plans.Tolerance(plan.CCTUS, c.CCTUS) {
		c.planned, c.plan, c.CCTUS, c.Planner = true, plan, plan.CCTUS, plan.Planner
	}
	c.LowerBoundUS = min(c.LowerBoundUS, c.CCTUS) // planners round differently
	if c.plan != nil {
		c.plan.LowerBoundUS, c.plan.BoundProof = c.LowerBoundUS, c.proof
	}
}

// ranked returns the candidates with plans, the best first. Equal candidates keep the order of s.all.
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

// byTime orders candidates by completion time, rounded to 0.0001 us. Candidates without a plan come last.
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
			case errors.Is(c.Err, planner.ErrInfeasible), errors.Is(c.Err, ErrTooLarge), errors.Is(c.Err, schedule.ErrRanks):
			default: // the request is invalid, for all algorithms
				return nil, fmt.Errorf("codesign: %w", c.Err)
			}
			reasons = append(reasons, fmt.Sprintf("%s: %v", c.Algorithm, c.Err))
		}
		return nil, fmt.Errorf("codesign: %v on %d ranks: %w: %s",
			s.Collective, s.Ranks, planner.ErrInfeasible, strings.Join(reasons, "; "))
	}
	best := list[0]
	ch := &Choice{Algorithm: best.Algorithm, Problem: best.problem, Plan: best.plan}
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

// Common returns one algorithm for several calls, or "" if no algorithm has a plan for all of them. It returns the
// algorithm with the smallest geometric mean of completion times.
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
