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
	if g.Flags&ticket.Chained != 0 {
		return p.obtainChained(g, s)
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
	if a.Plan, err = p.fetch(g); err == nil {
		err = p.agree(a)
	}
	if err != nil {
		return nil, err
	}
	job.Learn(p.Cfg, a.Plan)
	return a, nil
}

// fetch asks the leader for the plan that a grant names.
func (p *Planes) fetch(g *Grant) (*plans.Plan, error) {
	ask := control.Message{Kind: control.MsgPlanReq, Seq: g.Seq, Body: g.Ticket.Plan[:]}
	if err := p.c.Star.ToLeader(&ask); err != nil {
		return nil, err
	}
	m, err := p.c.Await(control.MsgPlan, g.Seq)
	if err != nil {
		return nil, err
	}
	plan, err := plans.DecodePlan(m.Body)
	if err != nil {
		return nil, p.badPlan(err)
	}
	return plan, nil
}

// agree checks a plan of the leader against its problem, and keeps it.
func (p *Planes) agree(a *planning.Agreed) error {
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

// obtainChained is Obtain for the plan of an iteration, which only the leader can make. Its problem begins and ends
// where the plan does.
func (p *Planes) obtainChained(g *Grant, s calls.Shape) (*planning.Agreed, error) {
	plan, err := p.fetch(g)
	if err != nil {
		return nil, err
	}
	job, err := p.OfChained(s, plan)
	if err != nil {
		return nil, p.badPlan(err)
	}
	a := &planning.Agreed{ID: g.Ticket.Plan, Plan: plan, Problem: job.Problem, StepOf: job.StepOf}
	return a, p.agree(a)
}
