package circuits

import (
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
	job, err := p.Site.Job(planning.ShapeOf(s), t.Use.Len(), p.Initial(t.Use))
	if err != nil {
		return nil, err
	}
	if t.Flags&ticket.Interim != 0 {
		if a, err := p.Site.Interim(job); err == nil && a.ID == t.Plan {
			p.Known.Remember(a)
			return a, nil
		}
	}
	plan, err := p.fetchPlan(t)
	if err != nil {
		return nil, err
	}
	a, err := p.acceptPlan(t, job, plan)
	if err == nil {
		job.Learn(p.Site.Cfg, plan)
	}
	return a, err
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

// acceptPlan checks that a plan of the leader is the ticket's, and for the job, and keeps it.
func (p *Planes) acceptPlan(t *Ticket, job *planning.Job, plan *plans.Plan) (*planning.Agreed, error) {
	a, err := job.Verified(plan)
	if err == nil && a.ID != t.Plan {
		err = plans.ErrDigest
	}
	if err != nil {
		return nil, p.badPlan(err)
	}
	p.Known.Remember(a)
	return a, nil
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
	return p.acceptPlan(t, job, plan)
}
