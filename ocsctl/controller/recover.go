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
		pl.epoch, pl.off = pl.unread.Epoch, pl.unread.Disabled
		maps.Copy(pl.baselines, pl.unread.Baselines)
		maps.Copy(pl.moved, pl.unread.Moved)
		pl.trial = pl.unread.Trial
		for p, why := range pl.unread.FailedMoves {
			pl.bad[p] = badPort{why, true}
		}
		if i := pl.unread.Intent; i != nil && !pl.unread.Failed {
			pl.epoch = i.Epoch // until the device shows how far the move is
		}
		m.takeOver(pl, now)
	}
}

// passUnread raises the plane's epoch to the newest one that an earlier controller may have published. The caller
// decides the state of a plane whose device has not shown which epoch that was.
func (pl *plane) passUnread() {
	if pl.unread != nil {
		pl.epoch = max(pl.epoch, pl.unread.Epoch, pl.known)
		pl.unread = nil
	}
}

// Bounds of the epochs that a rank may know and the journal may have lost. They keep a wrong rank from using up the
// epochs: without epochs, a plane cannot move, and no controller can read its record.
const (
	maxLost  = 1 << 30 // above that of the plane
	maxKnown = 3 << 30
)

// learn takes the newest epochs that a rank knows. If one is above a plane's epoch, the plane goes out of service at
// that epoch, so that later ones are new to all ranks. Without a journal, each controller begins with new epochs.
func (m *machine) learn(a *attachment, known []uint32, now int64) error {
	if m.cfg.Journal == nil && m.cfg.Recovered == nil {
		return nil
	}
	for j, epoch := range known[:min(len(known), len(m.planes))] {
		if pl := m.planes[j]; epoch > pl.epoch && (epoch-pl.epoch > maxLost || epoch > maxKnown) {
			return fmt.Errorf("controller: port %d: known: epoch %d of %s, which is at %d", a.port, epoch, pl, pl.epoch)
		}
	}
	for j, epoch := range known[:min(len(known), len(m.planes))] {
		pl := m.planes[j]
		if pl.known = max(pl.known, epoch); pl.unread == nil && pl.known > pl.epoch {
			m.behind(pl, now)
		}
	}
	return nil
}

// behind takes a plane out of service whose epoch is below one that ranks know.
func (m *machine) behind(pl *plane, now int64) {
	was := pl.epoch
	pl.epoch = pl.known - 1
	m.advanceEpoch(pl, 0, now)
	pl.barrier.reset()
	if pl.fault != nil {
		m.publish(pl)
		return
	}
	m.failf(pl, now, "%w: ranks know this epoch, the controller took over at epoch %d: %w: %w", errLost, was,
		ocsctl.ErrUnknownMap, ocsctl.ErrPlaneDown)
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
	pl.fault, pl.desired = nil, r.Map
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
	switched := false
	switch i := r.Intent; {
	case i != nil && observed.Equal(i.To): // the intended move is complete
		if pl.desired, switched = i.To, true; !r.Failed {
			pl.epoch = i.Epoch
		}
	case i != nil && !r.Failed && between(observed, r.Map, i.To):
		pl.epoch, pl.desired = i.Epoch, observed // the ranks post again for the intended move
	case !observed.Equal(pl.desired):
		pl.passUnread()
		m.install(pl, observed, now)
		m.failf(pl, now, "%w", driftOf(observed, pl.desired))
		return
	}
	pl.past, pl.unread = r.Past, nil
	m.resume(pl, observed, bad, switched, now)
	if r.Failed && !switched { // otherwise the next takeover would begin with new epochs again
		m.event(now, Event{Kind: Restored, Plane: pl.index, Epoch: pl.epoch, To: observed, Port: -1})
	}
	if pl.known > pl.epoch {
		m.behind(pl, now)
	}
}

// resume puts a plane into service after a takeover. switched: the move of the journal's intent is complete.
func (m *machine) resume(pl *plane, observed circuit.Permutation, bad *BadPorts, switched bool, now int64) {
	from := pl.m
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Install(pl.index, observed, pl.epoch, now)
		m.cfg.DataPath.Advance(pl.index, pl.epoch, 0, now)
	}
	pl.m = observed
	if switched {
		pl.barrier.done(pl.epoch, observed)
		m.advanceEpoch(pl, 0, now)
		pl.past = append(slices.Clone(pl.past), PastMap{pl.epoch, observed.Digest()})
		m.event(now, Event{Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: from, To: observed, Port: -1})
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

// graceEnds ends the grace time: planes whose next move needs a rank that has not come back fail.
func (m *machine) graceEnds(now int64) {
	m.event(now, Event{Kind: Settled, Plane: -1, Port: -1, Who: m.cfg.Name})
	m.grace = 0
	m.loseAbsent()
	m.refuseOthers(math.MaxUint64)
	for _, pl := range m.planes {
		r := m.round(pl)
		if r == nil || pl.fault != nil || pl.move.on {
			continue
		}
		var gone []int
		for p := range m.ports {
			if m.awaits(p) && m.lacks(pl, r, p) {
				gone = append(gone, p)
			}
		}
		if len(gone) > 0 {
			m.failf(pl, now, "rank of port %s has not come back: %w", list(gone), ocsctl.ErrPortLost)
		}
	}
	m.forgive(now)
	for _, pl := range m.planes {
		m.advance(pl, now)
	}
	m.grant(now)
}
