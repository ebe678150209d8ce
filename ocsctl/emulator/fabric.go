package emulator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// fabric is the switch without clock, threads or sockets: all its methods run on one
// goroutine, which tells it what time it is. That is what makes it testable to the
// nanosecond, and free of locks.
type fabric struct {
	geo        geometry
	planes     []*plane
	ports      []*session // by port, nil where no rank is attached
	lost       []uint64   // by port: the mark of a rank that vanished, 0 none
	lease      lease
	dev        Device
	settle     int64 // how long a device may go on moving beyond the reconfiguration time
	status     statusPage
	log        *frameLog // nil: none
	nextID     uint64    // of sessions
	onBroken   func(*session, error)
	portsCount int
}

// plane is one OCS plane.
type plane struct {
	index     int
	nsPerByte float64
	reconfig  int64 // ns
	perPort   int64 // ns per circuit that changes
	state     ocsctl.PlaneState
	fault     fault
	faultMark uint64 // sessions below this id saw the fault
	barrier   *barrier
	tx        []transmitter // by port
	stats     PlaneStats

	moving              bool
	target              circuit.Permutation
	began, due, abandon int64
}

// PlaneStats counts what a plane has done since the switch was started.
type PlaneStats struct {
	Frames, Bytes uint64              // delivered; data bytes without labels
	Lost          [numVerdicts]uint64 // frames, by verdict
	Switches      uint64
	Stalled       int64 // ns that circuits were blocked by full receive rings, summed
	Late          int64 // ns, the latest that a frame was delivered after its time
}

func newFabric(cfg *Config, dev Device, status statusPage, log *frameLog) *fabric {
	f := &fabric{
		geo:   geometry{planes: len(cfg.Planes), slots: cfg.Slots, mtu: cfg.MTU},
		ports: make([]*session, cfg.Ports), lost: make([]uint64, cfg.Ports),
		dev: dev, settle: int64(cfg.SettleTimeout), status: status, log: log,
		nextID: 1, portsCount: cfg.Ports, onBroken: func(*session, error) {},
	}
	for i, pc := range cfg.Planes {
		pl := &plane{
			index: i, nsPerByte: 8e9 / pc.BandwidthBitsPerSec,
			reconfig: int64(pc.Reconfig), perPort: int64(pc.ReconfigPerPort),
			state:   ocsctl.PlaneState{Map: cfg.Initial[i].Clone()},
			barrier: newBarrier(), tx: make([]transmitter, cfg.Ports),
		}
		for p := range pl.tx {
			pl.tx[p] = transmitter{port: p, to: pl.state.Map[p], idle: true}
		}
		f.planes = append(f.planes, pl)
		f.publish(pl)
	}
	return f
}

// step does everything that is due at now and returns when it has to be called next if
// nobody kicks before.
func (f *fabric) step(now int64) (next int64) {
	next = never
	for _, pl := range f.planes {
		for i := range pl.tx {
			if t := &pl.tx[i]; t.tx != nil {
				next = min(next, f.service(pl, t, now))
			}
		}
		if pl.moving {
			if pl.due <= now {
				f.arrive(pl, now)
			}
			if pl.moving {
				next = min(next, pl.due)
			}
		}
	}
	return next
}

// attach connects a rank to its port. The session is the fabric's until detach.
func (f *fabric) attach(s *session, now int64) error {
	if f.ports[s.port] != nil {
		return fmt.Errorf("port %d: %w", s.port, ErrPortBusy)
	}
	s.id = f.nextID
	f.nextID++
	f.ports[s.port], f.lost[s.port] = s, 0
	for _, pl := range f.planes {
		t := &pl.tx[s.port]
		t.tx, t.asked, t.busy, t.idle, t.free, t.credit = s.view.tx[pl.index], s.view.idle[pl.index], false, true, now, 0
	}
	return nil
}

// detach takes a rank off its port; afterwards its memory is not touched any more. A rank
// that did not say goodbye takes its posts with it, and barriers that need them fail.
func (f *fabric) detach(s *session, clean bool, now int64) {
	if f.ports[s.port] != s {
		return
	}
	for _, pl := range f.planes {
		t := &pl.tx[s.port]
		if t.busy {
			f.lose(pl, t, LostVacant, now)
		}
		t.tx = nil
		if !clean {
			pl.barrier.forget(s.port)
		}
	}
	f.ports[s.port] = nil
	if !clean {
		f.lost[s.port] = f.nextID
	}
	f.lease.drop(s)
	f.sendGrants()
	f.forgive(now)
	for _, pl := range f.planes {
		f.advance(pl, now)
	}
}

