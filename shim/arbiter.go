package shim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lightpath/plans"
	"lightpath/plans/cache"
	"lightpath/plans/planner"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/ticket"
)

const (
	// idleHold is how long planes stay granted after an operation: the next one of a loop
	// then needs no new grant, and a reset under way overlaps with the ranks' own work.
	idleHold = 2 * time.Millisecond
	// maxHold is after how long a busy communicator gives the planes back between two
	// operations, so that others get their turn.
	maxHold = 100 * time.Millisecond
	// maxPlanned bounds the leader's table of plans, maxFamilies what it knows of sizes.
	maxPlanned  = 1024
	maxFamilies = 128
)

// arbiter issues the tickets of a communicator. It runs on the leader's goroutine. Since a
// rank's control connection keeps order, and a rank wants its next operation only after it
// is done with the last, a complete set of wants means that nothing is under way.
type arbiter struct {
	l       *leader
	o       *optical
	wants   map[uint64]*want
	done    int          // ranks that have finished the operation under way
	held    planeset.Set // granted
	out     planeset.Set // known to be out of service
	moved   planeset.Set // of held: they may be elsewhere than the ranks know
	since   time.Time    // of the grant
	idle    *time.Timer
	table   map[planning.Key]*planned
	ver     uint32
	family  map[cache.Key]*planning.Family
	cache   *cache.Cache // nil without a directory
	ctx     context.Context
	cancel  context.CancelFunc // of planning in the background
	solved  chan planning.Solution
	widen   chan struct{} // holds a token while some family is being widened
	rounds  rounds
	demands demandPlans
	buf     []byte
	t       ticket.Ticket
}

// want gathers the ranks that have reached an operation.
type want struct {
	sigs  []uint64
	known []bool
	have  int
}

// planned is a row of the table of plans.
type planned struct {
	best, interim *planning.Agreed
	hopeless      bool // no planner has a plan: packet planes for good
}

func newArbiter(l *leader, o *optical) (*arbiter, error) {
	a := &arbiter{
		l: l, o: o, wants: map[uint64]*want{}, table: map[planning.Key]*planned{}, solved: make(chan planning.Solution, 16),
		family: map[cache.Key]*planning.Family{}, widen: make(chan struct{}, 1),
		idle: time.NewTimer(time.Hour), t: ticket.Ticket{Planes: make([]ticket.Plane, len(o.now))},
	}
	a.idle.Stop()
	a.rounds, a.demands = newRounds(a), newDemandPlans()
	a.ctx, a.cancel = context.WithCancel(context.Background())
	if dir := o.c.Cfg.PlanDir; dir != "" {
		var err error
		if a.cache, err = cache.Open(dir); err != nil {
			return nil, fmt.Errorf("shim: environment variable LIGHTPATH_PLAN_DIR: %w", err)
		}
	}
	return a, nil
}

// handle takes a message of a rank.
func (a *arbiter) handle(m *control.Message) error {
	switch m.Kind {
	case control.MsgWant:
		return a.want(m)
	case control.MsgDone:
		if a.done++; a.done == a.o.c.Ranks {
			a.done = 0
			a.idle.Reset(idleHold)
		}
		return nil
	case control.MsgPlanReq:
		return a.sendPlan(m)
	case control.MsgRow:
		return a.rounds.post(m)
	}
	return fmt.Errorf("%w: kind %d at the arbiter", control.ErrMessage, m.Kind)
}

func (a *arbiter) want(m *control.Message) error {
	n := a.o.c.Ranks
	w := a.wants[m.Seq]
	if w == nil {
		w = &want{sigs: make([]uint64, n), known: make([]bool, n)}
		a.wants[m.Seq] = w
	}
	if w.known[m.From] {
		return fmt.Errorf("%w: rank %d wants operation %d twice", control.ErrMessage, m.From, m.Seq)
	}
	w.sigs[m.From], w.known[m.From] = m.Arg, true
	if w.have++; w.have < n {
		a.rounds.close() // this rank will not join
		return nil
	}
	delete(a.wants, m.Seq)
	for r := range w.sigs {
		if w.sigs[r] != w.sigs[0] {
			// The words for both calls come from the ranks; see leader.stalled.
			a.l.query(m.Seq)
			return nil
		}
	}
	return a.grant(m.Seq)
}

