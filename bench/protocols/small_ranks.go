package protocols

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"lightpath/collectives/datatype"
	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim/arbiter"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
)

// smallHost is the process of a port: its connection to the controller, which its communicators share. It does what
// rpc.Client does: after a takeover it claims its leases and repeats posts and requests.
type smallHost struct {
	w       *small
	port    int
	ready   bool // welcomed by the controller in charge
	planes  []smallNews
	refused map[smallRefusal]error
	held    map[uint64]uint64 // planes by holder
	wants   map[uint64]uint64 // requested planes by holder
	posts   []smallAgree      // not known to have happened
	up      []any             // messages to the controller
	down    []any             // messages from it
	at      controller.Attachment
}

// Messages between hosts and controllers.
type (
	smallHello   struct{ held []controller.LeaseSnapshot }
	smallWelcome struct{ held []controller.LeaseSnapshot }
	smallNews    struct {
		plane int
		epoch uint32
		m     circuit.Permutation
		fault error
	}
	smallRefusal struct {
		plane  int
		holder uint64
	}
	smallRefused struct {
		smallRefusal
		why error
	}
	smallAgree struct {
		plane  int
		epoch  uint32
		holder uint64
		target circuit.Permutation
	}
	smallAcquire struct{ holder, mask uint64 }
	smallRelease struct{ holder, mask uint64 }
	smallGrant   struct {
		holder, mask uint64
		err          error
	}
)

// claims returns the leases of this host for a hello.
func (h *smallHost) claims() (all []controller.LeaseSnapshot) {
	for _, holder := range slices.Sorted(maps.Keys(h.held)) {
		all = append(all, controller.LeaseSnapshot{Port: h.port, Holder: holder, Mask: h.held[holder]})
	}
	return all
}

// serve makes the controller handle a message of a host.
func (w *small) serve(h *smallHost, m any) {
	var err error
	switch m := m.(type) {
	case smallHello:
		h.at, err = w.core.Attach(smallSink{h}, controller.AttachOptions{Port: h.port, Held: m.held})
		h.down = append(h.down, smallWelcome{m.held})
	case smallAgree:
		err = h.at.Post(m.plane, m.epoch, m.holder, m.target)
	case smallAcquire:
		err = h.at.Acquire(m.holder, m.mask, m.holder) // one request at a time, so the holder's number identifies it
	case smallRelease:
		err = h.at.Release(m.mask, m.holder)
	}
	if err != nil {
		w.violate("port %d: %+v: %v", h.port, m, err)
	}
}

// smallSink sends the core's news to a host.
type smallSink struct{ h *smallHost }

// Changed implements [controller.Sink].
func (s smallSink) Changed(plane int, epoch uint32, m circuit.Permutation, fault error) {
	n := smallNews{plane, epoch, m, fault}
	s.h.w.published(plane, &n)
	s.h.down = append(s.h.down, n)
}

// Refused implements [controller.Sink].
func (s smallSink) Refused(plane int, holder uint64, why error) {
	s.h.down = append(s.h.down, smallRefused{smallRefusal{plane, holder}, why})
}

// Granted implements [controller.Sink].
func (s smallSink) Granted(id, mask uint64, err error) {
	s.h.down = append(s.h.down, smallGrant{id, mask, err})
}

// Closed implements [controller.Sink].
func (smallSink) Closed(error) {}

// take handles a message of the controller.
func (h *smallHost) take(m any) {
	switch m := m.(type) {
	case smallNews:
		h.planes[m.plane] = m
		if h.ready {
			h.forget()
		}
	case smallWelcome:
		h.welcome(m)
	case smallRefused:
		if h.refused[m.smallRefusal] == nil {
			h.refused[m.smallRefusal] = m.why
		}
	case smallGrant:
		delete(h.wants, m.holder)
		if m.err == nil {
			h.held[m.holder] |= m.mask
		}
		g := h.w.groups[m.holder-1]
		g.step(arbiter.Event{Kind: arbiter.Granted, Planes: planeset.Set(m.mask), Err: m.err})
	}
	for _, g := range h.w.groups {
		if g.members[0].host == h {
			g.look()
		}
		for _, m := range g.members {
			if m.host == h {
				m.look()
			}
		}
	}
}

