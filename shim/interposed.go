package shim

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/collectives/program"
	"lightpath/plans"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
)

// scripted is how calls of one shape are interposed.
type scripted struct {
	script    *program.Script // nil: they are not
	plan      *agreedPlan     // nil without circuits
	algorithm string
	entry     *entry // for the flight recorder and the errors of those on circuits
}

// Interposes tells whether a call on a stream is executed as sends and receives of the other library, and has what that takes
// ready. It depends on the call and on what all ranks share; the first call of a shape may wait for its plan, and for nothing
// else. An error is that of the call.
func Interposes(call *Call) (bool, error) {
	if call.Comm == nil || !interposerOf(call.Comm).forOther() {
		return false, nil
	}
	if err := Check(call); err != nil {
		return false, err
	}
	if call.Kind >= NumCallKinds || call.Kind.p2p() || call.Count == 0 {
		return false, nil
	}
	e, err := interposerOf(call.Comm).of(call)
	return err == nil && e.script != nil, err
}

// of returns how a call that has been checked is interposed.
func (in *interposer) of(call *Call) (*scripted, error) {
	inPlace, err := call.check()
	if err != nil {
		return nil, err
	}
	s := shapeOf(call, inPlace)
	s.wish = wish{}
	in.mu.Lock()
	defer in.mu.Unlock()
	if e := in.table[s]; e != nil {
		return e, nil
	}
	e, err := in.make(s)
	if err != nil {
		return nil, err
	}
	if len(in.table) >= maxPrograms {
		clear(in.table)
	}
	in.table[s] = e
	return e, nil
}

// make makes the script of a shape. A shape without one is passed through, and the log says why.
func (in *interposer) make(s shape) (*scripted, error) {
	c := in.c
	coll := kinds[s.kind].collective
	args := program.Args{
		Rank: c.Rank, Planes: len(in.comms), Count: int64(s.count), ElemSize: int64(s.typ.Size()), InPlace: s.inPlace,
		Scale: kernelsOf(&s, c.Ranks).scale != nil,
	}
	e := &scripted{}
	var plan *plans.Plan
	if opticalOf(c) == nil {
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
		e.plan, plan, args.Problem, args.StepOf = a, a.plan, a.problem, a.stepOf
	}
	col, err := buildSchedule(&s, c.Ranks, opticalOf(c) != nil, c.Cfg, in.site.pods)
	if err != nil {
		return nil, err
	}
	p, err := program.Lower(col.sched, plan, args)
	if err == nil {
		e.script, err = program.NewScript(p)
	}
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s: %w", s.kind, col.algorithm, err)
	}
	e.algorithm, e.entry = col.algorithm, &entry{prog: p, algorithm: col.algorithm, plan: plan}
	how := "interposed"
	if in.gdr != nil {
		how = gdrAlgorithm
	}
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s, algorithm %s, %d groups of messages",
		c.Rank, s.kind, s.count, s.typ, s.root, how, col.algorithm, len(e.script.Batches))
	return e, nil
}

func (in *interposer) passed(s shape, why string) *scripted {
	how := "passed to the other library"
	if in.gdr != nil {
		how = "staged through host memory"
	}
	in.c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): %s: %s", in.c.Rank, s.kind, s.count, s.typ, s.root, how, why)
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
	plan *agreedPlan
	why  string
}

// plan returns the plan of a shape, or why there is none.
func (in *interposer) plan(s shape) (a *agreedPlan, why string, err error) {
	c := in.c
	s = planShape(s)
	in.asking.number++
	m := &control.Message{Kind: control.MsgPlanAsk, Seq: in.asking.number, Body: appendShape(nil, s)}
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
	problem, stepOf, err := in.site.pose(s, len(in.comms), nil)
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
	id, err := idOf(plan)
	return &agreedPlan{id, plan, problem, stepOf}, "", err
}

// handlePlans has the leader say which plan a shape has, and ranks take its answers.
func handlePlans(c *Comm) {
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
	s, err := decodeShape(m.Body, in.c.Ranks)
	if err != nil {
		in.c.Spread(err)
		return
	}
	p := in.planned(s)
	reply.Body = []byte(errdefs.Cut(p.why, 1<<10))
	if p.plan != nil {
		if reply.Body, err = plans.EncodePlan(p.plan.plan); err != nil {
			in.c.Spread(fmt.Errorf("shim: plan for rank %d: %w", m.From, err))
			return
		}
		reply.Arg = 1
	}
	in.c.Star.To(int(m.From), reply)
}

// known returns what the leader has answered for a shape, nil where nobody has asked.
func (in *interposer) known(s shape) *plannedScript {
	p, _ := in.asking.made.Load(s)
	known, _ := p.(*plannedScript)
	return known
}

// planned returns the leader's plan of a shape, which it makes once.
func (in *interposer) planned(s shape) *plannedScript {
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
			&s, plan.plan.Planner, plan.plan.CCTUS, plan.plan.LowerBoundUS, plan.plan.Digest)
	}
	in.asking.made.Store(s, p)
	return p
}

// solve makes the plan of a shape on all planes, or finds it in the cache.
func (in *interposer) solve(s shape) (*agreedPlan, error) {
	f, err := in.site.family(s, len(in.comms), nil)
	if err != nil {
		return nil, err
	}
	f.log = in.c.Log
	if tickets := leaderOf(in.c).tickets; tickets != nil && !opticalOf(in.c).template.Forwarding {
		f.store = tickets.cache // made for the same problem
	}
	job, err := f.job(planKey{shape: s, planes: len(in.comms)})
	if err != nil {
		return nil, err
	}
	r := job.run(context.Background())
	return r.plan, r.err
}

// appendShape encodes what a plan depends on, for the leader: kind, type, root, count, little endian.
func appendShape(b []byte, s shape) []byte {
	b = append(b, byte(s.kind), byte(s.typ))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.root))
	return binary.LittleEndian.AppendUint64(b, s.count)
}

func decodeShape(b []byte, ranks int) (s shape, err error) {
	if len(b) != 14 {
		return s, fmt.Errorf("%w: shape of %d bytes", control.ErrMessage, len(b))
	}
	s = shape{kind: CallKind(b[0]), typ: datatype.Type(b[1]), root: int32(binary.LittleEndian.Uint32(b[2:])), count: binary.LittleEndian.Uint64(b[6:])}
	if s.kind >= NumCallKinds || s.kind.p2p() || !s.typ.Valid() || s.root < 0 || int(s.root) >= ranks || s.count == 0 || s.count > math.MaxInt64/uint64(8*ranks) {
		return s, fmt.Errorf("%w: shape of %v", control.ErrMessage, s.kind)
	}
	return s, nil
}