// grant decides how an operation that everyone has reached is done.
func (a *arbiter) grant(seq uint64) error {
	s, ok := recorder.Of(a.o.c).Find(seq)
	if !ok {
		return fmt.Errorf("shim: arbiter: operation %d is not known: %w", seq, errdefs.ErrInternal)
	}
	a.idle.Stop()
	if err := a.secure(); err != nil {
		return err
	}
	if err := a.decide(seq, s); err != nil {
		return err
	}
	a.buf = ticket.Append(a.buf[:0], &a.t)
	m := control.Message{Kind: control.MsgTicket, Seq: seq, Body: a.buf}
	a.o.c.Star.Broadcast(&m, -1)
	a.o.c.Deliver(&control.Message{Kind: control.MsgTicket, Seq: seq, Body: append([]byte(nil), a.buf...)})
	return nil
}

// decide fills in the ticket of an operation on the planes that are held.
func (a *arbiter) decide(seq uint64, s calls.Shape) error {
	if s.Scripted {
		return a.decideScripted(s)
	}
	all, use := a.o.All(), a.held
	if s.Request.Planes != 0 {
		all = s.Request.Planes
		use = (use & all).Usable(a.o.Template.Circuits)
	}
	a.t.Flags, a.t.Version, a.t.Plan, a.t.Use, a.t.Start = 0, a.ver, planning.ID{}, use, 0
	if use == 0 {
		a.t.Flags = ticket.Packet
		return nil
	}
	var plan *planning.Agreed
	p, err := a.planFor(planning.ShapeOf(s), use)
	if err != nil {
		return err
	}
	plane, shared := a.o.entangled(use)
	switch {
	case p.hopeless && use == all:
		a.t.Flags = ticket.Packet | ticket.Always
	case p.hopeless:
		a.t.Flags = ticket.Packet // until more planes are back
	case shared:
		a.t.Flags = ticket.Packet
		a.o.c.Log.Info(log.Coll, "operation %d: packet planes, another communicator's port has a circuit to ours on plane %d", seq, plane)
	case p.best != nil:
		plan = p.best
	case p.interim != nil:
		plan, a.t.Flags = p.interim, ticket.Interim
	default:
		a.t.Flags = ticket.Packet
	}
	a.stand(use)
	if plan == nil {
		return nil
	}
	a.t.Plan = plan.ID
	if a.o.c.Cfg.BarrierTime {
		return a.schedule(s, plan)
	}
	return nil
}

// stand puts into the ticket where the planes in use stand.
func (a *arbiter) stand(use planeset.Set) {
	moved := a.moved&use != 0
	for j := range use.Each() {
		a.t.Planes[j] = ticket.Plane{Epoch: a.o.now[j].epoch, Hash: a.o.now[j].hash}
		if moved {
			a.t.Planes[j].Maps = a.o.now[j].maps
		}
	}
	if moved {
		a.t.Flags |= ticket.Maps
		a.moved &^= use
	}
}

// sendPlan answers a rank that lacks a plan.
func (a *arbiter) sendPlan(m *control.Message) error {
	var id planning.ID
	if len(m.Body) != len(id) {
		return fmt.Errorf("%w: plan request of %d bytes", control.ErrMessage, len(m.Body))
	}
	copy(id[:], m.Body)
	p := a.o.lookup(id)
	if p == nil {
		return fmt.Errorf("shim: rank %d asks for a plan that was not issued: %w", m.From, control.ErrMessage)
	}
	body, err := plans.EncodePlan(p.Plan)
	if err != nil {
		return fmt.Errorf("shim: plan for rank %d: %w", m.From, err)
	}
	a.o.c.Star.To(int(m.From), &control.Message{Kind: control.MsgPlan, Seq: m.Seq, Body: body})
	return nil
}

