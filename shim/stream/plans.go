package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lightpath/internal/brief"
	"lightpath/plans"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planning"
)

// A rank asks the leader for the plan of a shape. The leader keeps its first answer. So all ranks get the same plan at
// any time, and no rank waits for ranks that have not called.

// plannedScripts are the leader's plans of scripts.
type plannedScripts struct {
	planning sync.Mutex // held for one plan at a time
	made     sync.Map   // *plannedScript by shape
}

// plannedScript is the leader's answer: a plan, or why there is none.
type plannedScript struct {
	plan *planning.Agreed
	why  string
}

// askPlan returns the plan of a shape, or why there is none. tableMu is held.
func (in *Issuer) askPlan(s calls.Shape) (a *planning.Agreed, why string, err error) {
	c := in.c
	s = planning.ShapeOf(s)
	in.asked++
	m := &control.Message{Kind: control.MsgPlanAsk, Seq: in.asked, Body: calls.AppendShape(nil, &s)}
	if err := c.Star.ToLeader(m); err != nil {
		return nil, "", c.Fail(err)
	}
	// LIGHTPATH_PLAN_LIMIT bounds the planning of each plan that is requested before this one.
	timer := time.NewTimer(c.Cfg.Timeout)
	defer timer.Stop()
	var answer *control.Message
	for answer == nil || answer.Seq != in.asked {
		select {
		case answer = <-in.answers:
		case <-c.FailedChan():
			return nil, "", c.AsyncError()
		case <-timer.C:
			return nil, "", c.Fail(fmt.Errorf("shim: rank %d: no plan from rank 0 in %v: %w", c.Rank, c.Cfg.Timeout,
				errdefs.ErrTimeout))
		}
	}
	if answer.Arg == 0 {
		return nil, string(answer.Body), nil
	}
	job, err := in.site.Job(s, in.Lanes, nil)
	if err != nil {
		return nil, "", err
	}
	plan, err := plans.DecodePlan(answer.Body)
	if err == nil {
		a, err = job.Verified(plan)
	}
	if err != nil {
		return nil, "", c.Fail(fmt.Errorf("shim: rank %d: plan from rank 0: %w", c.Rank, err))
	}
	return a, "", nil
}

// answered receives an answer of the leader.
func (in *Issuer) answered(m *control.Message) {
	select {
	case in.answers <- m:
	case <-in.c.FailedChan():
	}
}

// answer answers a request for a plan. It runs at the leader, on a goroutine of its own.
func (in *Issuer) answer(m *control.Message) {
	reply := &control.Message{Kind: control.MsgPlanTold, Seq: m.Seq}
	s, err := calls.DecodeShape(m.Body, in.c.Ranks)
	if err != nil {
		in.c.Spread(err)
		return
	}
	p := in.planOf(s)
	reply.Body = []byte(brief.Text(p.why, 1<<10))
	if p.plan != nil {
		if reply.Body, err = plans.EncodeCompactPlan(p.plan.Plan); err != nil {
			in.c.Spread(fmt.Errorf("shim: plan for rank %d: %w", m.From, err))
			return
		}
		reply.Arg = 1
	}
	in.c.Star.To(int(m.From), reply)
}

// known returns the leader's answer for a shape, nil if no rank has asked.
func (in *Issuer) known(s calls.Shape) *plannedScript {
	p, _ := in.plans.made.Load(s)
	known, _ := p.(*plannedScript)
	return known
}

// knownPlan returns the plan in the leader's answer for a shape, nil if there is none.
func (in *Issuer) knownPlan(s calls.Shape) *planning.Agreed {
	if p := in.known(s); p != nil {
		return p.plan
	}
	return nil
}

// planOf returns the leader's answer for a shape. It plans each shape once.
func (in *Issuer) planOf(s calls.Shape) *plannedScript {
	in.plans.planning.Lock()
	defer in.plans.planning.Unlock()
	if p := in.known(s); p != nil {
		return p
	}
	p := &plannedScript{}
	plan, err := in.solve(s)
	if err != nil {
		p.why = err.Error()
	} else {
		p.plan = plan
		in.c.Log.Info(log.Tuning, "%v: planner %s, predicted %.1f us, lower bound %.1f us, digest %.12s, for scripts "+
			"on streams",
			&s, plan.Plan.Planner, plan.Plan.CCTUS, plan.Plan.LowerBoundUS, plan.Plan.Digest)
	}
	in.plans.made.Store(s, p)
	return p
}

// solve makes the plan of a shape on all planes, or finds it in the cache.
func (in *Issuer) solve(s calls.Shape) (*planning.Agreed, error) {
	f, err := in.site.Family(s, in.Lanes, nil)
	if err != nil {
		return nil, err
	}
	p := circuits.Of(in.c)
	same := p != nil && !p.Site.Template.Forwarding // the book's plans solve the same problem
	if same {
		f = f.Share(in.c.Cfg.Plan.Dir)
	}
	job, err := f.Job(planning.Key{Shape: s, Planes: in.Lanes})
	if err != nil {
		return nil, err
	}
	if job.Log = in.c.Log; same {
		job.Store = live.Of(in.c).Book.Store()
	}
	r := job.Run(context.Background())
	return r.Plan, r.Err
}
