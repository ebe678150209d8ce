package shim

import (
	"fmt"
	"sync"
	"time"

	"lightpath/collectives/program"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter"
	"lightpath/shim/arbiter/live"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/dispatch"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/recorder"
	"lightpath/shim/ticket"
)

// opticalPath is what a rank keeps for calls on host memory over circuits. The communicator's turn guards it.
type opticalPath struct {
	c          *comm.Core
	planes     *circuits.Planes
	packet     map[calls.Shape]bool // shapes that no planner has a plan for
	collective collective           // in progress
	round      round                // in progress
}

var opticalSlot = comm.NewSlot[opticalPath]()

func opticalOf(c *comm.Core) *opticalPath { return opticalSlot.Of(c) }

// attachOptical sets up calls over circuits, if the communicator has some.
func attachOptical(c *comm.Core) {
	p := circuits.Of(c)
	if p == nil {
		return
	}
	o := &opticalPath{c: c, planes: p, packet: map[calls.Shape]bool{}}
	opticalSlot.Set(c, o)
	if c.Rank == 0 {
		l := live.Of(c)
		l.Schedule = o.schedule
		l.Scripted = func(s calls.Shape) *planning.Agreed {
			if known := interposerOf(c).known(s); known != nil {
				return known.plan
			}
			return nil
		}
	}
}

