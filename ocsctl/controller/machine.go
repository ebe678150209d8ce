package controller

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

const never = math.MaxInt64

// machine is the controller without clock, threads or front ends: all its methods run on one
// goroutine, which tells it what time it is (nanoseconds of CLOCK_MONOTONIC). That is what makes
// it testable to the nanosecond, and free of locks.
type machine struct {
	cfg      *Config
	timed    bool
	reporter Reporter
	meter    LightMeter
	planes   []*plane
	ports    []*attachment // by port, nil where no rank is attached
	lost     []uint64      // by port: the mark of a rank that vanished, 0 none
	vanished int           // ports with a mark
	watchers []*attachment // attached to no port
	lease    lease
	nextID   uint64 // of attachments
	grace    int64  // until when a takeover waits for ranks
	over     error  // why this controller moves nothing any more
	now      int64  // of the posts that an inbox is passing on
	posts    uint64 // passed on by inboxes

	answers    map[uint64]answer // to operators, by id: they wait for the journal
	nextAnswer uint64

	seq  uint64 // of events
	emit func(e Event, done func(error))
	wall func(now int64) time.Time
	// later has f run on the core's goroutine; callable from any.
	later func(f func(now int64))
}

// plane is one OCS plane.
type plane struct {
	PlaneConfig
	index   int
	epoch   uint32
	m       circuit.Permutation // in force: observed, shared and read-only
	desired circuit.Permutation // what it was last meant to be
	fault   error               // why it is out of service; nil: it is not
	byRank  bool                // ranks are to blame for fault, not the device
	mark    uint64              // attachments below this id saw the fault
	off     string              // who disabled it, and why; "": nobody
	unread  *Recovered          // at the start: the device has not said where it is
	barrier *barrier
	timers  []timer // moves at a time, by epoch
	intent  intent
	move    move // the one under way

	switches, failures uint64
	posts, refused     uint64
}

// move is a reconfiguration under way.
type move struct {
	on                  bool
	target              circuit.Permutation
	began, due, abandon int64
	waited              int64  // from the first post to the last
	order               *order // an operator's; nil: the ranks'
}

// enables reports whether the plane is verified to be put back into service.
func (mv *move) enables() bool { return mv.order != nil && mv.order.enable }

// intent is what the journal has been told of the plane's next move.
type intent struct {
	id      uint64 // of the one that counts
	epoch   uint32
	to      circuit.Permutation // nil: none
	durable bool
	due     int64 // the journal has to answer by then
}

// waits reports whether the journal has yet to answer.
func (i *intent) waits() bool { return i.to != nil && !i.durable }

// is reports whether the intent is the move from epoch to target.
func (i *intent) is(epoch uint32, target circuit.Permutation) bool {
	return i.to != nil && i.epoch == epoch && same(i.to, target)
}

func newMachine(cfg *Config, wall func(int64) time.Time, later func(func(now int64)), emit func(Event, func(error))) *machine {
	m := &machine{
		cfg: cfg, ports: make([]*attachment, cfg.Ports), lost: make([]uint64, cfg.Ports),
		nextID: 1, seq: cfg.LastSeq, wall: wall, later: later, emit: emit, answers: make(map[uint64]answer),
	}
	_, m.timed = cfg.Device.(Timed)
	m.reporter, _ = cfg.Device.(Reporter)
	m.meter, _ = cfg.Device.(LightMeter)
	for i, pc := range cfg.Planes {
		m.planes = append(m.planes, &plane{
			PlaneConfig: pc, index: i, m: circuit.AllDark(cfg.Ports), barrier: newBarrier(),
		})
	}
	return m
}

// step does everything that is due at now and returns when it has to be called next.
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
	next = min(next, m.answerLate(now))
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
		if len(pl.timers) > 0 {
			next = min(next, m.runTimers(pl, now))
		}
		if pl.move.on {
			next = min(next, pl.move.due)
		}
	}
	return next
}

