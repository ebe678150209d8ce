package controller

import (
	"maps"
	"slices"
	"strings"
	"time"

	"lightpath/ocsctl"
)

// Snapshot implements Controller.
func (c *Core) Snapshot() (Snapshot, error) {
	var s Snapshot
	err := c.Do(func(now int64) { s = c.machine.snapshot(now) })
	return s, err
}

// Waiting implements Controller.
func (c *Core) Waiting(plane int) string {
	if err := c.checkPlane(plane); err != nil {
		return err.Error()
	}
	var text string
	if err := c.Do(func(int64) { text = c.machine.waiting(c.machine.planes[plane]) }); err != nil {
		return err.Error()
	}
	return text
}

func (m *machine) snapshot(now int64) Snapshot {
	wall := m.wall(now)
	at := func(t int64) time.Time { return wall.Add(time.Duration(t - now)) }
	s := Snapshot{Time: wall, Name: m.cfg.Name, Leader: m.over == nil, Token: m.cfg.Token}
	for j, pl := range m.planes {
		p := m.planeSnapshot(pl)
		for i := range m.lease.held[j] {
			h := &m.lease.held[j][i]
			if m.lease.makingOf(j, h) != nil {
				continue // it is in the queue
			}
			p.Holders = append(p.Holders, LeaseSnapshot{Port: h.a.port, Holder: h.holder, Mask: m.heldBy(h),
				Since: at(h.since), Job: m.jobName(m.heldBy(h), h.a.port)})
		}
		s.Planes = append(s.Planes, p)
	}
	for port, a := range m.ports {
		p := PortSnapshot{Port: port}
		if a != nil {
			p.Attached, p.Who, p.Since = true, a.who, at(a.since)
		}
		s.Ports = append(s.Ports, p)
	}
	var queue []leaseRequest
	for i := range m.lease.making {
		queue = append(queue, m.lease.making[i].leaseRequest)
	}
	for _, q := range append(queue, m.lease.queue...) {
		s.Queue = append(s.Queue, LeaseSnapshot{Port: q.a.port, Holder: q.holder, Mask: q.mask,
			Since: at(q.since), Job: m.jobName(q.mask, q.a.port)})
	}
	s.Jobs = m.jobSnapshots()
	return s
}

// Leases returns the granted leases, each once, in the order of their first planes.
func (s *Snapshot) Leases() (all []LeaseSnapshot) {
	for j := range s.Planes {
		for _, l := range s.Planes[j].Holders {
			if l.Mask&(1<<j-1) == 0 {
				all = append(all, l)
			}
		}
	}
	return all
}

// heldBy returns all planes of a holder's lease.
func (m *machine) heldBy(h *leaseHolder) (mask uint64) {
	for p, held := range m.lease.held {
		if slices.ContainsFunc(held, func(x leaseHolder) bool { return x.is(h.a, h.holder) }) {
			mask |= 1 << p
		}
	}
	return mask
}

func (m *machine) planeSnapshot(pl *plane) PlaneSnapshot {
	p := PlaneSnapshot{
		Name: pl.Name, State: Resident, Reason: pl.reason(), Epoch: pl.epoch, Map: pl.m,
		Verified: m.verified(pl), Switches: pl.switches, Failures: pl.failures, Posts: pl.posts, Refused: pl.refused,
	}
	if pl.fault != nil && !pl.move.on {
		m.lookAgain(pl, &p)
	}
	if m.portReporter != nil && !pl.move.on {
		p.Unlit = m.portReporter.Unlit(pl.index)
	}
	if t := pl.trial; t != nil {
		p.Trial = &Trial{Planes: t.Planes, Until: t.Until, Who: t.Who}
	}
	p.Dim, p.Out = slices.Sorted(maps.Keys(pl.dim)), slices.Clone(pl.out())
	if pl.desired != nil && !pl.desired.Equal(p.Map) {
		p.Desired = pl.desired
	}
	if posted, missing, to := m.pending(pl); to != nil {
		p.State, p.Target, p.Posted, p.Missing = Waiting, to, posted, missing
	}
	if pl.move.on {
		p.State, p.Target = Moving, pl.move.to
	}
	if p.Reason != "" && !pl.move.on {
		p.State, p.Cause = Down, pl.cause()
	}
	if p.State == Waiting || p.State == Moving {
		p.Waiting = m.waiting(pl)
	}
	return p
}

// lookAgain shows the map that the device of a failed plane has now, nil if the device does not tell. It may have
// changed since the failure, which only an operator ends.
func (m *machine) lookAgain(pl *plane, p *PlaneSnapshot) {
	var err error
	if p.Map, err = m.read(pl); err != nil {
		return
	}
	if c := pl.cause(); c == CauseUnresponsive || c == CauseUnknown {
		p.Reason += "; it answers again"
	}
}

// verified returns how the circuits of a plane were verified; "" while they move or are not as desired.
func (m *machine) verified(pl *plane) string {
	if pl.fault != nil || pl.move.on {
		return ""
	}
	verified, _, unwell := m.report(pl)
	if unwell != nil {
		return ""
	}
	return verified
}

// waiting implements [Controller.Waiting].
func (m *machine) waiting(pl *plane) string {
	where, reason := pl.at(), pl.reason()
	posted, missing := m.awaitedPorts(pl)
	switch {
	case m.over != nil:
		return where + ": " + m.over.Error()
	case reason != "":
		return reason
	case pl.move.on:
		return where + ": switching"
	case m.grace != 0 && len(m.lease.held[pl.index]) == 0:
		return where + ": no communicator has claimed it since the takeover"
	case !posted && len(pl.bad) > 0:
		return where + ": " + pl.badText()
	case !posted:
		return where + ": no port has posted"
	case pl.intent.waits():
		return where + ": waiting for the journal"
	}
	return where + ": waiting for ports " + missing
}

// awaitedPorts reports whether ports have posted for the next moves of a plane, and for which other ports these wait,
// by holder if there are several.
func (m *machine) awaitedPorts(pl *plane) (posted bool, missing string) {
	var all []string
	for h, r := range m.rounds(pl) {
		posted = true
		ports, _ := m.absent(pl, h, r)
		switch {
		case len(ports) == 0:
		case len(m.lease.held[pl.index]) > 1:
			all = append(all, list(ports)+" of holder "+ocsctl.HolderName(h.holder))
		default:
			all = append(all, list(ports))
		}
	}
	return posted, strings.Join(all, "; ports ")
}
