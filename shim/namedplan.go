package shim

import (
	"encoding/hex"
	"fmt"
	"strings"

	"lightpath/plans"
	"lightpath/plans/planner"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
)

// named returns the row of a call that names its plan: one that this communicator has used, the
// interim one, or one of any planner in the plan cache, if it is a plan for this very call.
func (a *arbiter) named(key planning.Key, use planeset.Set) (*planned, error) {
	job, err := a.job(key, use)
	if err != nil {
		return nil, err
	}
	var known []string
	try := func(plan *plans.Plan) *planned {
		if plan == nil || plans.VerifyDigest(job.Problem, plan) != nil {
			return nil
		}
		known = append(known, fmt.Sprintf("%.12s (%s)", plan.Digest, plan.Planner))
		if !key.Shape.Request.Plan.Matches(plan.Digest) {
			return nil
		}
		id, err := planning.IDOf(plan)
		if err != nil {
			return nil
		}
		p := &planning.Agreed{ID: id, Plan: plan, Problem: job.Problem, StepOf: job.StepOf}
		a.o.remember(p)
		return &planned{best: p}
	}
	if plan, _, err := planning.Solve(planning.Interim, job.Problem, planner.Options{}); err == nil {
		if p := try(plan); p != nil {
			return p, nil
		}
	}
	for _, plan := range append(a.o.issued(), job.Stored(a.cache)...) {
		if p := try(plan); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("shim: %v: no such plan for this call on %d planes; known: %s: %w",
		&key.Shape, use.Len(), strings.Join(known, ", "), errdefs.ErrInvalidUsage)
}

// issued returns the plans that tickets have named lately.
func (o *optical) issued() (all []*plans.Plan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, a := range o.agreed {
		if a.Plan != nil && hex.EncodeToString(id[:]) == a.Plan.Digest {
			all = append(all, a.Plan)
		}
	}
	return all
}
