package arbiter

import (
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter/sequence"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/stall"
	"lightpath/shim/ticket"
)

const (
	// IdleHold is how long planes stay granted after an operation. So the next operation of a loop needs no new grant,
	// and a reset in progress overlaps with the ranks' own work.
	IdleHold = 2 * time.Millisecond
	// MaxHold is how long a busy communicator holds planes before it gives them back between two operations. So others
	// get their turn.
	MaxHold = 100 * time.Millisecond
	// GrantWait is how long an operation waits for planes before it goes on with packet planes. Without an end, two
	// communicators could wait for each other: a rank has begun an operation of one with a ticket ahead, and holds the
	// planes, while another rank first calls the other one.
	GrantWait = 20 * time.Second
	// SharedWait is GrantWait where the leader's port has other communicators with circuits: there it is more likely.
	SharedWait = 2 * time.Second
)

// Config is the fixed input of a machine.
type Config struct {
	Ranks     int
	Site      *planning.Site
	RoundWait time.Duration // how long all ranks have to post a round
	// Scripted returns the plan of a shape whose scripts are on streams, nil if there is none.
	Scripted func(calls.Shape) *planning.Agreed
	// Repeats is how often a sequence of operations has to come before tickets go out ahead; 0: they never do.
	Repeats int
	// NextUser returns whose operation comes next at the leader's port; nil: this communicator is alone there.
	NextUser func() circuits.NextUser
}

// Machine issues the tickets of a communicator. Not safe for concurrent use.
//
// A rank's control connection keeps order, and a rank requests its next operation only after it has ended the last. So
// a complete set of wants, or of rows, means that no operation is under way. The machine works on one operation at a
// time.
type Machine struct {
	cfg    Config
	view   View
	book   Book
	failed bool

	wants     map[uint64]*arrivals
	rounds    rounds
	iteration iteration
	ahead     ahead

	stage stage
	work  work   // in all stages except idle
	done  int    // ranks that have ended the operation under way
	ended []bool // by rank: it has

	held      planeset.Set   // granted
	down      planeset.Set   // planes known to be out of service
	tellMaps  planeset.Set   // held planes whose maps the next ticket tells, since others may have moved them
	waiting   planeset.Set   // planes with an Await action under way
	since     time.Time      // of the grant
	wanted    bool           // another request waits for held planes
	asking    bool           // the controller has not yet answered this machine's request
	overdue   bool           // an operation has waited for the answer for too long
	contested bool           // ranks that hold the planes may wait for the operation that comes next, or is under way
	asksAgain bool           // the machine asks for the planes again as soon as it has given them back
	standing  []ticket.Plane // epochs and maps that operations leave

	ticket  ticket.Ticket // the one that was issued last; its memory is reused
	actions []Action      // of this step
	clock   time.Time     // of this step
}

// arrivals holds the ranks that have requested an operation.
type arrivals struct {
	shapes []calls.Shape // by rank
	here   []bool
	have   int
}

// work is the operation for which the machine obtains planes.
type work struct {
	seq    uint64
	shape  calls.Shape      // of a collective
	demand *planning.Demand // of a round; nil for a collective
	ahead  bool             // its ticket went out ahead
	gap    time.Duration    // since the operation before; below 0: not known
}

// stage is the progress of the work.
type stage uint8

const (
	idle      stage = iota
	releasing       // long-held planes move to where they are given back
	acquiring       // the controller has been asked for planes
	running         // the ticket has been issued
)

// New returns a machine.
func New(cfg Config, v View, b Book) *Machine {
	planes := len(cfg.Site.Planes)
	m := &Machine{
		cfg: cfg, view: v, book: b,
		wants: map[uint64]*arrivals{}, ended: make([]bool, cfg.Ranks),
		rounds: rounds{rows: make([]*ticket.Row, cfg.Ranks)}, standing: make([]ticket.Plane, planes),
		ticket: ticket.Ticket{Planes: make([]ticket.Plane, planes)},
	}
	if cfg.Repeats > 0 && !cfg.Site.Cfg.Plan.Current {
		m.iteration = iteration{learner: sequence.New(cfg.Repeats), book: b, known: map[uint64]operation{}}
	}
	return m
}

// Held returns the planes that are granted.
func (m *Machine) Held() planeset.Set { return m.held }

// Step handles an event at a time and returns actions, to be performed in this order. The result is valid until the
// next step. After a Fail action there are no more.
func (m *Machine) Step(at time.Time, e *Event) []Action {
	m.actions, m.clock = m.actions[:0], at
	if m.failed {
		return nil
	}
	if err := m.handle(e); err != nil {
		m.failed = true
		m.act(Action{Kind: Fail, Err: err})
	}
	return m.actions
}

func (m *Machine) act(a Action) { m.actions = append(m.actions, a) }

// send sends an encoded ticket to a rank, -1 for all. It allocates the body, since messages may be read later.
func (m *Machine) send(rank int, seq uint64, t *ticket.Ticket, plan []byte) {
	m.act(Action{Kind: SendTicket, Rank: rank, Seq: seq, Body: append(ticket.Append(nil, t), plan...)})
}