// runMixed runs a group with communicators that have circuits. Each communicator gets its own thread of control: an
// operation on circuits waits for its ticket, and the calls of other communicators, that ranks elsewhere may have to
// finish first, must not wait for it.
func (s *session) runMixed() error {
	if len(s.comms) == 1 {
		return s.runCircuits(s.comms[0])
	}
	errs := make([]error, len(s.comms))
	var wg sync.WaitGroup
	for i, c := range s.comms {
		wg.Go(func() {
			sub := sessions.Get().(*session)
			sub.calls, sub.comms, sub.opts.Deadline = s.calls, append(sub.comms, c), s.opts.Deadline
			errs[i] = sub.runCircuits(c)
			sub.reset()
			sessions.Put(sub)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// runCircuits runs the calls of one communicator in their order, each under its ticket.
func (s *session) runCircuits(c *comm.Core) error {
	o := opticalOf(c)
	if o == nil {
		if err := s.bind(c); err != nil {
			return err
		}
		return s.drive()
	}
	for i := range s.calls {
		if call := &s.calls[i]; call.Comm != c || call.Kind.P2P() {
			continue
		}
		s.beginTasks(c)
		run := o.runCollective
		if s.cross != nil {
			run = s.cross.runCall
		}
		if err := run(s, i); err != nil {
			return err
		}
	}
	s.beginTasks(c)
	first, err := s.gather(c)
	switch {
	case err != nil || first < 0:
		return err
	case o.postsRounds():
		return o.runRound(s, first)
	}
	if err := s.bindMessages(c, first); err != nil {
		return err
	}
	return s.drive()
}

// beginTasks starts anew with the tasks of a communicator.
func (s *session) beginTasks(c *comm.Core) {
	hostOf(c).begin()
	s.tasks, s.refs = s.tasks[:0], s.refs[:0]
}

// collective is a collective under its ticket, a [circuits.Executor].
type collective struct {
	o     *opticalPath
	s     *session
	ref   taskRef
	shape calls.Shape
}

// runCollective runs one collective as the leader decides.
func (o *opticalPath) runCollective(s *session, i int) error {
	c, call := o.c, &s.calls[i]
	if err := call.Resolve(); err != nil {
		return err
	}
	sh := calls.ShapeOf(call)
	if call.Count == 0 || o.packet[planning.ShapeOf(sh)] { // all ranks know that this shape needs no ticket
		if err := s.bindPacket(c, i); err != nil {
			return err
		}
		return s.drive()
	}
	x := &o.collective
	*x = collective{o: o, s: s, ref: taskRef{comm: c, call: i, sig: sh.Signature()}, shape: sh}
	x.ref.seq, x.ref.flight = hostOf(c).next(&sh, nil)
	return o.planes.Run(&circuits.Operation{
		Kind: control.MsgWant, Seq: x.ref.seq, Shape: &x.shape, Flight: x.ref.flight, Deadline: s.opts.Deadline,
	}, x)
}

// Bind implements [circuits.Executor].
func (x *collective) Bind(g *circuits.Grant) ([][]circuit.Permutation, error) {
	o, c := x.o, x.o.c
	if g.OnPackets() {
		if g.Flags&ticket.Always != 0 {
			o.packet[planning.ShapeOf(x.shape)] = true
		}
		e, err := packetEntry(c, x.shape)
		if err != nil {
			return nil, err
		}
		x.ref.entry = e
		recorder.Of(c).Bound(x.ref.flight, e, 0, false)
		return nil, x.s.bindPacketEntry(x.ref)
	}
	plan, err := o.planes.Obtain(g, x.shape)
	if err != nil {
		return nil, err
	}
	e, err := o.entry(x.shape, plan, g.Use, o.planes.Now())
	if err != nil {
		return nil, err
	}
	var switchAt [][]int64
	if g.Start != 0 {
		switchAt = o.planes.Due(e.Prog, g.Start)
	}
	x.ref.entry = e
	recorder.Of(c).Bound(x.ref.flight, e, g.Use, true)
	return e.Prog.Configs, x.s.bindEntry(x.ref, o.planes, switchAt)
}

// Drive implements [circuits.Executor].
func (x *collective) Drive() error { return x.s.drive() }

// entry returns the program of a shape under a plan that is laid over some planes. If they do not stand where the plan
// begins, the program starts by taking them there.
func (o *opticalPath) entry(s calls.Shape, a *planning.Agreed, use planeset.Set, now []ticket.Plane) (*dispatch.Entry, error) {
	if len(a.Plan.Planes) != use.Len() {
		return nil, fmt.Errorf("shim: %v: plan of %d planes for %d: %w", s.Kind, len(a.Plan.Planes), use.Len(), errdefs.ErrInternal)
	}
	p, c := o.planes, o.c
	key := dispatch.Key{Shape: s, Plan: a.ID.Key(), Planes: use}
	setup, i := false, 0
	for j := range use.Each() {
		setup = setup || !now[j].Maps.Equal(a.Plan.Initial[i])
		i++
	}
	if setup {
		key.Maps = ticket.Standing(now, use) | 1 // not 0, which is no setup
	}
	if e := hostOf(c).programs.Get(key); e != nil {
		return e, nil
	}
	col, err := dispatch.BuildSchedule(&s, c.Ranks, true, c.Cfg, p.Pods)
	if err != nil {
		return nil, err
	}
	args := program.Args{
		Rank: c.Rank, Count: int64(s.Count), ElemSize: int64(s.Type.Size()), InPlace: s.InPlace,
		Signature: program.Signature(uint64(s.Signature()), key.Plan, key.Maps, uint64(use)), Problem: a.Problem, StepOf: a.StepOf,
	}
	if setup {
		args.Current = use.SpreadMaps(ticket.MapsOf(now, use), len(p.Planes))
	}
	k := calls.KernelsOf(&s, c.Ranks)
	args.Scale = k.Scale != nil
	prog, err := program.Lower(col.Steps, use.Spread(a.Plan, len(p.Planes)), args)
	if err != nil {
		return nil, fmt.Errorf("shim: %v: algorithm %s, planner %s: %w", s.Kind, col.Algorithm, a.Plan.Planner, err)
	}
	e := &dispatch.Entry{Prog: prog, Algorithm: col.Algorithm, Kernels: k, Plan: a.Plan}
	hostOf(c).programs.Put(key, e)
	hostOf(c).programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, planner %s, predicted %.1f us, plan %.12s on %d of %d planes, setup %v",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, col.Algorithm, a.Plan.Planner, a.Plan.CCTUS, a.Plan.Digest, use.Len(), len(p.Planes), setup)
	return e, nil
}

// headStart is how many times as long as the leader has taken for the program of an operation the others get for theirs:
// nothing if it is known, more than once if they share processors.
const headStart = 4

// schedule has the controller move the planes of the next operation at their times. It runs at the leader between the
// want of this rank and its ticket.
func (o *opticalPath) schedule(a *arbiter.Action) (start int64, err error) {
	began := time.Now()
	e, err := o.entry(a.Shape, a.Agreed, a.Planes, a.Standing)
	if err != nil {
		return 0, err
	}
	now := time.Now()
	start = now.Add(headStart * now.Sub(began)).UnixNano()
	for j, times := range o.planes.Due(e.Prog, start) {
		for k, at := range times {
			epoch := a.Standing[j].Epoch + uint32(k)
			if err := o.planes.Switches().Schedule(j, epoch, e.Prog.Configs[j][k+1], time.Unix(0, at)); err != nil {
				return 0, fmt.Errorf("shim: plane %d epoch %d: %w", j, epoch, err)
			}
		}
	}
	return start, nil
}