// forgive clears faults and lost ports once every session that was there when they arose
// is gone: the next job starts afresh, from the map that the device really holds.
func (f *fabric) forgive(now int64) {
	oldest, attached := f.nextID, false
	for _, s := range f.ports {
		if s != nil {
			oldest, attached = min(oldest, s.id), true
		}
	}
	for p, mark := range f.lost {
		if mark <= oldest {
			f.lost[p] = 0
		}
	}
	for _, pl := range f.planes {
		if !attached && !pl.moving {
			pl.barrier.rounds = map[uint32]*round{}
		}
		if pl.fault.kind == faultNone || pl.faultMark > oldest || pl.moving {
			continue
		}
		m, err := f.dev.Map(pl.index)
		if err != nil || m.Validate(f.portsCount) != nil {
			continue
		}
		pl.barrier.rounds = map[uint32]*round{}
		f.install(pl, m, now)
		pl.fault = fault{}
		pl.state.Epoch++
		f.publish(pl)
	}
}

// post is one port's agreement to move a plane.
func (f *fabric) post(s *session, plane int, epoch uint32, target circuit.Permutation, now int64) {
	pl := f.planes[plane]
	if pl.fault.kind != faultNone {
		return // the port knows, or is about to
	}
	err := pl.barrier.post(pl.state.Epoch, s.port, epoch, target)
	switch {
	case err == nil:
		f.advance(pl, now)
	case errors.Is(err, ocsctl.ErrConflict):
		f.fail(pl, faultConflict, fmt.Sprintf("plane %d epoch %d: %s", plane, epoch, trimCause(err, ocsctl.ErrConflict)))
	default:
		s.view.alarms[plane].refuse(epoch, pl.state.Epoch)
		s.bell.Ring()
		s.changed(plane)
	}
}

// trimCause removes the sentinel from a message that will get it back at the other end.
func trimCause(err, cause error) string {
	return strings.TrimSuffix(err.Error(), ": "+cause.Error())
}

// awaited lists the ports that the next switch of pl waits for, and those of them whose
// rank has vanished. A port without a rank is not waited for: nothing can be sent from it.
func (f *fabric) awaited(pl *plane) (r *round, missing, gone []int) {
	r, ports := pl.barrier.missing(pl.state.Epoch, pl.state.Map)
	for _, p := range ports {
		switch {
		case f.lost[p] != 0:
			gone = append(gone, p)
		case f.ports[p] != nil:
			missing = append(missing, p)
		}
	}
	return r, missing, gone
}

// advance starts the switch of pl if every port that it waits for has posted.
func (f *fabric) advance(pl *plane, now int64) {
	if pl.moving || pl.fault.kind != faultNone {
		return
	}
	r, missing, gone := f.awaited(pl)
	switch {
	case r == nil:
	case len(gone) > 0:
		f.fail(pl, faultPortLost, fmt.Sprintf("plane %d epoch %d: rank of port %s disconnected", pl.index, pl.state.Epoch, list(gone)))
	case len(missing) == 0:
		f.begin(pl, r.target, now)
	}
}

// begin darkens the circuits that change, losing what is on them, and moves the device.
func (f *fabric) begin(pl *plane, target circuit.Permutation, now int64) {
	ports := changing(pl.state.Map, target)
	took := int64(0)
	if len(ports) > 0 {
		took = pl.reconfig + pl.perPort*int64(pl.state.Map.Changes(target))
	}
	if err := f.dev.Switch(pl.index, target); err != nil {
		f.fail(pl, faultReconf, fmt.Sprintf("plane %d epoch %d: %v", pl.index, pl.state.Epoch, err))
		return
	}
	for _, p := range ports {
		t := &pl.tx[p]
		t.dark = true
		if t.busy {
			f.lose(pl, t, LostDark, now)
		}
	}
	pl.moving, pl.target = true, target
	pl.began, pl.due, pl.abandon = now, now+took, now+took+f.settle
	if took == 0 {
		f.arrive(pl, now)
	}
}