// handle calls the function of the event's kind.
func (m *Machine) handle(e *Event) error {
	switch e.Kind {
	case Want:
		return m.onWant(e)
	case Done:
		return m.onDone(e)
	case Row:
		return m.onRow(e)
	case PlanLack:
		return m.onPlanLack(e)
	case Granted:
		return m.onGranted(e)
	case Reached:
		return m.onReached(e)
	case Expired:
		return m.onExpired(e)
	case Recalled:
		return m.onRecalled(e)
	case Left:
		return m.onLeft(e)
	case Wanted:
		m.onWanted(e)
	case Contested:
		m.onContested()
	case Next:
		return m.onNext()
	}
	return nil
}

// onPlanLack sends a rank the plan that it lacks.
func (m *Machine) onPlanLack(e *Event) error {
	body, err := m.book.Encoded(e.Plan)
	if err != nil {
		return fmt.Errorf("shim: plan for rank %d: %w", e.Rank, err)
	}
	m.act(Action{Kind: SendPlan, Rank: e.Rank, Seq: e.Seq, Body: body})
	return nil
}

// onExpired handles a timer that has expired.
func (m *Machine) onExpired(e *Event) error {
	switch {
	case e.Timer == RoundTimer:
		m.roundExpired()
		return nil
	case m.stage == acquiring:
		return m.waitedLong()
	}
	return m.releaseIdle()
}

// onWant handles a rank's request for the ticket of a collective.
func (m *Machine) onWant(e *Event) error {
	w := m.wants[e.Seq]
	if w == nil {
		w = &arrivals{shapes: make([]calls.Shape, m.cfg.Ranks), here: make([]bool, m.cfg.Ranks)}
		m.wants[e.Seq] = w
	}
	if w.here[e.Rank] {
		return fmt.Errorf("%w: rank %d wants operation %d twice", control.ErrMessage, e.Rank, e.Seq)
	}
	w.shapes[e.Rank], w.here[e.Rank] = e.Shape, true
	for r := range w.here {
		if w.here[r] && w.shapes[r].Signature() != e.Shape.Signature() {
			a, b := min(r, e.Rank), max(r, e.Rank)
			return stall.Mismatch(e.Seq, a, w.shapes[a].String(), b, w.shapes[b].String())
		}
	}
	w.have++
	switch {
	case m.stage == running && m.work.ahead && !m.ahead.open && e.Seq == m.work.seq: // others have begun
		return m.join(e.Rank, &e.Shape)
	case w.have < m.cfg.Ranks:
		m.closeRound() // this rank will not join the round
		return nil
	case m.ahead.open: // resume goes on with it
		return nil
	}
	delete(m.wants, e.Seq)
	return m.begin(work{seq: e.Seq, shape: e.Shape})
}

// begin obtains planes for an operation that all ranks have requested.
func (m *Machine) begin(w work) error {
	if m.stage != idle {
		return fmt.Errorf("shim: arbiter: operation %#x begins while %#x is under way: %w", w.seq, m.work.seq,
			errdefs.ErrInternal)
	}
	w.gap = m.iteration.begun(m.clock)
	m.work = w
	m.act(Action{Kind: StopTimer, Timer: IdleTimer})
	return m.obtainPlanes()
}

// decide answers the work after its planes have been obtained.
func (m *Machine) decide() error {
	switch {
	case m.work.demand != nil:
		return m.decideRound()
	case m.work.shape.Scripted:
		return m.decideScripted()
	}
	return m.decideCollective()
}

// decideCollective answers a collective on the held planes.
func (m *Machine) decideCollective() error {
	all, use, s := m.cfg.Site.All(), m.held, m.work.shape
	if s.Request.Planes != 0 {
		all = s.Request.Planes
		use = (use & all).Usable(m.cfg.Site.Template.Circuits)
	}
	if use == 0 {
		return m.sendToPackets(0)
	}
	row, err := m.book.Row(s, use, m.initial(use))
	if err != nil {
		return err
	}
	switch {
	case row.Packets, row.Hopeless && use == all:
		return m.sendToPackets(ticket.Always)
	case row.Hopeless: // until more planes are back
		return m.sendToPackets(0)
	}
	plan, flags := m.best(&row, s, use)
	if plan == nil {
		return m.sendToPackets(0)
	}
	return m.issue(plan, use, flags)
}

// best returns the best plan of a collective on some planes and the flags of its ticket, nil if there is none yet.
func (m *Machine) best(row *planning.Row, s calls.Shape, use planeset.Set) (*planning.Agreed, uint8) {
	if use == m.cfg.Site.All() {
		if p := m.iteration.plan(s); p != nil {
			return p, flagsOf(p)
		}
	}
	if row.Best != nil {
		return row.Best, 0
	}
	return row.Interim, ticket.Interim
}

// initial returns the maps that plans begin with, nil if planners choose.
func (m *Machine) initial(use planeset.Set) []circuit.Permutation {
	if !m.cfg.Site.Cfg.Plan.Current {
		return nil
	}
	return ticket.MapsOf(m.standing, use)
}

