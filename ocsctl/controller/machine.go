package controller

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"lightpath/plans/circuit"
)

const never = math.MaxInt64

// machine makes the decisions of the controller. It has no clock, threads or locks: one goroutine calls all methods
// and passes the time, in nanoseconds of CLOCK_MONOTONIC. So tests control every nanosecond.
type machine struct {
	cfg      *Config
	timed    bool
	reporter Reporter
	// portReporter is the device, nil if it does not report ports.
	portReporter PortReporter
	planes       []*plane
	ports        []*attachment  // by port, nil where no rank is attached
	lost         map[int]uint64 // ports whose rank died, and the value of nextID then
	watchers     []*attachment  // attached to no port
	lease        lease
	jobs         []*Job // in the order of their begin
	nextID       uint64 // of attachments
	grace        int64  // end of the grace time after a takeover; 0: it has ended
	over         error  // why the controller's rule has ended; nil: it has not
	posts        uint64 // number of posts from inboxes

	answers    map[uint64]answer // pending answers to operators, by id
	nextAnswer uint64

	seq  uint64 // number of the last event
	emit func(e Event, done func(error))
	wall func(now int64) time.Time
	// later runs f on the core's goroutine; it may be called from any goroutine.
	later func(f func(now int64))
}

// plane is one OCS plane.
type plane struct {
	PlaneConfig
	index   int
	epoch   uint32              // counts its moves
	epochs  []uint32            // by port: counts the moves that concern the port; at most epoch; shared and read-only
	began   []uint32            // by port: the epoch of the plane with which its epoch began
	changed []uint32            // by port: the epoch of the plane with which its circuit began
	m       circuit.Permutation // in force: observed, shared and read-only
	desired circuit.Permutation // the last map that was asked for
	fault   error               // why it is out of service; nil: it is in service
	mark    uint64              // nextID at the time of the fault: attachments below it saw the fault
	saving  uint64              // id of the pending write of fault to the journal; 0: none
	saved   bool                // the journal has fault
	off     string              // the operator who disabled it and the reason; "": not disabled
	unread  *Recovered          // not nil at the start, until the device has reported its map
	maybe   *Intent             // of an earlier controller, without a change: see learn; after the grace time, it was none
	known   []uint32            // by port: the newest epoch that earlier controllers published, as far as ranks tell
	barrier *barrier
	intent  intent
	move    move     // the current one
	orders  []*order // for jobs, which wait until the plane is free and in service
	owners  []*Job   // by port: the job that has it; nil: no port has one

	baselines map[int]Baseline // of power, by port
	dim       map[int]bool     // ports that receive less
	bad       map[int]badPort  // ports that ranks must not use; see badport.go
	outs      []PortOut        // see out; computed for the map outAt
	outAt     circuit.Permutation
	partial   bool          // fault is of bad ports only; see mend
	moved     map[int]Moved // ports that are at another port of the switch than in the fabric file
	trial     *Trial        // a change that is to be confirmed; nil: none
	undoAt    int64         // the earliest next attempt to undo it

	switches, failures uint64
	posts, refused     uint64
}

// at names the plane and its epoch.
func (pl *plane) at() string { return fmt.Sprintf("%s epoch %d", pl, pl.epoch) }

// move is the current reconfiguration of a plane.
type move struct {
	proposal
	on                  bool
	began, due, abandon int64
	order               *order // of the operator; nil: ranks asked for the move
}

// enables reports whether the move is the verification of an Enable.
func (mv *move) enables() bool { return mv.order != nil && mv.order.enable }

// intent is the plane's next move in the journal.
type intent struct {
	proposal        // without to: there is none
	id       uint64 // of the newest intent; answers to earlier ones are ignored
	epoch    uint32
	durable  bool
	due      int64 // when the journal times out
}

// waits reports whether the journal has not answered yet.
func (i *intent) waits() bool { return i.to != nil && !i.durable }

// is reports whether the intent is a move of a plane at an epoch.
func (i *intent) is(epoch uint32, n *proposal) bool {
	return i.to != nil && i.epoch == epoch && i.to.Equal(n.to) && slices.Equal(i.epochs, n.epochs)
}

func newMachine(
	cfg *Config, wall func(int64) time.Time, later func(func(now int64)), emit func(Event, func(error)),
) *machine {
	m := &machine{
		cfg: cfg, ports: make([]*attachment, cfg.Ports), lost: map[int]uint64{},
		nextID: 1, seq: cfg.LastSeq, wall: wall, later: later, emit: emit, answers: make(map[uint64]answer),
	}
	_, m.timed = cfg.Device.(Timed)
	m.reporter, _ = cfg.Device.(Reporter)
	m.portReporter, _ = cfg.Device.(PortReporter)
	for i, pc := range cfg.Planes {
		m.planes = append(m.planes, &plane{
			PlaneConfig: pc, index: i, m: circuit.AllDark(cfg.Ports), barrier: newBarrier(),
			epochs: make([]uint32, cfg.Ports), known: make([]uint32, cfg.Ports),
			began: make([]uint32, cfg.Ports), changed: make([]uint32, cfg.Ports),
			baselines: map[int]Baseline{}, dim: map[int]bool{}, moved: map[int]Moved{},
			bad: map[int]badPort{},
		})
	}
	return m
}

