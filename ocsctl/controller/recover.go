package controller

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// start reads every device and decides which planes are in service.
func (m *machine) start(now int64) {
	waits := m.cfg.Recovered != nil && m.awaitsRanks()
	if waits {
		m.grace = now + int64(m.cfg.Grace)
	} else if m.cfg.Recovered != nil {
		m.loseAbsent()
	}
	if m.cfg.Journal != nil {
		m.event(now, Event{Kind: TookOver, Plane: -1, Port: -1, Who: m.cfg.Name})
		if !waits {
			m.event(now, Event{Kind: Settled, Plane: -1, Port: -1, Who: m.cfg.Name})
		}
	}
	m.takeOverJobs()
	for j, pl := range m.planes {
		pl.unread = &Recovered{}
		if m.cfg.Recovered != nil {
			pl.unread = &m.cfg.Recovered[j]
		}
		if pl.unread.Map == nil && m.cfg.Initial != nil {
			pl.unread.Map = m.cfg.Initial[j]
		}
		pl.epoch, pl.desired, pl.off = pl.unread.Epoch, pl.unread.Map, pl.unread.Disabled
		maps.Copy(pl.baselines, pl.unread.Baselines)
		maps.Copy(pl.moved, pl.unread.Moved)
		pl.trial = pl.unread.Trial
		for p, why := range pl.unread.FailedMoves {
			pl.bad[p] = badPort{why, true}
		}
		if i := pl.unread.Intent; i != nil && !pl.unread.Failed {
			pl.epoch = i.Epoch // until the device shows how far the move is
		}
		if pl.epochs = pl.unread.Epochs; pl.epochs == nil || pl.unread.Failed {
			pl.epochs = slices.Repeat([]uint32{pl.epoch}, m.cfg.Ports)
		}
		for p := range pl.changed {
			if m.cfg.Recovered != nil && m.cfg.Before[p] != RankLeft {
				pl.changed[p] = 1 // the rank may still know another map of its epoch, from the controller before
			}
		}
		m.takeOver(pl, now)
	}
}

// passUnread raises the epochs of the plane and its ports to the newest one that an earlier controller may have
// published. The caller decides the state of a plane whose device has not shown which epoch that was.
func (pl *plane) passUnread() {
	if pl.unread != nil {
		pl.epoch = max(pl.epoch, pl.unread.Epoch, slices.Max(pl.known))
		pl.epochs, pl.unread = pl.allAt(pl.epoch), nil
	}
}

// Bounds of the epochs that a rank may know and the journal may have lost. They keep a wrong rank from using up the
// epochs: without epochs, a plane cannot move, and no controller can read its record.
const (
	maxLost  = 1 << 30 // above that of the plane
	maxKnown = 3 << 30
)

// learn takes the newest epochs that a rank knows. If a plane has its port at an earlier one, the plane goes out of
// service at an epoch above, so that later ones are new to all ranks. But the intent of a move that changes no circuit
// does not show whether the move has happened; then the rank tells. Without a journal, each controller begins with new
// epochs.
func (m *machine) learn(port int, known []uint32, now int64) error {
	if m.cfg.Journal == nil && m.cfg.Recovered == nil {
		return nil
	}
	for j, epoch := range known[:min(len(known), len(m.planes))] {
		if pl := m.planes[j]; epoch > pl.epoch && (epoch-pl.epoch > maxLost || epoch > maxKnown) {
			return fmt.Errorf("controller: port %d: known: epoch %d of %s, which is at %d", port, epoch, pl, pl.epoch)
		}
	}
	for j, epoch := range known[:min(len(known), len(m.planes))] {
		pl := m.planes[j]
		pl.known[port] = max(pl.known[port], epoch)
		if pl.unread == nil {
			m.checkKnown(pl, now)
		}
	}
	return nil
}

// checkKnown compares the epochs of a plane with those that ranks know.
func (m *machine) checkKnown(pl *plane, now int64) {
	if i := pl.maybe; i != nil && pl.isBehind() && pl.fault == nil {
		m.advanceEpoch(pl, i.Epochs, 0, now)
		m.publish(pl)
		m.event(now, Event{Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: pl.m, To: pl.m, Port: -1,
			Epochs: i.Epochs})
	}
	if pl.isBehind() {
		m.behind(pl, now)
	}
}

// behind takes a plane out of service that has a port at an earlier epoch than its rank knows.
func (m *machine) behind(pl *plane, now int64) {
	was := pl.epoch
	pl.epoch = max(was, slices.Max(pl.known)) - 1
	m.advanceEpoch(pl, nil, 0, now)
	pl.barrier.reset()
	if pl.fault != nil {
		m.publish(pl)
		return
	}
	m.failf(pl, now, "%w: ranks know later epochs than the controller, which took over at epoch %d: %w: %w", errLost, was,
		ocsctl.ErrUnknownMap, ocsctl.ErrPlaneDown)
}

// isBehind reports whether a rank knows a later epoch of its port.
func (pl *plane) isBehind() bool {
	for p, epoch := range pl.known {
		if epoch > pl.epochs[p] {
			return true
		}
	}
	return false
}

