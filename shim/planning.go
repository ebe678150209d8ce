package shim

import (
	"context"
	"encoding/hex"
	"fmt"

	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/settings"
)

// interimPlanner makes the plan that serves until the chosen planner has finished: quick,
// and the same on every rank.
const interimPlanner = "perstep"

// agreedPlan is a plan with the problem it answers, the same on every rank.
type agreedPlan struct {
	id      planID
	plan    *plans.Plan
	problem *plans.Problem
	stepOf  []int // schedule step of each problem step
}

// planSite is what every plan of a communicator has in common: where it will run.
type planSite struct {
	cfg      *settings.Config
	ranks    int
	ports    []int  // by rank
	fabric   string // digest
	name     string // of the fabric
	planes   []fabric.Plane
	template *plans.Problem
	pods     [][]int // the ranks of each pod of the fabric; nil where it has fewer than two
}

func newPlanSite(cfg *settings.Config, fab *fabric.Fabric, ports []int) planSite {
	t := fab.Problem()
	t.Ranks = len(ports)
	t.Final = plans.Final{Kind: plans.FinalInitial}
	return planSite{cfg: cfg, ranks: len(ports), ports: ports, fabric: fab.Digest(), name: fab.Name, planes: fab.Planes, template: t, pods: dispatch.PodsOf(fab, ports)}
}

// all is the set of the fabric's planes.
func (o *planSite) all() planeset.Set { return planeset.All(len(o.planes)) }

// planShape reduces a shape to what a plan depends on. Operators and in-place calls
// share plans.
func planShape(s calls.Shape) calls.Shape {
	s.Op, s.InPlace, s.Scripted = 0, false, false
	return s
}

// pose states the planning problem of a shape on so many planes. initial is nil where the
// planner may choose where the planes begin.
func (o *planSite) pose(s calls.Shape, planes int, initial []circuit.Permutation) (*plans.Problem, []int, error) {
	f, err := o.family(s, planes, initial)
	if err != nil {
		return nil, nil, err
	}
	return f.pose(int64(s.Count) * int64(s.Type.Size()))
}

// solve runs a planner and seals the plan.
func solve(name string, p *plans.Problem, o planner.Options) (*plans.Plan, planID, error) {
	plan, err := planner.Solve(context.Background(), name, p, o)
	if err != nil {
		return nil, planID{}, err
	}
	if err := plans.Seal(p, plan); err != nil {
		return nil, planID{}, err
	}
	id, err := idOf(plan)
	return plan, id, err
}

func idOf(p *plans.Plan) (id planID, err error) {
	raw, err := hex.DecodeString(p.Digest)
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("shim: plan digest %.80q: %w", p.Digest, plans.ErrDigest)
	}
	return planID(raw), nil
}

// remember adds a plan to those that tickets can name.
func (o *optical) remember(a *agreedPlan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.agreed) >= dispatch.MaxPrograms {
		clear(o.agreed) // what is still in use is asked for again
	}
	o.agreed[a.id] = a
}

func (o *optical) lookup(id planID) *agreedPlan {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.agreed[id]
}

// obtain returns the plan that a ticket names: known, derived here, or from the leader.
func (o *optical) obtain(t *ticket, seq uint64, s calls.Shape) (*agreedPlan, error) {
	if a := o.lookup(t.plan); a != nil {
		return a, nil
	}
	problem, stepOf, err := o.pose(planShape(s), t.use.Len(), o.initial(t.use))
	if err != nil {
		return nil, err
	}
	a := &agreedPlan{id: t.plan, problem: problem, stepOf: stepOf}
	if t.flags&ticketInterim != 0 {
		if plan, id, err := solve(interimPlanner, problem, planner.Options{}); err == nil && id == t.plan {
			a.plan = plan
			o.remember(a)
			return a, nil
		}
	}
	if err := o.c.Star.ToLeader(&control.Message{Kind: control.MsgPlanReq, Seq: seq, Body: t.plan[:]}); err != nil {
		return nil, err
	}
	m, err := o.c.Await(control.MsgPlan, seq)
	if err != nil {
		return nil, err
	}
	if a.plan, err = plans.DecodePlan(m.Body); err == nil {
		err = plans.VerifyDigest(problem, a.plan)
	}
	if err == nil && a.plan.Digest != hex.EncodeToString(t.plan[:]) {
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
func (o *optical) entry(s calls.Shape, a *agreedPlan, use planeset.Set) (*dispatch.Entry, error) {
	if len(a.plan.Planes) != use.Len() {
		return nil, fmt.Errorf("shim: %v: plan of %d planes for %d: %w", s.Kind, len(a.plan.Planes), use.Len(), errdefs.ErrInternal)
	}
	key := dispatch.Key{Shape: s, Plan: a.id.key(), Planes: use}
	setup, i := false, 0
	for j := range use.Each() {
		setup = setup || !o.now[j].maps.Equal(a.plan.Initial[i])
		i++
	}
	if setup {
		key.Maps = o.standing(use) | 1 // not 0, which is no setup
	}
	if e := hostOf(o.c).programs.Get(key); e != nil {
		return e, nil
	}
	col, err := dispatch.BuildSchedule(&s, o.ranks, true, o.cfg, o.pods)
	if err != nil {
		return nil, err
	}
	var current []circuit.Permutation
	if setup {
		current = use.SpreadMaps(o.maps(use), len(o.now))
	}
	k := calls.KernelsOf(&s, o.c.Ranks)
	p, err := program.Lower(col.Steps, use.Spread(a.plan, len(o.now)), program.Args{
		Rank: o.c.Rank, Count: int64(s.Count), ElemSize: int64(s.Type.Size()), InPlace: s.InPlace,
		Scale: k.Scale != nil, Signature: program.Signature(uint64(s.Signature()), key.Plan, key.Maps, uint64(use)),
		Problem: a.problem, StepOf: a.stepOf, Current: current,
	})
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s, planner %s: %w", s.Kind, col.Algorithm, a.plan.Planner, err)
	}
	e := &dispatch.Entry{Prog: p, Algorithm: col.Algorithm, Kernels: k, Plan: a.plan}
	hostOf(o.c).programs.Put(key, e)
	hostOf(o.c).programs.Trace(o.c, &s, e)
	o.c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, planner %s, predicted %.1f us, plan %.12s on %d of %d planes, setup %v",
		o.c.Rank, s.Kind, s.Count, s.Type, s.Root, col.Algorithm, a.plan.Planner, a.plan.CCTUS, a.plan.Digest, use.Len(), len(o.now), setup)
	return e, nil
}
