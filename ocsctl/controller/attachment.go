package controller

import (
	"fmt"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// attachment is an [Attachment] of a [Core].
type attachment struct {
	core  *Core
	sink  Sink
	port  int
	who   string
	id    uint64 // from machine.nextID; 0: not attached
	since int64
	// recorded: the journal has answered the Attached event. Before that, the rank is granted no planes: a
	// controller that takes over would not wait for it, and might grant them to another rank.
	recorded bool
}

// Attach implements Controller.
func (c *Core) Attach(s Sink, o AttachOptions) (Attachment, error) {
	a := &attachment{core: c, sink: s, port: max(o.Port, -1), who: o.Who}
	var err error
	if e := c.Do(func(now int64) { err = c.machine.attach(a, o, now) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Post implements Attachment.
func (a *attachment) Post(plane int, epoch uint32, holder uint64, target circuit.Permutation) error {
	if err := a.check("post", a.core.checkMap(plane, target)); err != nil {
		return err
	}
	target = target.Clone()
	return a.core.do(func(now int64) { a.core.machine.post(a, plane, roundKey{epoch, holder}, target, now) })
}

// Acquire implements Attachment.
func (a *attachment) Acquire(id uint64, l ocsctl.Lease) error {
	if err := a.check("acquire", l.Check(a.core.cfg.Ports, len(a.core.cfg.Planes))); err != nil {
		return err
	}
	q := leaseRequest{a.core.cfg.holder(a, &l), id, l.Mask, l.Circuits}
	return a.core.do(func(now int64) { a.core.machine.acquire(q, now) })
}

// Release implements Attachment.
func (a *attachment) Release(mask, holder uint64) error {
	if err := a.check("release", ocsctl.CheckMask(mask, len(a.core.cfg.Planes))); err != nil {
		return err
	}
	var err error
	if e := a.core.Do(func(now int64) { err = a.core.machine.release(a, mask, holder, now) }); e != nil {
		return e
	}
	return err
}

// Detach implements Attachment.
func (a *attachment) Detach(clean bool) {
	// An error means that the core has stopped. It uses the attachment until its goroutine has ended.
	if err := a.core.Do(func(now int64) { a.core.machine.detach(a, clean, "", now) }); err != nil {
		<-a.core.done
	}
}

// check returns the error of a request: it needs a port, and err is nil if its arguments are valid.
func (a *attachment) check(what string, err error) error {
	if a.port < 0 {
		return fmt.Errorf("controller: %s: %w", what, errNoPort)
	}
	if err != nil {
		return fmt.Errorf("controller: port %d: %s: %w", a.port, what, err)
	}
	return nil
}

// attach connects a rank to its port, or an observer if the port is below 0.
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
		m.tellAll(a)
		return nil
	}
	if m.ports[o.Port] != nil {
		return fmt.Errorf("port %d: %w", o.Port, ErrPortBusy)
	}
	if err := m.learn(o.Port, o.Known, now); err != nil {
		return err
	}
	if err := m.claim(a, o.Held, now); err != nil {
		return err
	}
	m.ports[o.Port] = a
	delete(m.lost, o.Port)
	for _, pl := range m.planes {
		pl.barrier.recheck()
	}
	if m.cfg.DataPath != nil && o.Data != nil {
		m.cfg.DataPath.Attach(o.Port, o.Data, now)
	}
	m.tellAll(a)
	m.tellHolders() // of the leases that it has claimed
	attached := Event{Kind: Attached, Plane: -1, Port: o.Port, Who: a.who}
	if a.recorded = m.cfg.Journal == nil; a.recorded {
		m.event(now, attached)
	} else {
		m.note(now, attached, m.written(func(_ error, now int64) { // after an error, too: it must not stop jobs
			a.recorded = true
			m.grant(now)
		}))
	}
	for _, pl := range m.planes { // posts may have waited for its claim
		m.advance(pl, now)
	}
	if m.grace != 0 && !m.awaitsRanks() {
		m.grace = now // all ranks are back
	}
	return nil
}

// tellAll passes the state of every plane to a new attachment.
func (m *machine) tellAll(a *attachment) {
	for _, pl := range m.planes {
		m.tell(a, pl)
	}
}

// claim gives a rank the leases back that the controller before this one had granted. After the grace time these leases
// have ended, and the rank does not know it yet. So it is refused, and stays lost until its process ends: its
// communicators may still send.
func (m *machine) claim(a *attachment, held []ocsctl.Lease, now int64) error {
	if m.grace == 0 && len(held) > 0 {
		return fmt.Errorf("controller: port %d: its leases ended while it was disconnected, and others may have its "+
			"planes: %w", a.port, ErrHeld)
	}
	var all uint64
	for i := range held {
		l := &held[i]
		if err := l.Check(m.cfg.Ports, len(m.planes)); err != nil {
			m.lease.drop(a)
			return fmt.Errorf("controller: port %d: held: %w", a.port, err)
		}
		h := m.cfg.holder(a, l)
		h.since = now
		for p := range m.planes {
			if l.Mask>>p&1 != 0 && !h.beside(m.lease.held[p]) {
				m.lease.drop(a)
				return fmt.Errorf("controller: port %d: %s, which it says it holds: %w", a.port, m.planes[p], ErrHeld)
			}
		}
		m.lease.give(l.Mask, h)
		all |= l.Mask
		m.event(now, Event{Kind: Granted, Plane: -1, Port: a.port, Holder: l.Holder, Mask: l.Mask, Who: a.who})
	}
	m.refuseOthers(all)
	m.showBad(all)
	return nil
}

// detach ends an attachment. If the rank did not detach itself (clean), its posts are void, and barriers that need
// them fail.
func (m *machine) detach(a *attachment, clean bool, why string, now int64) {
	if !m.attached(a) {
		return
	}
	if a.port < 0 {
		m.watchers = slices.DeleteFunc(slices.Clone(m.watchers), func(w *attachment) bool { return w == a })
		return
	}
	m.leave(a, now)
	if !clean {
		for _, pl := range m.planes {
			pl.barrier.forget(a.port)
		}
		m.lost[a.port] = m.nextID
		if why == "" {
			why = "without goodbye"
		}
	}
	m.event(now, Event{Kind: Detached, Plane: -1, Port: a.port, Who: a.who, Err: why})
	m.forgive(now)
	for _, pl := range m.planes { // before drop: a barrier that needs the port must fail with its holder known
		m.advance(pl, now)
	}
	m.freed(a, m.lease.drop(a), now)
	m.grant(now)
}

// leave disconnects a rank from its port.
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
	return slices.Contains(m.watchers, a)
}
