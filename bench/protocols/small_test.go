package protocols

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"lightpath/bench/protocols/explore"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/plans/circuit"
	"lightpath/shim/circuits"
)

// smallConfig describes a world that is small enough for [explore.Run]. Only the order of messages and the moment of a
// controller's crash are open. Messages between two actors keep their order. Time stands still while anything else can
// happen.
type smallConfig struct {
	ports, planes int
	start         circuit.Permutation // of each plane
	comms         []smallComm
	warm          int   // operations that each rank ends, in the plainest order, before the choices begin
	crash         bool  // the controller may crash once, and another takes over
	crashed       bool  // it has crashed when the choices begin
	repeats       int   // after which tickets go out ahead
	busy          bool  // each communicator has held its planes for too long when its next operation begins
	prepare       bool  // planes are prepared for tickets ahead
	share         bool  // operations of shape 0 keep their circuits
	together      *bool // becomes true when two communicators hold a plane
	beside        *bool // becomes true when one of them moves it then
	// order lists, by port, the communicators in the order in which its rank calls them; nil: in any order.
	order [][]int
}

// smallComm describes a communicator.
type smallComm struct {
	ports      []int
	operations int   // of each rank
	shapes     []int // of the operations; none: all are alike
}

// small is a run of a small world.
type small struct {
	cfg   smallConfig
	clock int64
	token uint64
	core  *controller.Core // of the controller in charge; nil: it has crashed
	steps []smallStep      // that may happen next
	print *explore.Fingerprinter
	bad   error // the first violation

	records []journal.State
	writes  []smallWrite // that the journal has not confirmed, in order
	planes  []smallPlane
	hosts   []*host                 // by port
	at      []controller.Attachment // by port, at the controller in charge
	groups  []*group
	settled func(plane int) // news of planes to the core
	local   []func()        // calls between actors on one host, in this step
	epochs  map[smallEpoch]circuit.Permutation
	posted  map[smallPost]bool
	crashed bool
}

// smallWrite is an intent or an event on its way to the journal.
type smallWrite struct {
	intent *controller.Intent
	event  *controller.Event
	done   func(error)
}

// smallPlane is a cross-connect: a device that moves slowly, and the frames on its circuits.
type smallPlane struct {
	light  circuit.Permutation
	order  *controller.Move // on its way to the device
	target circuit.Permutation
	token  uint64
	frames []smallFrame // by port, from which it comes
}

// smallFrame is data of an operation on a circuit.
type smallFrame struct {
	on, ended bool
	group     int
	to        int
}

type smallEpoch struct {
	plane, port int
	epoch       uint32 // of the port
}

// smallPost is a rank's agreement to a move.
type smallPost struct {
	holder      uint64
	port, plane int
	epoch       uint32
	target      uint64 // digest of the map of the holder's ranks
}

// smallStep is a step that may happen.
type smallStep struct {
	kind smallKind
	at   int // host, plane or group
	rank int // or port of a frame
}

type smallKind string

const (
	stepUp       smallKind = "controller receives from port"
	stepDown     smallKind = "port receives from controller"
	stepToLeader smallKind = "leader receives"
	stepToRank   smallKind = "rank receives"
	stepJournal  smallKind = "journal writes"
	stepOrder    smallKind = "device receives an order for plane"
	stepSettle   smallKind = "device settles plane"
	stepFrame    smallKind = "frame arrives on plane"
	stepAsk      smallKind = "rank asks"
	stepIdle     smallKind = "idle timer of communicator"
	stepCrash    smallKind = "controller crashes"
	stepTakeover smallKind = "another controller takes over"
	stepTime     smallKind = "time passes"
)

// smallStart returns a function that begins runs of a small world. All ranks are attached then.
func smallStart(cfg smallConfig) func() (explore.Space, error) {
	print := newSmallPrint()
	return func() (explore.Space, error) { return newSmall(cfg, print) }
}