// step does all that is due at now, and returns the time of the next call.
func (m *machine) step(now int64) (next int64) {
	next = never
	if m.cfg.DataPath != nil {
		next = m.cfg.DataPath.Step(now)
	}
	if m.over != nil {
		return next
	}
	if m.grace != 0 {
		if m.grace <= now {
			m.graceEnds(now)
		} else {
			next = min(next, m.grace)
		}
	}
	next = min(next, m.answerLate(now), m.endTrials(now))
	for _, pl := range m.planes {
		if pl.intent.waits() {
			if pl.intent.due <= now {
				m.intended(pl, pl.intent.id, fmt.Errorf("%w in %v", ErrJournal, m.cfg.JournalTimeout), now)
			} else {
				next = min(next, pl.intent.due)
			}
		}
		if pl.move.on && pl.move.due <= now {
			m.arrive(pl, now)
		}
		if pl.move.on {
			next = min(next, pl.move.due)
		}
	}
	return next
}

// forgive forgets a lost port once all attachments from the time of the loss have ended and, with Config.Forgive, a
// fault. Without it, a plane waits for an operator.
func (m *machine) forgive(now int64) {
	oldest, attached := m.nextID, false
	for _, a := range m.ports {
		if a != nil {
			oldest, attached = min(oldest, a.id), true
		}
	}
	maps.DeleteFunc(m.lost, func(_ int, mark uint64) bool { return mark <= oldest })
	for _, pl := range m.planes {
		if !attached && !pl.move.on {
			pl.barrier.reset()
		}
		if m.grace != 0 {
			continue // ranks that have not come back may know newer epochs
		}
		m.mend(pl, now)
		if m.cfg.Forgive && pl.mark <= oldest {
			m.forgivePlane(pl, now)
		}
	}
}

// forgivePlane clears a plane's fault after all attachments that saw it have ended. The next job starts from the map
// that the device has.
func (m *machine) forgivePlane(pl *plane, now int64) {
	busy := pl.move.on || pl.move.order != nil
	if pl.fault == nil || busy || !m.mayRestore(pl, now) {
		return
	}
	observed, err := m.read(pl)
	if err != nil {
		return
	}
	if _, found, unwell := m.report(pl); unwell == nil {
		m.learnPorts(pl, found, now)
		m.restore(pl, observed, now)
	}
}

// restore ends a plane's fault at the map that its device has. A disabled plane stays disabled.
func (m *machine) restore(pl *plane, observed circuit.Permutation, now int64) {
	pl.passUnread()
	pl.barrier.reset()
	pl.intent = intent{id: pl.intent.id + 1} // a late answer is ignored
	m.install(pl, observed, nil, now)
	pl.desired, pl.fault, pl.partial = pl.m, nil, false
	m.advanceEpoch(pl, nil, 0, now)
	m.publish(pl)
	m.event(now, Event{Kind: Restored, Plane: pl.index, Epoch: pl.epoch, To: pl.m, Port: -1})
}

// read returns the plane's map from the device, checked.
func (m *machine) read(pl *plane) (circuit.Permutation, error) {
	observed, err := m.cfg.Device.Map(pl.index)
	if err != nil {
		return nil, err
	}
	if err := observed.Validate(m.cfg.Ports); err != nil {
		return nil, fmt.Errorf("map read back %w", err)
	}
	return observed, nil
}

// install puts a map in force. Its new circuits belong to the next epochs of the ports; nil: to the plane's next one.
func (m *machine) install(pl *plane, observed circuit.Permutation, next []uint32, now int64) {
	if m.cfg.DataPath != nil {
		if next == nil {
			next = pl.allAt(pl.epoch + 1)
		}
		m.cfg.DataPath.Install(pl.index, observed, next, now)
	}
	pl.m = observed
}

// advanceEpoch counts a move, after which ports have these epochs; nil: all have the plane's.
func (m *machine) advanceEpoch(pl *plane, epochs []uint32, began, now int64) {
	pl.epoch++
	pl.maybe = nil
	if epochs == nil {
		epochs = pl.allAt(pl.epoch)
	}
	for p, epoch := range epochs {
		if epoch != pl.epochs[p] {
			pl.began[p] = pl.epoch
		}
	}
	pl.epochs = epochs
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Advance(pl.index, pl.epoch, epochs, began, now)
	}
}