// sendToPackets sends the operation to packet planes.
func (m *Machine) sendToPackets(flags uint8) error {
	m.ticket.Flags, m.ticket.Version, m.ticket.Plan, m.ticket.Use = ticket.Packet|flags, m.book.Version(), planning.ID{}, 0
	m.send(-1, m.work.seq, &m.ticket, nil)
	m.finish()
	m.linger()
	return nil
}

// finish ends the work.
func (m *Machine) finish() {
	if text := m.iteration.add(&m.work, m.clock); text != "" {
		m.act(Action{Kind: Inform, Text: text})
	}
	m.stage, m.work, m.contested = idle, work{}, false
	m.ahead.skip = max(0, m.ahead.skip-1)
}

// linger gives held planes back after IdleHold, unless an operation begins.
func (m *Machine) linger() {
	if m.held != 0 {
		m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: IdleHold})
	}
}

// issue sends the ticket of a plan.
func (m *Machine) issue(p *planning.Agreed, use planeset.Set, flags uint8) error {
	m.fill(p.ID, use, flags)
	m.run()
	m.send(-1, m.work.seq, &m.ticket, nil)
	return nil
}

// run begins to count the ranks that end the operation.
func (m *Machine) run() {
	m.stage, m.done = running, 0
	clear(m.ended)
}

// fill fills in a ticket: the plan, and where the planes in use stand.
func (m *Machine) fill(id planning.ID, use planeset.Set, flags uint8) {
	t := &m.ticket
	t.Flags, t.Version, t.Plan, t.Use = flags, m.book.Version(), id, use
	if m.tellMaps&use != 0 {
		t.Flags |= ticket.Maps
		m.tellMaps &^= use
	}
	for j := range use.Each() {
		t.Planes[j] = m.standing[j]
	}
}

// decideScripted answers an operation whose plan is already on streams. It can use no other plan.
func (m *Machine) decideScripted() error {
	s, all := m.work.shape, m.cfg.Site.All()
	p := m.cfg.Scripted(planning.ShapeOf(s))
	if p == nil {
		return fmt.Errorf("shim: arbiter: %v is on streams without a plan: %w", &s, errdefs.ErrInternal)
	}
	if m.held != all {
		return fmt.Errorf("shim: %v is on streams with a plan for %d planes, of which %d are in service: %w",
			&s, all.Len(), m.held.Len(), ocsctl.ErrPlaneDown)
	}
	return m.issue(p, m.held, 0)
}

// onDone handles the end of an operation at a rank.
func (m *Machine) onDone(e *Event) error {
	if m.stage != running || e.Seq != m.work.seq {
		return fmt.Errorf("%w: rank %d has ended operation %#x, which is not under way", control.ErrMessage, e.Rank, e.Seq)
	}
	if m.ended[e.Rank] {
		return fmt.Errorf("%w: rank %d has ended operation %#x twice", control.ErrMessage, e.Rank, e.Seq)
	}
	m.ended[e.Rank] = true
	if err := m.noteStanding(e); err != nil {
		return err
	}
	if m.done++; m.done == 1 {
		m.ahead.elsewhere = false
	}
	m.ahead.elsewhere = m.ahead.elsewhere || e.Standing.Flags&ticket.Elsewhere != 0
	if m.ahead.open {
		if m.done == 1 {
			m.act(Action{Kind: StopTimer, Timer: IdleTimer})
		}
		if err := m.noteUse(e.Rank, inUse); err != nil {
			return err
		}
	}
	if m.done < m.cfg.Ranks {
		return nil
	}
	return m.allDone()
}

// noteStanding notes where a rank leaves the planes. All ranks leave them in the same state.
func (m *Machine) noteStanding(e *Event) error {
	if n := len(e.Standing.Planes); n != len(m.standing) {
		return fmt.Errorf("%w: rank %d has ended operation %#x on %d planes instead of %d", control.ErrMessage, e.Rank, e.Seq,
			n, len(m.standing))
	}
	for j := range m.ticket.Use.Each() {
		n, at := &m.standing[j], &e.Standing.Planes[j]
		if m.done == 0 {
			n.Epoch, n.Hash = at.Epoch, at.Hash
		}
		if n.Epoch != at.Epoch || n.Hash != at.Hash {
			return fmt.Errorf("shim: operation %#x: rank %d leaves plane %d at epoch %d, others at %d, or with another map: %w",
				e.Seq, e.Rank, j, at.Epoch, n.Epoch, ocsctl.ErrUnknownMap)
		}
		if at.Maps != nil {
			n.Maps = at.Maps
		}
	}
	return nil
}

// allDone goes on after an operation that all ranks have ended.
func (m *Machine) allDone() error {
	if m.work.ahead {
		m.iteration.hits++
		m.ahead.open = false
		delete(m.wants, m.work.seq) // of ranks that asked before they had the ticket
	}
	m.finish()
	if m.handsOver() {
		return m.releaseIdle()
	}
	ahead, err := m.issueAhead()
	if !ahead {
		m.linger()
	}
	return err
}
