package shim

import (
	"encoding/hex"
	"fmt"

	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/ticket"
)

// remember adds a plan to those that tickets can name.
func (o *optical) remember(a *planning.Agreed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.agreed) >= dispatch.MaxPrograms {
		clear(o.agreed) // what is still in use is asked for again
	}
	o.agreed[a.ID] = a
}

func (o *optical) lookup(id planning.ID) *planning.Agreed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.agreed[id]
}

// obtain returns the plan that a ticket names: known, derived here, or from the leader.
func (o *optical) obtain(t *ticket.Ticket, seq uint64, s calls.Shape) (*planning.Agreed, error) {
	if a := o.lookup(t.Plan); a != nil {
		return a, nil
	}
	problem, stepOf, err := o.Pose(planning.ShapeOf(s), t.Use.Len(), o.initial(t.Use))
	if err != nil {
		return nil, err
	}
	a := &planning.Agreed{ID: t.Plan, Problem: problem, StepOf: stepOf}
	if t.Flags&ticket.Interim != 0 {
		if plan, id, err := planning.Solve(planning.Interim, problem, planner.Options{}); err == nil && id == t.Plan {
			a.Plan = plan
			o.remember(a)
			return a, nil
		}
	}
	if err := o.c.Star.ToLeader(&control.Message{Kind: control.MsgPlanReq, Seq: seq, Body: t.Plan[:]}); err != nil {
		return nil, err
	}
	m, err := o.c.Await(control.MsgPlan, seq)
	if err != nil {
		return nil, err
	}
	if a.Plan, err = plans.DecodePlan(m.Body); err == nil {
		err = plans.VerifyDigest(problem, a.Plan)
	}
	if err == nil && a.Plan.Digest != hex.EncodeToString(t.Plan[:]) {
		err = plans.ErrDigest
	}
	if err != nil {
		return nil, fmt.Errorf("shim: rank %d: plan from rank 0: %w", o.c.Rank, err)
	}
	o.remember(a)
	return a, nil
}

// initial is the initial state that plans for those planes are made for.
func (o *optical) initial(use planeset.Set) []circuit.Permutation {
	if o.c.Cfg.PlanCurrent {
		return o.maps(use)
	}
	return nil
}

// entry returns the program of a shape under an agreed plan laid over the planes in use. Where
// those are not where the plan begins, the program starts by taking them there.
func (o *optical) entry(s calls.Shape, a *planning.Agreed, use planeset.Set) (*dispatch.Entry, error) {
	if len(a.Plan.Planes) != use.Len() {
		return nil, fmt.Errorf("shim: %v: plan of %d planes for %d: %w", s.Kind, len(a.Plan.Planes), use.Len(), errdefs.ErrInternal)
	}
	key := dispatch.Key{Shape: s, Plan: a.ID.Key(), Planes: use}
	setup, i := false, 0
	for j := range use.Each() {
		setup = setup || !o.now[j].maps.Equal(a.Plan.Initial[i])
		i++
	}
	if setup {
		key.Maps = o.standing(use) | 1 // not 0, which is no setup
	}
	if e := hostOf(o.c).programs.Get(key); e != nil {
		return e, nil
	}
	col, err := dispatch.BuildSchedule(&s, o.Ranks, true, o.Cfg, o.Pods)
	if err != nil {
		return nil, err
	}
	var current []circuit.Permutation
	if setup {
		current = use.SpreadMaps(o.maps(use), len(o.now))
	}
	k := calls.KernelsOf(&s, o.c.Ranks)
	p, err := program.Lower(col.Steps, use.Spread(a.Plan, len(o.now)), program.Args{
		Rank: o.c.Rank, Count: int64(s.Count), ElemSize: int64(s.Type.Size()), InPlace: s.InPlace,
		Scale: k.Scale != nil, Signature: program.Signature(uint64(s.Signature()), key.Plan, key.Maps, uint64(use)),
		Problem: a.Problem, StepOf: a.StepOf, Current: current,
	})
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s, planner %s: %w", s.Kind, col.Algorithm, a.Plan.Planner, err)
	}
	e := &dispatch.Entry{Prog: p, Algorithm: col.Algorithm, Kernels: k, Plan: a.Plan}
	hostOf(o.c).programs.Put(key, e)
	hostOf(o.c).programs.Trace(o.c, &s, e)
	o.c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, planner %s, predicted %.1f us, plan %.12s on %d of %d planes, setup %v",
		o.c.Rank, s.Kind, s.Count, s.Type, s.Root, col.Algorithm, a.Plan.Planner, a.Plan.CCTUS, a.Plan.Digest, use.Len(), len(o.now), setup)
	return e, nil
}
