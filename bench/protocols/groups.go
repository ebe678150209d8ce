package protocols

import (
	"fmt"
	"slices"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim/arbiter"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
)

// group is a communicator: its ranks, and the arbiter at rank 0.
type group struct {
	ground  ground
	cfg     *groupConfig
	members []*member
	machine *arbiter.Machine
	site    planning.Site
	idle    bool          // its timer is set
	armed   int           // how often, in a world with time
	late    time.Duration // of its clock; see groupConfig.busy
	wanted  time.Time     // when it has requested planes
	awaits  []await
	failed  error

	ticketSeq  uint64 // of the last ticket that a rank got, and its body
	ticketBody []byte
	called     []called // operations that a rank has begun, in order
}

// called is an operation of a communicator, the same on all ranks.
type called struct {
	seq   uint64
	shape calls.Shape
}

// operation returns an operation by its place from 0.
func (g *group) operation(n int) called {
	for len(g.called) <= n {
		o := called{seq: 1, shape: groupShape}
		i := len(g.called)
		if i > 0 {
			o.seq = g.called[i-1].seq + 1
		}
		if g.cfg.script != nil {
			shape, skipped := g.cfg.script(i)
			o.shape.Count += uint64(shape)
			o.seq += uint64(skipped)
		}
		g.called = append(g.called, o)
	}
	return g.called[n]
}

// keeps reports whether an operation leaves its circuits as they are.
func (g *group) keeps(n int) bool {
	if g.cfg.share {
		return g.operation(n).shape == groupShape
	}
	return g.cfg.keeps > 0 && (n+1)%g.cfg.keeps == 0
}

// groupConfig describes a communicator.
type groupConfig struct {
	id           uint64 // holder of planes
	ports        []int
	size, planes int // of the fabric
	keeps        int // each operation with a multiple of this number keeps its circuits; 0: none
	timeout      time.Duration
	repeats      int // of a sequence of operations, after which tickets go out ahead; 0: they never do
	// script returns the shape of an operation, and how many calls without a ticket come before it. nil: all are alike.
	script   func(operation int) (shape, skipped int)
	busy     bool // it has held its planes for too long when its next operation begins
	anywhere bool // its plan begins with any maps, so planes are not prepared for it
	share    bool // operations of shape 0 keep their circuits
}

// await is an Await action under way.
type await struct {
	plane int
	epoch uint32
	since time.Time
}

var groupShape = calls.Shape{Kind: calls.AllReduce, Type: datatype.Float32, Count: 10}

// newGroup creates a communicator. at returns the host of a port.
func newGroup(w ground, cfg *groupConfig, at func(port int) *host) *group {
	g := &group{ground: w, cfg: cfg, site: planning.Site{
		Cfg: &settings.Config{}, Ranks: len(cfg.ports), Places: circuit.Place(cfg.ports, cfg.size),
		Planes:   make([]fabric.Plane, cfg.planes),
		Template: &plans.Problem{Ranks: len(cfg.ports), BandwidthGbps: 1, ReconfigUS: 1},
	}}
	for r, port := range cfg.ports {
		m := &member{g: g, rank: r, host: at(port), lanes: make([]lane, cfg.planes),
			used: make([]int, cfg.planes), got: make([]int, cfg.planes)}
		own := circuits.Config{
			Rank: r, Holder: cfg.id, Places: g.site.Places, Planes: cfg.planes, Timeout: cfg.timeout,
			Port:      m.host.order,
			Declined:  func(seq uint64) { m.answer(circuits.AnswerRecall(seq, false)) },
			Contested: func() { m.answer(control.Message{Kind: control.MsgContested}) },
		}
		m.machine = circuits.NewMachine(own, view{m.host, cfg.id})
		m.host.groups = append(m.host.groups, g)
		g.members = append(g.members, m)
	}
	own := arbiter.Config{Ranks: len(cfg.ports), Site: &g.site, RoundWait: time.Second,
		Repeats: cfg.repeats, NextUser: g.members[0].machine.NextUser}
	g.members[0].machine.OnNext(func() { w.later(func() { g.step(arbiter.Event{Kind: arbiter.Next}) }) })
	g.machine = arbiter.New(own, view{g.members[0].host, cfg.id}, newBook(cfg))
	return g
}

