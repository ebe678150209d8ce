package circuits

import (
	"encoding/hex"
	"fmt"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// Initial returns the maps that plans for some planes begin with, nil if planners choose.
func (p *Planes) Initial(use planeset.Set) []circuit.Permutation {
	if p.Cfg.PlanCurrent {
		return ticket.MapsOf(p.now, use)
	}
	return nil
}

// Obtain returns the plan that a grant names: a known plan, a plan derived here, or the leader's plan.
func (p *Planes) Obtain(g *Grant, s calls.Shape) (*planning.Agreed, error) {
	if a := p.Known.Lookup(g.Ticket.Plan); a != nil {
		return a, nil
	}
	f, err := p.Family(planning.ShapeOf(s), g.Use.Len(), p.Initial(g.Use))
	if err != nil {
		return nil, err
	}
	job, err := f.Job(planning.Key{Shape: planning.ShapeOf(s)})
	if err != nil {
		return nil, err
	}
	problem := job.Problem
	a := &planning.Agreed{ID: g.Ticket.Plan, Problem: problem, StepOf: job.StepOf}
	if g.Flags&ticket.Interim != 0 {
		if plan, id, err := p.Interim(problem); err == nil && id == a.ID {
			a.Plan = plan
			p.Known.Remember(a)
			return a, nil
		}
	}
	if err := p.c.Star.ToLeader(&control.Message{Kind: control.MsgPlanReq, Seq: g.Seq, Body: a.ID[:]}); err != nil {
		return nil, err
	}
	m, err := p.c.Await(control.MsgPlan, g.Seq)
	if err != nil {
		return nil, err
	}
	if a.Plan, err = plans.DecodePlan(m.Body); err == nil {
		err = plans.VerifyDigest(problem, a.Plan)
	}
	if err == nil && a.Plan.Digest != hex.EncodeToString(a.ID[:]) {
		err = plans.ErrDigest
	}
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d: plan from rank 0: %w", p.c.Rank, err)
	}
	p.Known.Remember(a)
	job.Learn(p.Cfg, a.Plan)
	return a, nil
}