// allAt returns one epoch for all ports.
func (pl *plane) allAt(epoch uint32) []uint32 { return slices.Repeat([]uint32{epoch}, len(pl.epochs)) }

// failf takes a plane out of service, and tells every attachment why: plane, epoch and the formatted error.
func (m *machine) failf(pl *plane, now int64, format string, args ...any) {
	if pl.fault != nil {
		return
	}
	err := fmt.Errorf("%s: %w", pl.at(), fmt.Errorf(format, args...))
	pl.fault, pl.mark = err, m.nextID
	pl.failures++
	pl.partial = false
	m.publish(pl)
	m.save(pl, now)
	m.grant(now)
}

// save writes the plane's fault to the journal.
func (m *machine) save(pl *plane, now int64) {
	e := pl.failure()
	if pl.saved = m.cfg.Journal == nil; pl.saved {
		m.event(now, e)
		return
	}
	m.nextAnswer++
	id := m.nextAnswer
	pl.saving = id
	m.note(now, e, m.written(func(err error, now int64) { m.faultSaved(pl, id, err, now) }))
	if to := pl.intent.to; to != nil { // the record ends the intent, and an order needs a new one
		pl.intent = intent{id: pl.intent.id + 1}
		if pl.move.order != nil && !pl.move.on {
			m.intend(pl, &proposal{to: to}, now)
		}
	}
}

// failure returns the event of the plane's fault.
func (pl *plane) failure() Event {
	return Event{Kind: Failed, Plane: pl.index, Epoch: pl.epoch, To: pl.m, Port: -1, Err: pl.fault.Error(),
		Cause: CauseOf(pl.fault), Desired: pl.desired}
}

// faultSaved takes the journal's answer to save.
func (m *machine) faultSaved(pl *plane, id uint64, err error, now int64) {
	if pl.saving != id {
		return // a newer fault has replaced it
	}
	pl.saving = 0
	if pl.saved = err == nil; pl.saved {
		m.forgive(now)
		m.obey(now)
	}
}

// mayRestore reports whether the journal has the plane's fault. If its write has failed, mayRestore writes it again.
// Otherwise restore would publish an epoch that the journal does not have. The next controller might use it again.
func (m *machine) mayRestore(pl *plane, now int64) bool {
	if !pl.saved && pl.saving == 0 {
		m.save(pl, now)
	}
	return pl.saved
}

// publish passes a plane's state to every attachment. Those without a port come first: one of them may write the
// shared state that the others read.
func (m *machine) publish(pl *plane) {
	for _, a := range m.watchers {
		m.tell(a, pl)
	}
	for _, a := range m.ports {
		if a != nil {
			m.tell(a, pl)
		}
	}
}

// tell passes a plane's state to an attachment.
func (m *machine) tell(a *attachment, pl *plane) {
	a.sink.Changed(pl.index, pl.epochs, pl.m, m.faultFor(pl, a.port))
}

// retire ends this controller's rule: it moves nothing any more, and ranks must look for the next controller.
func (m *machine) retire(why error, now int64) {
	if m.over != nil {
		return
	}
	if !errors.Is(why, ErrStopped) && !errors.Is(why, ErrNotLeader) {
		why = fmt.Errorf("%w: %w", ErrNotLeader, why)
	}
	m.over = why
	for id, a := range m.answers {
		delete(m.answers, id)
		a.done(why)
	}
	for _, pl := range m.planes {
		if o := pl.move.order; o != nil {
			o.done(why)
		}
		for _, o := range pl.orders {
			o.done(why)
		}
		pl.move, pl.orders = move{}, nil
	}
	m.lease = lease{}
	for _, a := range m.ports {
		if a != nil {
			m.leave(a, now)
			a.sink.Closed(why)
		}
	}
	for _, a := range m.watchers {
		a.sink.Closed(why)
	}
	m.watchers = nil
}

// event records an event of which no caller waits for an answer.
func (m *machine) event(now int64, e Event) { m.note(now, e, nil) }

// note numbers and records an event; see [Journal.Record] for done.
func (m *machine) note(now int64, e Event, done func(error)) {
	m.seq++
	e.Seq, e.Time, e.Token = m.seq, m.wall(now), m.cfg.Token
	m.emit(e, done)
}

func portName(p int) string {
	if p == circuit.Dark {
		return "nowhere"
	}
	return fmt.Sprint(p)
}

// names joins the names of planes.
func (m *machine) names(planes uint64) string {
	var all []string
	for j, pl := range m.planes {
		if planes>>j&1 != 0 {
			all = append(all, pl.Name)
		}
	}
	return strings.Join(all, ",")
}

// list joins port numbers.
func list(ports []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ","), "[]")
}