// planFor returns the row of a shape, made and set to work where there was none.
func (a *arbiter) planFor(s calls.Shape, use planeset.Set) (*planned, error) {
	key := planning.Key{Shape: s, Planes: use.Len()}
	if a.o.c.Cfg.PlanCurrent {
		key.Maps = a.o.standing(use)
	}
	if p := a.table[key]; p != nil {
		return p, nil
	}
	if s.Request.Plan.Digits > 0 {
		p, err := a.named(key, use)
		if err == nil {
			a.table[key] = p
		}
		return p, err
	}
	if len(a.table) >= maxPlanned {
		clear(a.table) // families and the plan cache remember
	}
	p := &planned{}
	a.table[key] = p
	job, err := a.job(key, use)
	if err != nil {
		a.adopt(planning.Solution{Key: key, Err: err})
		return p, nil
	}
	if s, ok := job.Known(); ok {
		a.adopt(s)
		return p, nil
	}
	if a.o.c.Cfg.PlanWait {
		result := job.Run(a.ctx)
		a.adopt(result)
		if result.Fresh {
			go a.widenFrom(job)
		}
		return p, nil
	}
	if plan, id, err := planning.Solve(planning.Interim, job.Problem, planner.Options{}); err == nil {
		p.interim = &planning.Agreed{ID: id, Plan: plan, Problem: job.Problem, StepOf: job.StepOf}
		a.o.remember(p.interim)
	}
	go func() {
		result := job.Run(a.ctx)
		select {
		case a.solved <- result:
		case <-a.l.stop:
			return
		}
		if result.Fresh {
			a.widenFrom(job)
		}
	}()
	return p, nil
}

// job states the job of a shape, in the family of calls that it belongs to.
func (a *arbiter) job(key planning.Key, use planeset.Set) (*planning.Job, error) {
	f, err := a.o.Family(key.Shape, key.Planes, a.o.initial(use))
	if err != nil {
		return nil, err
	}
	if known := a.family[f.CacheKey]; known != nil {
		f = known
	} else {
		if len(a.family) >= maxFamilies {
			clear(a.family)
		}
		f.Log, f.Store = a.o.c.Log, a.cache
		a.family[f.CacheKey] = f
	}
	j, err := f.Job(key)
	if err == nil {
		j.Delay = a.o.c.Cfg.Fault.PlanDelay
	}
	return j, err
}

// widenFrom lets a plan serve more sizes than its own, one family at a time. Where plans begin
// at the present circuits, they hardly recur.
func (a *arbiter) widenFrom(j *planning.Job) {
	if a.o.c.Cfg.PlanCurrent {
		return
	}
	select {
	case a.widen <- struct{}{}:
		j.Widen(a.ctx)
		<-a.widen
	case <-a.l.stop:
	}
}

// adopt puts a finished plan, or its failure, in force from the next ticket on.
func (a *arbiter) adopt(r planning.Solution) {
	p := a.table[r.Key]
	if p == nil {
		return // forgotten meanwhile
	}
	a.ver++
	out := a.o.c.Log
	switch {
	case r.Err == nil:
		p.best = r.Plan
		a.o.remember(r.Plan)
		out.Info(log.Tuning, "plan table %d: %v: planner %s, predicted %.1f us, lower bound %.1f us, digest %.12s",
			a.ver, &r.Key.Shape, r.Plan.Plan.Planner, r.Plan.Plan.CCTUS, r.Plan.Plan.LowerBoundUS, r.Plan.Plan.Digest)
	case p.interim != nil && !errors.Is(r.Err, planner.ErrInfeasible):
		out.Warn("%v keeps its interim plan: %v", &r.Key.Shape, r.Err)
	default:
		p.hopeless, p.interim = true, nil
		out.Info(log.Tuning, "plan table %d: %v runs on packet planes: %v", a.ver, &r.Key.Shape, r.Err)
	}
}
