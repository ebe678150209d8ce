package controller

import (
	"errors"
	"fmt"
	"math"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// start reads every device and decides which planes are in service.
func (m *machine) start(now int64) {
	waits := m.cfg.Recovered != nil && m.awaitsRanks()
	if waits {
		m.grace = now + int64(m.cfg.Grace)
	}
	if m.cfg.Journal != nil {
		m.event(now, Event{Kind: TookOver, Plane: -1, Port: -1, Who: m.cfg.Name})
		if !waits {
			m.event(now, Event{Kind: Settled, Plane: -1, Port: -1, Who: m.cfg.Name})
		}
	}
	for j, pl := range m.planes {
		pl.unread = &Recovered{}
		if m.cfg.Recovered != nil {
			pl.unread = &m.cfg.Recovered[j]
		}
		if pl.unread.Map == nil && m.cfg.Initial != nil {
			pl.unread.Map = m.cfg.Initial[j]
		}
		pl.epoch, pl.off = pl.unread.Epoch, pl.unread.Disabled
		m.takeOver(pl, now)
	}
}

// takeOver puts a plane into service whose device is where the journal says, or on a way that it
// knows. What nobody asked for is drift: it is for an operator to decide.
func (m *machine) takeOver(pl *plane, now int64) {
	observed, err := m.read(pl)
	if errors.Is(err, ErrMoving) {
		if pl.fault == nil {
			pl.fault, pl.mark = fmt.Errorf("plane %d epoch %d: the device has not said where it is: %w", pl.index, pl.epoch, ocsctl.ErrPlaneDown), m.nextID
			m.publish(pl)
		}
		return // its news will tell
	}
	r := pl.unread
	pl.unread, pl.fault = nil, nil
	pl.desired = r.Map
	if err == nil && m.reporter != nil {
		_, err = m.reporter.Report(pl.index)
	}
	if err != nil {
		m.failf(pl, now, "%w: %w", err, ocsctl.ErrUnknownMap)
		return
	}
	if pl.desired == nil {
		pl.desired = observed // a beginning: wherever the device is
	}
	switched := false
	switch i := r.Intent; {
	case i != nil && observed.Equal(i.To): // that switch has happened
		if pl.desired, switched = i.To, true; !r.Failed {
			pl.epoch = i.Epoch
		}
	case i != nil && !r.Failed && between(observed, r.Map, i.To):
		pl.epoch, pl.desired = i.Epoch, observed // the ranks post again for it
	case !observed.Equal(pl.desired):
		m.install(pl, observed, now)
		wrong := changing(observed, pl.desired)
		m.failf(pl, now, "drift of %d circuits: %s: %w", len(wrong), mismatch(observed, pl.desired, wrong[0]), ocsctl.ErrPlaneDown)
		return
	}
	m.resume(pl, observed, switched, now)
}

// resume opens a plane after a takeover; switched: at the target of the journal's intent.
func (m *machine) resume(pl *plane, observed circuit.Permutation, switched bool, now int64) {
	from := pl.m
	if m.cfg.DataPath != nil {
		m.cfg.DataPath.Install(pl.index, observed, pl.epoch, now)
		m.cfg.DataPath.Advance(pl.index, pl.epoch, 0, now)
	}
	pl.m = observed
	if switched {
		pl.barrier.done(pl.epoch, observed)
		m.advanceEpoch(pl, 0, now)
		m.event(now, Event{Kind: Switched, Plane: pl.index, Epoch: pl.epoch, From: from, To: observed, Port: -1})
	}
	m.publish(pl)
	m.grant(now)
}

// between reports whether every circuit of m is one of from or of to, or dark.
func between(m, from, to circuit.Permutation) bool {
	for p, at := range m {
		if at != circuit.Dark && at != from[p] && at != to[p] {
			return false
		}
	}
	return true
}

// awaits reports whether the rank of a port may have to find this controller.
func (m *machine) awaits(port int) bool {
	return m.ports[port] == nil && (m.cfg.Absent == nil || !m.cfg.Absent[port])
}

// awaitsRanks reports whether that is so for any port.
func (m *machine) awaitsRanks() bool {
	for p := range m.ports {
		if m.awaits(p) {
			return true
		}
	}
	return false
}

// graceEnds gives up ranks that have not come back.
func (m *machine) graceEnds(now int64) {
	var vacant []int
	for p := range m.ports {
		if m.awaits(p) {
			vacant = append(vacant, p)
		}
	}
	m.event(now, Event{Kind: Settled, Plane: -1, Port: -1, Who: m.cfg.Name})
	m.grace = 0
	m.refuseOthers(math.MaxUint64)
	for _, pl := range m.planes {
		r := m.round(pl)
		if r == nil || pl.fault != nil || pl.move.on {
			continue
		}
		var gone []int
		for _, p := range vacant {
			if pl.m[p] != r.target[p] && !r.posted[p] {
				gone = append(gone, p)
			}
		}
		if len(gone) > 0 {
			m.failf(pl, now, "rank of port %s has not come back: %w", list(gone), ocsctl.ErrPortLost)
		}
	}
	for _, pl := range m.planes {
		m.advance(pl, now)
	}
	m.grant(now)
}