// arrive reads back where the device went, and opens the plane if that is the target.
func (f *fabric) arrive(pl *plane, now int64) {
	observed, err := f.dev.Map(pl.index)
	if errors.Is(err, ErrMoving) && now < pl.abandon {
		pl.due = now + min(max(pl.reconfig/16, int64(50*time.Microsecond)), int64(10*time.Millisecond))
		return
	}
	pl.moving = false
	where := fmt.Sprintf("plane %d epoch %d", pl.index, pl.state.Epoch)
	switch {
	case errors.Is(err, ErrMoving):
		f.install(pl, circuit.AllDark(f.portsCount), now)
		f.fail(pl, faultReconf, fmt.Sprintf("%s: not settled after %v", where, time.Duration(now-pl.began)))
		return
	case err == nil:
		if bad := observed.Validate(f.portsCount); bad != nil {
			err = fmt.Errorf("map read back %w", bad)
		}
	}
	if err != nil {
		f.install(pl, circuit.AllDark(f.portsCount), now)
		f.fail(pl, faultUnknownMap, where+": "+err.Error())
		return
	}
	f.install(pl, observed, now)
	if wrong := changing(observed, pl.target); len(wrong) > 0 {
		p := wrong[0]
		f.fail(pl, faultReconf, fmt.Sprintf("%s: %d circuits are wrong, port %d leads to %s, want %s",
			where, len(wrong), p, portName(observed[p]), portName(pl.target[p])))
		return
	}
	pl.barrier.done(pl.state.Epoch, pl.target)
	pl.state.Epoch++
	pl.stats.Switches++
	if f.log != nil {
		f.log.change(&SwitchRecord{Start: pl.began, End: now, Plane: uint16(pl.index), Epoch: pl.state.Epoch, Map: observed})
	}
	f.publish(pl)
	f.advance(pl, now)
}

// install makes m the map by which frames travel. Circuits that it changes are those of the
// next epoch: frames of the present one are strangers there.
func (f *fabric) install(pl *plane, m circuit.Permutation, now int64) {
	for p := range pl.tx {
		t := &pl.tx[p]
		if t.dark || t.to != m[p] {
			t.made, t.idle, t.free = pl.state.Epoch+1, true, max(t.free, now)
			if t.busy {
				f.lose(pl, t, LostDark, now)
			}
		}
		t.to, t.dark = m[p], false
	}
	pl.state.Map = m.Clone()
}

// fail ends the service of a plane: it moves no more, and every client is told why.
func (f *fabric) fail(pl *plane, kind faultKind, text string) {
	pl.fault, pl.faultMark = fault{kind, text}, f.nextID
	f.publish(pl)
}

// publish shows a plane's state to all clients.
func (f *fabric) publish(pl *plane) {
	f.status.write(pl.index, pl.state, pl.fault)
	for _, s := range f.ports {
		if s != nil {
			s.bell.Ring()
			s.changed(pl.index)
		}
	}
}

// faulted reports whether a plane is out of service.
func (f *fabric) faulted() bool {
	for _, pl := range f.planes {
		if pl.fault.kind != faultNone {
			return true
		}
	}
	return false
}

// broken ends the session of a port whose rings are corrupt.
func (f *fabric) broken(port int, err error) {
	s := f.ports[port]
	for _, pl := range f.planes {
		t := &pl.tx[port]
		t.tx, t.busy = nil, false
	}
	f.onBroken(s, fmt.Errorf("port %d: %w", port, err))
}

// waiting says in words what the next switch of a plane waits for.
func (f *fabric) waiting(plane int) string {
	pl := f.planes[plane]
	where := fmt.Sprintf("plane %d epoch %d", plane, pl.state.Epoch)
	r, missing, _ := f.awaited(pl)
	switch {
	case pl.fault.kind != faultNone:
		return pl.fault.text
	case pl.moving:
		return where + ": switching"
	case r == nil:
		return where + ": no port has posted"
	}
	return where + ": waiting for ports " + list(missing)
}

// acquire queues a request for planes and grants what can be granted.
func (f *fabric) acquire(s *session, id, mask, holder uint64) {
	f.lease.queue = append(f.lease.queue, leaseRequest{leaseHolder{s, holder}, id, mask})
	f.sendGrants()
}

func (f *fabric) sendGrants() {
	for _, q := range f.lease.grant() {
		q.session.granted(q.id)
	}
}

// release frees planes and grants them to who waits.
func (f *fabric) release(s *session, mask, holder uint64) error {
	notHeld := f.lease.release(mask, leaseHolder{s, holder})
	f.sendGrants()
	if notHeld != 0 {
		return fmt.Errorf("release: planes %#x are not held by holder %d of port %d", notHeld, holder, s.port)
	}
	return nil
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