// welcome gives back planes that were released meanwhile, and repeats posts and requests at another controller. A post
// that happened must have led to the plane's map.
func (h *smallHost) welcome(m smallWelcome) {
	h.ready = true
	for _, l := range m.held {
		if mask := l.Mask &^ h.wants[l.Holder] &^ h.held[l.Holder]; mask != 0 {
			h.up = append(h.up, smallRelease{l.Holder, mask})
		}
	}
	for _, p := range h.posts {
		at := &h.planes[p.plane]
		switch {
		case p.epoch >= at.epoch:
			h.up = append(h.up, p)
		case p.epoch+1 != at.epoch || !at.m.Equal(p.target):
			h.refused[smallRefusal{p.plane, p.holder}] = fmt.Errorf("another controller has plane %d at epoch %d: %w", p.plane,
				at.epoch, ocsctl.ErrUnknownMap)
		}
	}
	h.forget()
	for _, holder := range slices.Sorted(maps.Keys(h.wants)) {
		h.up = append(h.up, smallAcquire{holder, h.wants[holder]})
	}
}

// forget drops the posts that have happened.
func (h *smallHost) forget() {
	h.posts = slices.DeleteFunc(h.posts, func(p smallAgree) bool { return p.epoch < h.planes[p.plane].epoch })
}

// tell sends a message to the controller. Without one, a later welcome repeats it.
func (h *smallHost) tell(m any) {
	if h.ready {
		h.up = append(h.up, m)
	}
}

// post agrees to a move.
func (h *smallHost) post(p smallAgree) {
	p.target = p.target.Clone()
	h.w.agreed[smallPost{h.port, p.plane, p.epoch, p.target.Digest()}] = true
	h.posts = append(h.posts, p)
	h.tell(p)
}

// smallView is a communicator's view of planes from a host.
type smallView struct {
	h      *smallHost
	holder uint64
}

// State implements [circuits.View] and [arbiter.View].
func (v smallView) State(plane int) (uint32, circuit.Permutation, error) {
	n := &v.h.planes[plane]
	if n.fault != nil {
		return n.epoch, n.m, n.fault
	}
	return n.epoch, n.m, v.h.refused[smallRefusal{plane, v.holder}]
}

// Waiting implements [arbiter.View].
func (smallView) Waiting(int) string { return "" }

// smallGroup is a communicator: its ranks, and the arbiter at rank 0.
type smallGroup struct {
	w       *small
	cfg     *smallComm
	id      uint64 // holder of planes: its index + 1
	members []*smallMember
	machine *arbiter.Machine
	site    planning.Site
	now     time.Time
	idle    bool // its timer is set
	awaits  []smallEpoch
	failed  error
}

var (
	smallShape  = calls.Shape{Kind: calls.AllReduce, Type: datatype.Float32, Count: 10}
	smallAgreed = planning.Agreed{ID: smallID}
)

func newSmallGroup(w *small, i int) *smallGroup {
	cfg := &w.cfg.comms[i]
	g := &smallGroup{w: w, cfg: cfg, id: uint64(i) + 1, now: time.Unix(0, w.now), site: planning.Site{
		Cfg: &settings.Config{}, Ranks: len(cfg.ports), Ports: cfg.ports, Planes: make([]fabric.Plane, w.cfg.planes),
		Template: &plans.Problem{Ranks: len(cfg.ports), BandwidthGbps: 1, ReconfigUS: 1},
	}}
	for r, port := range cfg.ports {
		m := &smallMember{g: g, rank: r, host: w.hosts[port], lanes: make([]smallLane, w.cfg.planes), got: make([]int, w.cfg.planes)}
		own := circuits.Config{
			Rank: r, Holder: g.id, Ports: cfg.ports, Size: w.cfg.ports, Planes: w.cfg.planes, Timeout: time.Minute,
			Serving: func() bool { return g.failed == nil },
		}
		if cfg.parent >= 0 {
			m.parent = w.groups[cfg.parent].at(port)
			own.Parent = m.parent.machine
		}
		m.machine = circuits.NewMachine(own, smallView{m.host, g.id})
		g.members = append(g.members, m)
	}
	g.machine = arbiter.New(arbiter.Config{Ranks: len(cfg.ports), Site: &g.site, FabricSize: w.cfg.ports, RoundWait: time.Second},
		smallView{g.members[0].host, g.id}, smallBook{})
	return g
}

// at returns the member at a port; nil: there is none.
func (g *smallGroup) at(port int) *smallMember {
	if i := slices.Index(g.cfg.ports, port); i >= 0 {
		return g.members[i]
	}
	return nil
}

// smallBook has one plan.
type smallBook struct{}

// Version implements [arbiter.Book].
func (smallBook) Version() uint32 { return 1 }

