package optical

import (
	"fmt"

	"lightpath/collectives/program"
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
	"lightpath/shim/session"
	"lightpath/shim/settings"
	"lightpath/shim/ticket"
)

// Path is a rank's state of calls over circuits, a [session.OpticalPath]. The communicator's turn guards it.
type Path struct {
	c          *comm.Core
	planes     *circuits.Planes
	session    *session.State
	rounds     bool                 // groups of sends and receives are posted to the leader
	Packet     map[calls.Shape]bool // shapes for which no planner has a plan
	collective collective           // in progress
	round      round                // in progress
}

var slot = comm.NewSlot[Path]()

// Of returns the path of a communicator, nil without circuits.
func Of(c *comm.Core) *Path { return slot.Of(c) }

// Attach makes calls on host memory use the communicator's circuits, if it has some.
func Attach(c *comm.Core) {
	planes := circuits.Of(c)
	if planes == nil {
		return
	}
	o := &Path{c: c, planes: planes, session: session.Of(c), Packet: map[calls.Shape]bool{}}
	o.rounds = c.Cfg.Demand.Method != settings.DemandOff && planes.Site.Rounds()
	slot.Set(c, o)
	o.session.Optical = o
}

// Run implements [session.OpticalPath]: it runs the calls of one communicator in their order, each under its ticket.
func (o *Path) Run(s *session.Session) error {
	for i := range s.Calls {
		if call := &s.Calls[i]; call.Comm != o.c || call.Kind.P2P() {
			continue
		}
		s.Restart(o.c)
		if err := o.runCollective(s, i); err != nil {
			return err
		}
	}
	s.Restart(o.c)
	first, err := s.Gather(o.c)
	switch {
	case err != nil || first < 0:
		return err
	case o.rounds:
		return o.runRound(s, first)
	}
	if err := s.BindMessages(o.c, first); err != nil {
		return err
	}
	return s.Drive()
}

// collective is a collective under its ticket, a [circuits.Executor].
type collective struct {
	o     *Path
	s     *session.Session
	ref   session.Ref
	shape calls.Shape
}

// runCollective runs one collective as the leader decides.
func (o *Path) runCollective(s *session.Session, i int) error {
	c, call := o.c, &s.Calls[i]
	sh := calls.ShapeOf(call)
	if call.Count == 0 || o.Packet[planning.ShapeOf(sh)] { // all ranks know that this shape needs no ticket
		if err := s.BindCollective(c, i); err != nil {
			return err
		}
		return s.Drive()
	}
	x := &o.collective
	*x = collective{o: o, s: s, ref: session.Ref{Comm: c, Call: i, Sig: sh.Signature()}, shape: sh}
	x.ref.Seq, x.ref.Flight = o.session.Next(&sh, nil)
	return o.planes.Run(&circuits.Operation{
		Kind: control.MsgWant, Seq: x.ref.Seq, Shape: &x.shape, Flight: x.ref.Flight, Deadline: s.Deadline(),
		Sent: session.Of(o.c).Pairs.Sent,
	}, x)
}

// Bind implements [circuits.Executor].
func (x *collective) Bind(t *circuits.Ticket) (circuits.Movement, error) {
	o, c := x.o, x.o.c
	if t.OnPackets() {
		if t.Flags&ticket.Always != 0 {
			o.Packet[planning.ShapeOf(x.shape)] = true
		}
		e, err := o.session.PacketEntry(x.shape)
		if err != nil {
			return nil, err
		}
		x.ref.Entry = e
		recorder.Of(c).Bound(x.ref.Flight, e, 0, false)
		return nil, x.s.BindEntry(x.ref, nil)
	}
	plan, err := o.planes.ObtainPlan(t, x.shape)
	if err != nil {
		return nil, err
	}
	e, err := o.entry(x.shape, plan, t.Use, o.planes.Machine.Standing())
	if err != nil {
		return nil, err
	}
	x.ref.Entry = e
	recorder.Of(c).Bound(x.ref.Flight, e, t.Use, true)
	return e.Prog, x.s.BindEntry(x.ref, o.planes)
}

// Drive implements [circuits.Executor].
func (x *collective) Drive() error { return x.s.Drive() }

// entry returns the program of a shape under a plan on some planes. If the planes are not at the plan's initial maps,
// the program begins with a reconfiguration to these maps.
func (o *Path) entry(s calls.Shape, a *planning.Agreed, use planeset.Set, now []ticket.Plane) (*dispatch.Entry, error) {
	if len(a.Plan.Planes) != use.Len() {
		return nil, fmt.Errorf("shim: %v: plan of %d planes for %d: %w", s.Kind, len(a.Plan.Planes), use.Len(),
			errdefs.ErrInternal)
	}
	p, c := o.planes, o.c
	key := dispatch.Key{Shape: s, Plan: a.ID.Key(), Planes: use}
	setup, i := false, 0
	for j := range use.Each() {
		setup = setup || !now[j].Maps.Equal(a.Plan.Initial[i])
		i++
	}
	if setup {
		key.Maps = ticket.MapsHash(now, use) | 1 // not 0, which is no setup
	}
	if e := o.session.Programs.Get(key); e != nil {
		return e, nil
	}
	args := program.Args{
		Signature: program.Signature(uint64(s.Signature()), key.Plan, key.Maps, uint64(use)), Problem: a.Problem,
		StepOf: a.StepOf, SectionSteps: sectionSteps,
	}
	if setup {
		args.Current = use.SpreadMaps(ticket.MapsOf(now, use), len(p.Site.Planes))
	}
	plan := use.Spread(a.Plan, len(p.Site.Planes))
	e, err := dispatch.Lower(c, &s, dispatch.Circuits, p.Site.Pods, plan, args)
	if err != nil {
		return nil, err
	}
	e.Plan = a.Plan // which has a digest; a spread plan has none
	o.session.Programs.Put(key, e)
	o.session.Programs.Trace(c, &s, e)
	c.Log.Info(log.Tuning, "rank %d: %v of %d %v (root %d): algorithm %s, planner %s, predicted %.1f us, plan %.12s "+
		"on %d of %d planes, setup %v",
		c.Rank, s.Kind, s.Count, s.Type, s.Root, e.Algorithm, a.Plan.Planner, a.Plan.CCTUS, a.Plan.Digest, use.Len(),
		len(p.Site.Planes), setup)
	return e, nil
}

// sectionSteps is the fewest steps of a section of a program. Between two sections a rank waits for all its planes.
const sectionSteps = 32