// takeOver puts a plane into service if its device has the journal's map, or a map on the way to the journal's
// intent. Any other map is drift: the plane stays out of service until an operator decides.
func (m *machine) takeOver(pl *plane, now int64) {
	observed, err := m.read(pl)
	if errors.Is(err, ErrMoving) {
		if pl.fault == nil {
			pl.mark = m.nextID
			pl.fault = fmt.Errorf("%s: the device has not reported its map: %w: %w", pl.at(),
				ocsctl.ErrUnknownMap, ocsctl.ErrPlaneDown)
			m.publish(pl)
		}
		return // the device reports when it has settled
	}
	r := pl.unread
	pl.fault = nil
	var bad *BadPorts
	if err == nil {
		_, bad, err = m.report(pl)
	}
	if errors.Is(err, ErrNotLeader) {
		m.retire(err, now)
		return
	}
	if i := r.Intent; i != nil && (err != nil || r.Failed) {
		pl.desired = i.To // ranks may have seen the end of the move, and the device may have lost it since
	}
	if err != nil {
		pl.passUnread()
		m.failf(pl, now, "%w: %w", err, ocsctl.ErrUnknownMap)
		return
	}
	if pl.desired == nil {
		pl.desired = observed // the journal has no record: take the map as it is
	}
	switched, epochs := false, []uint32(nil)
	switch i := r.Intent; {
	case i != nil && !r.Failed && i.To.Equal(r.Map) && observed.Equal(i.To):
		pl.epoch, pl.maybe = i.Epoch, i
	case i != nil && observed.Equal(i.To): // the intended move is complete
		if pl.desired, switched = i.To, true; !r.Failed {
			pl.epoch, epochs = i.Epoch, i.Epochs
		}
	case i != nil && !r.Failed && between(observed, r.Map, i.To):
		pl.epoch, pl.desired = i.Epoch, observed // the ranks post again for the intended move
	case !observed.Equal(pl.desired):
		pl.passUnread()
		m.install(pl, observed, nil, now)
		m.failf(pl, now, "%w", driftOf(observed, pl.desired))
		return
	}
	pl.unread = nil
	m.resume(pl, observed, bad, switched, epochs, now)
	if r.Failed && !switched { // otherwise the next takeover would begin with new epochs again
		m.event(now, Event{Kind: Restored, Plane: pl.index, Epoch: pl.epoch, To: observed, Port: -1})
	}
	m.checkKnown(pl, now)
}

// resume puts a plane into service after a takeover. switched: the move of the journal's intent is complete, and ports
// have these epochs after it; nil: the plane's next one.
func (m *machine) resume(pl *plane, observed circuit.Permutation, bad *BadPorts, switched bool, epochs []uint32,
	now int64,
) {
	from := pl.m
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Install(pl.index, observed, pl.epochs, now)
		m.cfg.DataPath.Advance(pl.index, pl.epoch, pl.epochs, 0, now)
	}
	pl.m = observed
	if switched {
		m.advanceEpoch(pl, epochs, 0, now)
		m.event(now, Event{Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: from, To: observed, Port: -1,
			Epochs: epochs})
	}
	m.learnPorts(pl, bad, now)
	m.publish(pl)
	m.grant(now)
}

// between reports whether a plane may have the map m during a move: every port has its circuit in from or in to, and a
// port whose circuit changes may have none.
func between(m, from, to circuit.Permutation) bool {
	for p, at := range m {
		if at != from[p] && at != to[p] && (at != circuit.Dark || from[p] == to[p]) {
			return false
		}
	}
	return true
}

// awaits reports whether a port may have a rank that has not found this controller yet.
func (m *machine) awaits(port int) bool {
	return m.ports[port] == nil && m.cfg.Before[port] == RankUnknown
}

// awaitsRanks reports whether awaits holds for any port.
func (m *machine) awaitsRanks() bool {
	for p := range m.ports {
		if m.awaits(p) {
			return true
		}
	}
	return false
}

// loseAbsent marks the ports whose ranks may still send: they have not come back, or they disconnected from the
// controller before without a goodbye. A mark ends when a rank attaches at the port. It also ends when all ranks
// that are attached now have left, and the next one that attaches, too: that one may come late.
func (m *machine) loseAbsent() {
	for p := range m.ports {
		if m.ports[p] == nil && m.cfg.Before[p] != RankLeft {
			m.lost[p] = m.nextID + 1
		}
	}
}

// graceEnds ends the grace time: ranks that have not come back are lost, and so are moves that need them.
func (m *machine) graceEnds(now int64) {
	m.event(now, Event{Kind: Settled, Plane: -1, Port: -1, Who: m.cfg.Name})
	m.grace = 0
	m.loseAbsent()
	m.refuseOthers(math.MaxUint64)
	m.forgive(now)
	for _, pl := range m.planes {
		pl.maybe = nil
		m.advance(pl, now)
	}
	m.grant(now)
}