// Row implements [arbiter.Book].
func (smallBook) Row(calls.Shape, planeset.Set, []circuit.Permutation) (planning.Row, error) {
	return planning.Row{Best: &smallAgreed}, nil
}

// Demand implements [arbiter.Book].
func (smallBook) Demand(*planning.Demand, []circuit.Permutation) (*plans.Plan, error) {
	return nil, errors.New("no rounds")
}

// Encoded implements [arbiter.Book].
func (smallBook) Encoded(planning.ID) ([]byte, error) { return nil, errors.New("no plans") }

// take makes the leader handle a message of a rank.
func (g *smallGroup) take(m *control.Message) {
	if m.Kind == control.MsgVacateAsk {
		tell, ok := circuits.VacateRanks(m.Body, len(g.members), func(int) bool { return false })
		answer := control.Message{Kind: control.MsgVacated, Seq: m.Seq}
		if ok {
			for _, rank := range tell {
				g.members[rank].toRank = append(g.members[rank].toRank, control.Message{Kind: control.MsgVacate, Body: m.Body})
			}
			answer.Arg = 1
		}
		g.members[m.From].toRank = append(g.members[m.From].toRank, answer)
		return
	}
	e, err := arbiter.Decode(m, len(g.members))
	if err != nil {
		g.fail(err)
		return
	}
	g.step(e)
}

// step makes the arbiter handle an event, and performs its actions.
func (g *smallGroup) step(e arbiter.Event) {
	if g.w.cfg.busy && e.Kind == arbiter.Want {
		g.now = g.now.Add(arbiter.MaxHold)
	}
	for _, a := range g.machine.Step(g.now, &e) {
		g.perform(&a)
	}
	g.w.local = append(g.w.local, g.look)
}

func (g *smallGroup) perform(a *arbiter.Action) {
	h := g.members[0].host
	switch a.Kind {
	case arbiter.SendTicket:
		for r, m := range g.members {
			if a.Rank < 0 || a.Rank == r {
				m.toRank = append(m.toRank, control.Message{Kind: control.MsgTicket, Seq: a.Seq, Body: a.Body})
			}
		}
	case arbiter.Acquire:
		h.wants[g.id] = uint64(a.Planes)
		h.tell(smallAcquire{g.id, uint64(a.Planes)})
	case arbiter.Release:
		if h.held[g.id] &^= uint64(a.Planes); h.held[g.id] == 0 {
			delete(h.held, g.id)
		}
		h.tell(smallRelease{g.id, uint64(a.Planes)})
	case arbiter.Await:
		g.awaits = append(g.awaits, smallEpoch{a.Plane, a.Epoch})
	case arbiter.Vacate:
		ancestor, body := g.members[0].machine.VacateAsk(a.Plane, a.Epoch, a.Target, a.Ports)
		p := g.members[0].parent
		for p != nil && p.machine != ancestor {
			p = p.parent
		}
		if p == nil {
			g.w.local = append(g.w.local, func() { g.step(arbiter.Event{Kind: arbiter.Vacated, Plane: a.Plane}) })
			return
		}
		p.vacates = g
		p.toLeader = append(p.toLeader, smallMessage(control.Message{Kind: control.MsgVacateAsk, Seq: uint64(a.Plane), Body: body}, p.rank))
	case arbiter.SetTimer:
		g.idle = true
	case arbiter.StopTimer:
		g.idle = false
	case arbiter.Fail:
		g.fail(a.Err)
	case arbiter.Warn:
		g.w.violate("communicator %d warns: %s", g.id-1, a.Text)
	}
}

// look finds planes that have reached their awaited state or will not reach it.
func (g *smallGroup) look() {
	for i := 0; i < len(g.awaits); {
		a := g.awaits[i]
		epoch, _, err := smallView{g.members[0].host, g.id}.State(a.plane)
		if err == nil && int32(epoch-a.epoch) < 0 {
			i++
			continue
		}
		g.awaits = slices.Delete(g.awaits, i, i+1)
		g.step(arbiter.Event{Kind: arbiter.Reached, Plane: a.plane, Err: err})
	}
}

func (g *smallGroup) fail(why error) {
	if g.failed == nil {
		g.failed = why
	}
}

