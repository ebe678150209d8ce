package shim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planning"
)

// scripted is how calls of one shape are interposed.
type scripted struct {
	script    *program.Script  // nil: they are not
	plan      *planning.Agreed // nil without circuits
	algorithm string
	entry     *dispatch.Entry // for the flight recorder and the errors of those on circuits
}

// Interposes tells whether a call on a stream is executed as sends and receives of the other library, and has what that takes
// ready. It depends on the call and on what all ranks share; the first call of a shape may wait for its plan, and for nothing
// else. An error is that of the call.
func Interposes(call *calls.Call) (bool, error) {
	if call.Comm == nil || !interposerOf(call.Comm).forOther() {
		return false, nil
	}
	if err := calls.Check(call); err != nil {
		return false, err
	}
	if call.Kind >= calls.NumKinds || call.Kind.P2P() || call.Count == 0 {
		return false, nil
	}
	e, err := interposerOf(call.Comm).of(call)
	return err == nil && e.script != nil, err
}

// of returns how a call that has been checked is interposed.
func (in *interposer) of(call *calls.Call) (*scripted, error) {
	s := calls.ShapeOf(call)
	s.Request = calls.Request{}
	in.mu.Lock()
	defer in.mu.Unlock()
	if e := in.table[s]; e != nil {
		return e, nil
	}
	e, err := in.make(s)
	if err != nil {
		return nil, err
	}
	if len(in.table) >= dispatch.MaxPrograms {
		clear(in.table)
	}
	in.table[s] = e
	return e, nil
}

// make makes the script of a shape. A shape without one is passed through, and the log says why.
func (in *interposer) make(s calls.Shape) (*scripted, error) {
	c := in.c
	coll := calls.Kinds[s.Kind].Collective
	args := program.Args{
		Rank: c.Rank, Planes: len(in.comms), Count: int64(s.Count), ElemSize: int64(s.Type.Size()), InPlace: s.InPlace,
		Scale: calls.KernelsOf(&s, c.Ranks).Scale != nil,
	}
	e := &scripted{}
	var plan *plans.Plan
	if circuits.Of(c) == nil {
		if _, chosen := c.Cfg.Algorithms[coll.String()]; !chosen && in.gdr == nil {
			return in.passed(s, "LIGHTPATH_ALGORITHM names no algorithm for it"), nil
		}
	} else {
		a, why, err := in.plan(s)
		if err != nil {
			return nil, err
		}
		if a == nil {
			return in.passed(s, why), nil
		}
		e.plan, plan, args.Problem, args.StepOf = a, a.Plan, a.Problem, a.StepOf
	}
	col, err := dispatch.BuildSchedule(&s, c.Ranks, circuits.Of(c) != nil, c.Cfg, in.site.Pods)
	if err != nil {
		return nil, err
	}
	p, err := program.Lower(col.Steps, plan, args)
	if err == nil {
		e.script, err = program.NewScript(p)
	}
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.Kind, col.Algorithm, err)
	}
	e.algorithm, e.entry = col.Algorithm, &dispatch.Entry{Prog: p, Algorithm: col.Algorithm, Plan: plan}
	how := "interposed"
	if in.gdr != nil {
		how = gdrAlgorithm
	}
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s, algorithm %s, %d groups of messages",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, how, col.Algorithm, len(e.script.Batches))
	return e, nil
}

func (in *interposer) passed(s calls.Shape, why string) *scripted {
	how := "passed to the other library"
	if in.gdr != nil {
		how = "staged through host memory"
	}
	in.c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s: %s", in.c.Rank, s.Kind, s.Count, s.Type, s.Root, how, why)
	return &scripted{}
}

// plansAsked is what a rank asks the leader for: the plan of a shape. What is answered first stays, so that all ranks have
// the same whenever they come to it; nobody waits for ranks that have not called.
type plansAsked struct {
	number  uint64 // of the last question; guarded by interposer.mu
	answers chan *control.Message

	planning sync.Mutex // leader: one plan at a time
	made     sync.Map   // leader: *plannedScript by shape
}

// plannedScript is the leader's answer: a plan, or why there is none.
type plannedScript struct {
	plan *planning.Agreed
	why  string
}