func newSmall(cfg smallConfig, print *explore.Fingerprinter) (*small, error) {
	w := &small{cfg: cfg, clock: int64(time.Hour), records: make([]journal.State, cfg.planes), print: print,
		epochs: map[smallEpoch]circuit.Permutation{}, posted: map[smallPost]bool{},
		at: make([]controller.Attachment, cfg.ports)}
	for range cfg.planes {
		w.planes = append(w.planes, smallPlane{light: cfg.start.Clone(), frames: make([]smallFrame, cfg.ports)})
	}
	for p := range cfg.ports {
		w.hosts = append(w.hosts, newHost(w, p, cfg.ports, cfg.planes))
	}
	for i, c := range cfg.comms {
		own := &groupConfig{id: uint64(i) + 1, ports: c.ports, size: cfg.ports, planes: cfg.planes, timeout: time.Minute,
			busy: cfg.busy, repeats: cfg.repeats, anywhere: !cfg.prepare && !cfg.share, share: cfg.share}
		if len(c.shapes) > 0 {
			own.script = func(i int) (shape, skipped int) { return c.shapes[i], 0 }
		}
		w.groups = append(w.groups, newGroup(w, own, func(port int) *host { return w.hosts[port] }))
	}
	if err := w.takeover(); err != nil {
		return nil, err
	}
	for w.Steps() > 0 && (w.steps[0].kind != stepAsk || !w.reached(cfg.warm)) {
		if err := w.Do(w.plainest()); err != nil {
			return nil, err
		}
	}
	if cfg.crashed {
		w.crash()
	}
	return w, nil
}

// plainest returns the first step. Where communicators work side by side, ranks that have made the operations before
// the choices wait for the others.
func (w *small) plainest() int {
	return max(0, slices.IndexFunc(w.steps, func(s smallStep) bool {
		return !w.cfg.share || s.kind != stepAsk || w.groups[s.at].members[s.rank].ended < w.cfg.warm
	}))
}

// Close implements [explore.Space].
func (w *small) Close() {
	if w.core != nil {
		w.core.Close()
	}
}

// Steps implements [explore.Space]. Messages come first, and faults last.
func (w *small) Steps() int {
	w.steps = w.steps[:0]
	add := func(can bool, k smallKind, at, rank int) {
		if can {
			w.steps = append(w.steps, smallStep{kind: k, at: at, rank: rank})
		}
	}
	for p, h := range w.hosts {
		add(len(h.down.waiting) > 0, stepDown, p, 0)
		add(len(h.up.waiting) > 0 && w.core != nil, stepUp, p, 0)
	}
	add(len(w.writes) > 0 && w.core != nil, stepJournal, 0, 0)
	for j := range w.planes {
		pl := &w.planes[j]
		add(pl.order != nil, stepOrder, j, 0)
		add(pl.target != nil, stepSettle, j, 0)
		for port := range pl.frames {
			add(pl.frames[port].on && !pl.frames[port].ended, stepFrame, j, port)
		}
	}
	for i, g := range w.groups {
		for r, m := range g.members {
			add(len(m.toLeader.waiting) > 0, stepToLeader, i, r)
			add(len(m.toRank.waiting) > 0, stepToRank, i, r)
		}
	}
	for i, g := range w.groups {
		for r, m := range g.members {
			add(m.stage == idle && m.ended < w.cfg.comms[i].operations && g.failed == nil && w.mayCall(m.host.port, i), stepAsk, i, r)
		}
		add(g.idle && g.failed == nil, stepIdle, i, 0)
	}
	add(w.core == nil && !w.moving(), stepTakeover, 0, 0)
	if len(w.steps) == 0 && w.core != nil && w.core.Step() != math.MaxInt64 {
		add(true, stepTime, 0, 0)
	}
	add(w.cfg.crash && !w.crashed && !w.complete(), stepCrash, 0, 0)
	return len(w.steps)
}

// mayCall reports whether the rank at a port may call a communicator now.
func (w *small) mayCall(port, comm int) bool {
	if w.cfg.order == nil {
		return true
	}
	ended := 0
	for _, g := range w.groups {
		if m := g.at(port); m != nil {
			if ended += m.ended; m.stage != idle {
				return false
			}
		}
	}
	return w.cfg.order[port][ended] == comm
}

// Name implements [explore.Space].
func (w *small) Name(step int) string {
	s := &w.steps[step]
	switch s.kind {
	case stepUp:
		return fmt.Sprintf("%s %d: %+v", s.kind, s.at, w.hosts[s.at].up.waiting[0])
	case stepDown:
		return fmt.Sprintf("%s %d: %+v", s.kind, s.at, w.hosts[s.at].down.waiting[0])
	case stepToLeader, stepToRank, stepAsk:
		return fmt.Sprintf("%s: communicator %d rank %d", s.kind, s.at, s.rank)
	}
	return fmt.Sprint(s.kind, " ", s.at)
}