// smallMember is a rank of a communicator. Each operation moves its planes to a ring, sends data over it, and moves
// them to darkness. It does not wait for the last move.
type smallMember struct {
	g       *smallGroup
	rank    int
	host    *smallHost
	parent  *smallMember
	machine *circuits.Machine

	toLeader, toRank []control.Message // on their way
	vacates          *smallGroup       // that waits for this rank's request to the leader

	stage smallStage
	ended int // operations
	moves circuits.ListedMaps
	lanes []smallLane
	got   []int // data received, by plane
}

type smallStage uint8

const (
	smallIdle smallStage = iota
	smallAsking
	smallSettling
	smallMoving
)

// smallLane is an operation's progress on a plane.
type smallLane struct {
	at          int // its map
	sent, ended bool
}

// ask requests the next operation.
func (m *smallMember) ask() {
	op := circuits.Operation{Kind: control.MsgWant, Seq: uint64(m.ended) + 1, Shape: &smallShape}
	m.stage = smallAsking
	m.toLeader = append(m.toLeader, smallMessage(m.machine.Ask(m.g.now, &op), m.rank))
}

// take handles a message of the leader.
func (m *smallMember) take(q *control.Message) {
	switch q.Kind {
	case control.MsgTicket:
		g, err := m.machine.Take(m.g.now, q.Body)
		switch {
		case err != nil:
			m.g.fail(err)
		case g.OnPackets():
			m.stage, m.ended = smallIdle, m.ended+1
		default:
			m.stage = smallSettling
			m.look()
		}
	case control.MsgVacate:
		if r, ok := m.machine.VacatePost(q.Body); ok {
			m.host.post(smallAgree{r.Plane, r.Epoch, r.Holder, r.Target})
		}
	case control.MsgVacated:
		m.vacates.step(arbiter.Event{Kind: arbiter.Vacated, Plane: int(q.Seq), OK: q.Arg == 1})
	}
}

// look continues the operation as far as the planes allow.
func (m *smallMember) look() {
	if m.stage == smallSettling {
		settled, err := m.machine.Settle(m.g.now)
		if err != nil {
			m.g.fail(err)
		}
		if !settled {
			return
		}
		m.bind()
	}
	if m.stage != smallMoving {
		return
	}
	ended := true
	for j := range m.machine.Granted().Use.Each() {
		for !m.lanes[j].ended && m.advance(j) {
		}
		ended = ended && m.lanes[j].ended
	}
	if ended {
		m.toLeader = append(m.toLeader, smallMessage(m.machine.Done(m.moves), m.rank))
		m.stage, m.ended = smallIdle, m.ended+1
	}
}

// bind plans the moves of an operation. It agrees to the moves of circuits that lead outside.
func (m *smallMember) bind() {
	n := len(m.g.members)
	ring, dark := circuit.Shift(n, 1), circuit.AllDark(n)
	m.stage, m.moves = smallMoving, make(circuits.ListedMaps, len(m.lanes))
	for j := range m.lanes {
		m.lanes[j] = smallLane{}
		now := m.machine.Now()[j].Maps
		m.moves[j] = []circuit.Permutation{now}
		if !now.Equal(dark) && !now.Equal(ring) {
			m.moves[j] = append(m.moves[j], dark)
		}
		if !now.Equal(ring) {
			m.moves[j] = append(m.moves[j], ring)
		}
		m.moves[j] = append(m.moves[j], dark)
	}
	for j := range m.machine.Outside(m.moves).Each() {
		m.post(j, 1)
	}
}

func (m *smallMember) post(plane, move int) {
	target := m.machine.Overlay(plane, m.moves[plane][move])
	m.host.post(smallAgree{plane, m.machine.Base()[plane] + uint32(move) - 1, m.g.id, target})
}

// advance continues on a plane, and reports whether there may be more to do.
func (m *smallMember) advance(j int) bool {
	l, list := &m.lanes[j], m.moves[j]
	if l.at == len(list)-1 {
		l.ended = true
		return false
	}
	epoch, _, err := smallView{m.host, m.g.id}.State(j)
	if err != nil {
		m.g.fail(err)
		return false
	}
	if int32(epoch-m.machine.Base()[j]) < int32(l.at) {
		return false
	}
	if l.at == len(list)-2 {
		from, to := m.host.port, m.g.cfg.ports[list[l.at][m.rank]]
		if !l.sent {
			l.sent = true
			m.host.w.send(j, from, to, int(m.g.id)-1)
		}
		if m.got[j] <= m.ended || !m.host.w.planes[j].frames[from].ended {
			return false
		}
	}
	if list[l.at][m.rank] != list[l.at+1][m.rank] {
		m.post(j, l.at+1)
	}
	l.at++
	return true
}
