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
	if p.Site.Cfg.Plan.Current {
		return ticket.MapsOf(p.Machine.standing, use)
	}
	return nil
}

// ObtainPlan returns the plan that a ticket names: a known plan, a plan derived here, or the leader's plan.
func (p *Planes) ObtainPlan(t *Ticket, s calls.Shape) (*planning.Agreed, error) {
	if a := p.Known.Lookup(t.Plan); a != nil {
		return a, nil
	}
	if t.Flags&ticket.Chained != 0 {
		return p.obtainChainedPlan(t, s)
	}
	f, err := p.Site.Family(planning.ShapeOf(s), t.Use.Len(), p.Initial(t.Use))
	if err != nil {
		return nil, err
	}
	job, err := f.Job(planning.Key{Shape: planning.ShapeOf(s)})
	if err != nil {
		return nil, err
	}
	problem := job.Problem
	a := &planning.Agreed{ID: t.Plan, Problem: problem, StepOf: job.StepOf}
	if t.Flags&ticket.Interim != 0 {
		if plan, id, err := p.Site.Interim(problem); err == nil && id == a.ID {
			a.Plan = plan
			p.Known.Remember(a)
			return a, nil
		}
	}
	if a.Plan, err = p.fetchPlan(t); err == nil {
		err = p.acceptPlan(a)
	}
	if err != nil {
		return nil, err
	}
	job.Learn(p.Site.Cfg, a.Plan)
	return a, nil
}

// fetchPlan asks the leader for the plan that a ticket names.
func (p *Planes) fetchPlan(t *Ticket) (*plans.Plan, error) {
	ask := control.Message{Kind: control.MsgPlanReq, Seq: t.Seq, Body: t.Plan[:]}
	if err := p.c.Star.ToLeader(&ask); err != nil {
		return nil, err
	}
	m, err := p.c.Await(control.MsgPlan, t.Seq)
	if err != nil {
		return nil, err
	}
	plan, err := plans.DecodePlan(m.Body)
	if err != nil {
		return nil, p.badPlan(err)
	}
	return plan, nil
}

// acceptPlan checks a plan of the leader against its problem, and keeps it.
func (p *Planes) acceptPlan(a *planning.Agreed) error {
	err := plans.VerifyDigest(a.Problem, a.Plan)
	if err == nil && a.Plan.Digest != hex.EncodeToString(a.ID[:]) {
		err = plans.ErrDigest
	}
	if err != nil {
		return p.badPlan(err)
	}
	p.Known.Remember(a)
	return nil
}

func (p *Planes) badPlan(err error) error {
	return fmt.Errorf("shim: rank %d: plan from rank 0: %w", p.c.Rank, err)
}

// obtainChainedPlan is [Planes.ObtainPlan] for the plan of an iteration, which only the leader can make. Its problem
// begins and ends where the plan does.
func (p *Planes) obtainChainedPlan(t *Ticket, s calls.Shape) (*planning.Agreed, error) {
	plan, err := p.fetchPlan(t)
	if err != nil {
		return nil, err
	}
	job, err := p.Site.OfChained(s, plan)
	if err != nil {
		return nil, p.badPlan(err)
	}
	a := &planning.Agreed{ID: t.Plan, Plan: plan, Problem: job.Problem, StepOf: job.StepOf}
	return a, p.acceptPlan(a)
}