// attach connects a rank to its port, or a watcher where that is below 0.
func (m *machine) attach(a *attachment, o AttachOptions, now int64) error {
	if m.over != nil {
		return m.over
	}
	if o.Port >= m.cfg.Ports {
		return fmt.Errorf("controller: port %d: there are ports 0..%d", o.Port, m.cfg.Ports-1)
	}
	a.id = m.nextID
	m.nextID++
	a.since = now
	if o.Port < 0 {
		m.watchers = append(m.watchers, a)
		m.show(a)
		return nil
	}
	if m.ports[o.Port] != nil {
		return fmt.Errorf("port %d: %w", o.Port, ErrPortBusy)
	}
	if err := m.claim(a, o.Held, now); err != nil {
		return err
	}
	m.ports[o.Port] = a
	m.clearLost(o.Port)
	for _, pl := range m.planes {
		pl.barrier.recheck()
	}
	if m.cfg.DataPath != nil && o.Data != nil {
		m.cfg.DataPath.Attach(o.Port, o.Data, now)
	}
	m.show(a)
	attached := Event{Kind: Attached, Plane: -1, Port: o.Port, Who: a.who}
	if a.recorded = m.cfg.Journal == nil; a.recorded {
		m.event(now, attached)
	} else {
		m.note(now, attached, func(err error) { m.later(func(now int64) { m.recorded(a, err, now) }) })
	}
	for _, pl := range m.planes { // its claim may be what posts waited for
		m.advance(pl, now)
	}
	if m.grace != 0 && !m.awaitsRanks() {
		m.grace = now // all ranks are back
	}
	return nil
}

// show tells a new attachment where the planes are.
func (m *machine) show(a *attachment) {
	for _, pl := range m.planes {
		a.sink.Changed(pl.index, pl.epoch, pl.m, pl.fault)
	}
}

// claim gives back to a rank what it held under the controller before this one.
func (m *machine) claim(a *attachment, held []LeaseSnapshot, now int64) error {
	if m.grace == 0 {
		return nil
	}
	var all uint64
	for _, l := range held {
		if len(m.planes) < MaxPlanes && l.Mask>>len(m.planes) != 0 {
			return fmt.Errorf("controller: port %d: held: mask %#x of %d planes", a.port, l.Mask, len(m.planes))
		}
		for p := range m.planes {
			if l.Mask>>p&1 != 0 && m.lease.held[p].a != nil {
				m.lease.drop(a)
				return fmt.Errorf("controller: port %d: plane %d, which it says it holds: %w", a.port, p, ErrHeld)
			}
		}
		m.lease.give(l.Mask, leaseHolder{a, l.Holder, now})
		all |= l.Mask
		m.event(now, Event{Kind: Granted, Plane: -1, Port: a.port, Holder: l.Holder, Mask: l.Mask, Who: a.who})
	}
	m.refuseOthers(all)
	return nil
}

// detach ends an attachment. A rank that did not say goodbye takes its posts with it, and
// barriers that need them fail.
func (m *machine) detach(a *attachment, clean bool, why string, now int64) {
	if !m.attached(a) {
		return
	}
	if a.port < 0 {
		m.watchers = without(m.watchers, a)
		return
	}
	m.leave(a, now)
	if !clean {
		for _, pl := range m.planes {
			pl.barrier.forget(a.port)
		}
		if m.lost[a.port] == 0 {
			m.vanished++
		}
		m.lost[a.port] = m.nextID
		if why == "" {
			why = "without goodbye"
		}
	}
	m.event(now, Event{Kind: Detached, Plane: -1, Port: a.port, Who: a.who, Err: why})
	m.forgive(now)
	for _, pl := range m.planes { // a barrier that needs the port fails while its holder is known
		m.advance(pl, now)
	}
	m.freed(a, m.lease.drop(a), now)
	m.grant(now)
}

// leave takes a rank off its port.
func (m *machine) leave(a *attachment, now int64) {
	m.ports[a.port] = nil
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Detach(a.port, now)
	}
}

func (m *machine) attached(a *attachment) bool {
	if a.port >= 0 {
		return m.ports[a.port] == a
	}
	for _, w := range m.watchers {
		if w == a {
			return true
		}
	}
	return false
}