// Do implements [explore.Space].
func (w *small) Do(step int) error {
	s := w.steps[step]
	switch s.kind {
	case stepUp:
		h := w.hosts[s.at]
		w.serve(h, h.up.next())
	case stepDown:
		h := w.hosts[s.at]
		h.take(h.down.next())
	case stepJournal:
		w.journal()
	case stepOrder:
		w.begin(s.at)
	case stepSettle:
		pl := &w.planes[s.at]
		pl.light, pl.target = pl.target, nil
		if w.settled != nil {
			w.settled(s.at)
		}
	case stepFrame:
		w.arrive(s.at, s.rank)
	case stepToLeader:
		q := w.groups[s.at].members[s.rank].toLeader.next()
		w.groups[s.at].take(&q)
	case stepToRank:
		m := w.groups[s.at].members[s.rank]
		q := m.toRank.next()
		m.take(&q)
	case stepAsk:
		w.groups[s.at].members[s.rank].ask()
	case stepIdle:
		w.groups[s.at].expire()
	case stepCrash:
		w.crash()
	case stepTakeover:
		if err := w.takeover(); err != nil {
			return err
		}
	case stepTime:
		w.clock = w.core.Step()
	}
	for len(w.local) > 0 {
		f := w.local[0]
		w.local = w.local[1:]
		f()
	}
	if w.core != nil {
		w.core.Step()
	}
	return w.check()
}

// violate notes a violation of an invariant.
func (w *small) violate(invariant, format string, args ...any) {
	if w.bad == nil {
		w.bad = fmt.Errorf(invariant+": "+format, args...)
	}
}

// now implements [ground].
func (w *small) now(*host) time.Time { return time.Unix(0, w.clock) }

// later implements [ground].
func (w *small) later(f func()) { w.local = append(w.local, f) }

// agreed implements [ground].
func (w *small) agreed(h *host, p *agree) {
	ranks := w.group(p.holder).site.Places.Restrict(nil, p.target)
	w.posted[smallPost{p.holder, h.port, p.plane, p.epoch, ranks.Digest()}] = true
}

// group implements [ground].
func (w *small) group(holder uint64) *group { return w.groups[holder-1] }

// The explorer decides when a timer expires, looks for failures after each step, and has one ticket.
func (*small) timer(*group, time.Duration)  {}
func (*small) failed(*group, error)         {}
func (*small) waited(*group, time.Duration) {}
func (*small) ended(*member)                {}

// ticket implements [ground]: the communicator holds the planes of the ticket, which is for this operation.
func (w *small) ticket(m *member, g *circuits.Ticket) {
	if why := m.misuse(g); why != "" {
		w.violate("planes of others", "communicator %d rank %d: %s", m.g.cfg.id, m.rank, why)
	}
}

// moving reports whether a device moves. A controller that takes over waits until it has moved: see switches.New.
func (w *small) moving() bool {
	return slices.ContainsFunc(w.planes, func(p smallPlane) bool { return p.target != nil })
}

// reached reports whether all ranks have ended so many operations, or all of theirs.
func (w *small) reached(operations int) bool {
	for i, g := range w.groups {
		for _, m := range g.members {
			if m.ended < min(operations, w.cfg.comms[i].operations) {
				return false
			}
		}
	}
	return true
}

// complete reports whether all ranks have ended all operations.
func (w *small) complete() bool { return w.reached(math.MaxInt) }

// check checks the invariants of the state that observers can see.
func (w *small) check() error {
	if w.bad != nil {
		return w.bad
	}
	for j := range w.planes {
		for i, g := range w.groups {
			for k, o := range w.groups[:i] {
				switch both := g.holds(j) && o.holds(j); {
				case both && g.beside(o):
					*w.cfg.together = true
				case both:
					return fmt.Errorf("plane %d: communicators %d and %d both hold it", j, k, i)
				}
			}
		}
	}
	for i, g := range w.groups {
		if g.failed != nil {
			return fmt.Errorf("communicator %d has failed: %w", i, g.failed)
		}
	}
	if w.Steps() > 0 {
		return nil
	}
	if !w.complete() {
		return errors.New("ranks wait for ever")
	}
	shot, err := w.core.Snapshot()
	if err != nil {
		return err
	}
	for j, p := range shot.Planes {
		if p.State != controller.Resident || len(p.Holders) > 0 || !p.Map.Equal(w.planes[j].light) {
			return fmt.Errorf("plane %d is %v with map %v, light %v, holder %v at the end", j, p.State, p.Map,
				w.planes[j].light, p.Holders)
		}
	}
	return nil
}