// plan returns the plan of a shape, or why there is none.
func (in *interposer) plan(s calls.Shape) (a *planning.Agreed, why string, err error) {
	c := in.c
	s = planning.ShapeOf(s)
	in.asking.number++
	m := &control.Message{Kind: control.MsgPlanAsk, Seq: in.asking.number, Body: calls.AppendShape(nil, &s)}
	if err := c.Star.ToLeader(m); err != nil {
		return nil, "", c.Fail(err)
	}
	// Planning ends by LIGHTPATH_PLAN_LIMIT, for each plan that is asked for before.
	timer := time.NewTimer(c.Cfg.Timeout)
	defer timer.Stop()
	var answer *control.Message
	for answer == nil || answer.Seq != in.asking.number {
		select {
		case answer = <-in.asking.answers:
		case <-c.FailedChan():
			return nil, "", c.AsyncError()
		case <-timer.C:
			return nil, "", c.Fail(fmt.Errorf("shim: rank %d: no plan from rank 0 in %v: %w", c.Rank, c.Cfg.Timeout, errdefs.ErrTimeout))
		}
	}
	if answer.Arg == 0 {
		return nil, string(answer.Body), nil
	}
	problem, stepOf, err := in.site.Pose(s, len(in.comms), nil)
	if err != nil {
		return nil, "", err
	}
	plan, err := plans.DecodePlan(answer.Body)
	if err == nil {
		err = plans.VerifyDigest(problem, plan)
	}
	if err != nil {
		return nil, "", c.Fail(fmt.Errorf("shim: rank %d: plan from rank 0: %w", c.Rank, err))
	}
	id, err := planning.IDOf(plan)
	return &planning.Agreed{ID: id, Plan: plan, Problem: problem, StepOf: stepOf}, "", err
}

// handlePlans has the leader say which plan a shape has, and ranks take its answers.
func handlePlans(c *comm.Core) {
	c.HandleAtLeader(control.MsgPlanAsk, func(m *control.Message) {
		if in := interposerOf(c); in != nil {
			go in.answer(m)
		}
	})
	c.Handle(control.MsgPlanTold, func(m *control.Message) {
		if in := interposerOf(c); in != nil {
			in.answered(m)
		}
	})
}

// answered takes an answer of the leader.
func (in *interposer) answered(m *control.Message) {
	select {
	case in.asking.answers <- m:
	case <-in.c.FailedChan():
	}
}

// answer plans for a rank that asks. Leader only, on a goroutine of its own.
func (in *interposer) answer(m *control.Message) {
	reply := &control.Message{Kind: control.MsgPlanTold, Seq: m.Seq}
	s, err := calls.DecodeShape(m.Body, in.c.Ranks)
	if err != nil {
		in.c.Spread(err)
		return
	}
	p := in.planned(s)
	reply.Body = []byte(errdefs.Cut(p.why, 1<<10))
	if p.plan != nil {
		if reply.Body, err = plans.EncodePlan(p.plan.Plan); err != nil {
			in.c.Spread(fmt.Errorf("shim: plan for rank %d: %w", m.From, err))
			return
		}
		reply.Arg = 1
	}
	in.c.Star.To(int(m.From), reply)
}

// known returns what the leader has answered for a shape, nil where nobody has asked.
func (in *interposer) known(s calls.Shape) *plannedScript {
	p, _ := in.asking.made.Load(s)
	known, _ := p.(*plannedScript)
	return known
}

// planned returns the leader's plan of a shape, which it makes once.
func (in *interposer) planned(s calls.Shape) *plannedScript {
	in.asking.planning.Lock()
	defer in.asking.planning.Unlock()
	if p := in.known(s); p != nil {
		return p
	}
	p := &plannedScript{}
	plan, err := in.solve(s)
	if err != nil {
		p.why = err.Error()
	} else {
		p.plan = plan
		in.c.Log.Info(log.Tuning, "%v: planner %s, predicted %.1f us, lower bound %.1f us, digest %.12s, for the other library",
			&s, plan.Plan.Planner, plan.Plan.CCTUS, plan.Plan.LowerBoundUS, plan.Plan.Digest)
	}
	in.asking.made.Store(s, p)
	return p
}

// solve makes the plan of a shape on all planes, or finds it in the cache.
func (in *interposer) solve(s calls.Shape) (*planning.Agreed, error) {
	f, err := in.site.Family(s, len(in.comms), nil)
	if err != nil {
		return nil, err
	}
	f.Log = in.c.Log
	if p := circuits.Of(in.c); p != nil && !p.Template.Forwarding {
		f.Store = live.Of(in.c).Book.Store() // made for the same problem
	}
	job, err := f.Job(planning.Key{Shape: s, Planes: len(in.comms)})
	if err != nil {
		return nil, err
	}
	r := job.Run(context.Background())
	return r.Plan, r.Err
}