func without(all []*attachment, a *attachment) []*attachment {
	var rest []*attachment
	for _, x := range all {
		if x != a {
			rest = append(rest, x)
		}
	}
	return rest
}

func (m *machine) clearLost(port int) {
	if m.lost[port] != 0 {
		m.lost[port] = 0
		m.vanished--
	}
}

// forgive clears faults and lost ports once every attachment that was there when they arose
// is gone: the next job starts afresh, from the map that the device really has. Where the device
// failed, and is not one to be forgiven, the plane waits for an operator.
func (m *machine) forgive(now int64) {
	oldest, attached := m.nextID, false
	for _, a := range m.ports {
		if a != nil {
			oldest, attached = min(oldest, a.id), true
		}
	}
	for p, mark := range m.lost {
		if mark <= oldest {
			m.clearLost(p)
		}
	}
	for _, pl := range m.planes {
		if !attached && !pl.move.on {
			pl.barrier.reset()
		}
		if pl.fault == nil || pl.mark > oldest || pl.move.on || !pl.byRank && !m.cfg.Forgive {
			continue
		}
		observed, err := m.read(pl)
		if err != nil {
			continue
		}
		if !m.cfg.Forgive && !observed.Equal(pl.desired) {
			pl.byRank = false
			continue
		}
		m.restore(pl, observed, now)
	}
}

// restore ends a plane's fault at the map that its device has; what an operator has disabled stays so.
func (m *machine) restore(pl *plane, observed circuit.Permutation, now int64) {
	pl.barrier.reset()
	pl.timers, pl.intent = nil, intent{id: pl.intent.id}
	m.install(pl, observed, now)
	pl.desired, pl.fault, pl.byRank = pl.m, nil, false
	m.advanceEpoch(pl, 0, now)
	m.publish(pl)
	m.event(now, Event{Kind: Restored, Plane: pl.index, Epoch: pl.epoch, To: pl.m, Port: -1})
}

// read asks the device where a plane is.
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

// install puts a map in force whose circuits are those of the next epoch.
func (m *machine) install(pl *plane, observed circuit.Permutation, now int64) {
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Install(pl.index, observed, pl.epoch+1, now)
	}
	pl.m = observed
}

func (m *machine) advanceEpoch(pl *plane, began, now int64) {
	pl.epoch++
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Advance(pl.index, pl.epoch, began, now)
	}
}

// fail ends the service of a plane: it moves no more, and everybody is told why.
func (m *machine) fail(pl *plane, err error, now int64) {
	if pl.fault != nil {
		return
	}
	pl.fault, pl.mark = err, m.nextID
	pl.byRank = errors.Is(err, ocsctl.ErrConflict) || errors.Is(err, ocsctl.ErrPortLost)
	pl.timers = nil
	pl.failures++
	m.publish(pl)
	m.event(now, Event{Kind: Failed, Plane: pl.index, Epoch: pl.epoch, To: pl.m, Port: -1, Err: err.Error()})
	m.grant(now)
}

// failf is fail with the place before the text.
func (m *machine) failf(pl *plane, now int64, format string, args ...any) {
	m.fail(pl, fmt.Errorf("plane %d epoch %d: %w", pl.index, pl.epoch, fmt.Errorf(format, args...)), now)
}

// publish shows a plane's state to everybody, to those without a port first: they may be what the
// others look at.
func (m *machine) publish(pl *plane) {
	for _, a := range m.watchers {
		a.sink.Changed(pl.index, pl.epoch, pl.m, pl.fault)
	}
	for _, a := range m.ports {
		if a != nil {
			a.sink.Changed(pl.index, pl.epoch, pl.m, pl.fault)
		}
	}
}

// retire ends this controller's rule: nothing moves any more, and every rank has to find its
// successor.
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
		pl.move, pl.timers = move{}, nil
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

// event notes what happened.
func (m *machine) event(now int64, e Event) { m.note(now, e, nil) }

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

// list joins port numbers.
func list(ports []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ","), "[]")
}