// at returns the member at a port; nil: there is none.
func (g *group) at(port int) *member {
	if i := slices.Index(g.cfg.ports, port); i >= 0 {
		return g.members[i]
	}
	return nil
}

// now returns the time at the leader.
func (g *group) now() time.Time { return g.ground.now(g.members[0].host).Add(g.late) }

// take makes the leader handle a message of a rank.
func (g *group) take(m *control.Message) {
	e, err := arbiter.Decode(m, len(g.members))
	if err != nil {
		g.fail(err)
		return
	}
	g.step(e)
}

// step makes the arbiter handle an event, and performs its actions.
func (g *group) step(e arbiter.Event) {
	if g.cfg.busy && e.Kind == arbiter.Want {
		g.late += arbiter.MaxHold
	}
	for _, a := range g.machine.Step(g.now(), &e) {
		g.perform(&a)
	}
	if g.failed == nil {
		g.ground.later(g.look)
	}
}

// holds reports whether a communicator that has not failed holds a plane.
func (g *group) holds(plane int) bool { return g.failed == nil && g.machine.Held().Has(plane) }

// beside reports whether two communicators may hold planes together: they have no port in common.
func (g *group) beside(o *group) bool { return g.site.Places.Apart(o.site.Places) }

func (g *group) perform(a *arbiter.Action) {
	h := g.members[0].host
	switch a.Kind {
	case arbiter.SendTicket:
		for r, m := range g.members {
			if a.Rank < 0 || a.Rank == r {
				m.toRank.send(control.Message{Kind: control.MsgTicket, Seq: a.Seq, Body: a.Body})
			}
		}
	case arbiter.SendRecall:
		for _, m := range g.members {
			m.toRank.send(control.Message{Kind: control.MsgRecall, Seq: a.Seq})
		}
	case arbiter.Acquire:
		h.asked++
		g.wanted = g.ground.now(h)
		q := acquire{h.asked, a.Lease}
		q.Holder = g.cfg.id
		h.wants[g.cfg.id] = q
		h.tell(q)
	case arbiter.Release:
		if h.held[g.cfg.id] &^= uint64(a.Planes); h.held[g.cfg.id] == 0 {
			delete(h.held, g.cfg.id)
		}
		h.tell(release{g.cfg.id, uint64(a.Planes)})
	case arbiter.Await:
		g.awaits = append(g.awaits, await{a.Plane, a.Epoch, g.now()})
	case arbiter.Prepare:
		r := circuits.Move{Plane: a.Plane, Epoch: a.Epoch, Target: a.Target}
		for _, m := range g.members {
			m.toRank.send(*r.Message())
		}
	case arbiter.SetTimer:
		g.idle = true
		g.ground.timer(g, a.After)
	case arbiter.StopTimer:
		g.idle = false
		g.ground.timer(g, 0)
	case arbiter.Fail:
		g.fail(a.Err)
	}
}

// expire handles the end of the idle timer.
func (g *group) expire() {
	g.idle = false
	g.step(arbiter.Event{Kind: arbiter.Expired, Timer: arbiter.IdleTimer})
}

// look finds planes that have reached their awaited state or will not reach it.
func (g *group) look() {
	for i := 0; i < len(g.awaits); {
		a := g.awaits[i]
		epoch, _, err := view{g.members[0].host, g.cfg.id}.State(a.plane)
		if late := g.now().Sub(a.since) > g.cfg.timeout; err == nil && int32(epoch-a.epoch) < 0 {
			if !late {
				i++
				continue
			}
			err = arbiter.TimedOut(fmt.Sprintf("plane %d epoch %d", a.plane, a.epoch))
		}
		g.awaits = slices.Delete(g.awaits, i, i+1)
		g.step(arbiter.Event{Kind: arbiter.Reached, Plane: a.plane, Err: err})
	}
}

func (g *group) fail(why error) {
	if g.failed == nil {
		g.failed = why
		g.ground.failed(g, why)
	}
}
