package arbiter

import (
	"errors"
	"fmt"

	"lightpath/ocsctl"
	"lightpath/shim/circuits"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
	"lightpath/shim/ticket"
)

// obtainPlanes makes the communicator hold the planes in service: the planes that it still holds, otherwise all
// available planes. Between operations a failed plane loses no data, so obtainPlanes leaves it out. Holding no plane is
// no error either.
func (m *Machine) obtainPlanes() error {
	for j := range m.held.Each() {
		if _, _, err := m.view.State(j); err != nil {
			if err := m.drop(j, err); err != nil {
				return err
			}
		}
	}
	if !m.knowsEpochs() {
		m.reload()
	}
	switch {
	case m.held == 0:
		return m.acquire()
	case m.clock.Sub(m.since) > MaxHold && !m.keepsPlanes():
		m.stage = releasing
		for j := range m.held.Each() {
			m.await(j, m.standing[j].Epoch)
		}
		return m.releaseHeld()
	}
	return m.decide()
}

// knowsEpochs reports whether every held plane has an epoch that this communicator has requested. A new controller that
// does not know its predecessor's exact state begins with an epoch beyond those.
func (m *Machine) knowsEpochs() bool {
	for j := range m.held.Each() {
		if epoch, _, _ := m.view.State(j); int32(epoch-m.standing[j].Epoch) > 0 {
			return false
		}
	}
	return true
}

// reload reads the states of the held planes, which others may have moved. The next ticket tells the ranks.
func (m *Machine) reload() {
	for j := range m.held.Each() {
		epoch, ports, _ := m.view.State(j)
		m.standing[j] = ticket.At(epoch, m.cfg.Site.Places.Restrict(nil, ports))
	}
	m.tellMaps |= m.held
}

// await waits until a plane reaches an epoch. It does nothing if the plane has reached it or has failed.
func (m *Machine) await(j int, epoch uint32) {
	if at, _, err := m.view.State(j); err == nil && int32(at-epoch) >= 0 {
		return
	}
	m.waiting |= 1 << j
	m.act(Action{Kind: Await, Plane: j, Epoch: epoch})
}

// releaseHeld gives back planes that have been held for MaxHold, and requests all planes again.
func (m *Machine) releaseHeld() error {
	if m.waiting != 0 {
		return nil
	}
	m.giveBack()
	return m.acquire()
}

func (m *Machine) giveBack() {
	if m.held != 0 {
		m.act(Action{Kind: Release, Planes: m.held})
		m.held, m.wanted = 0, false
	}
	if m.asksAgain {
		m.asksAgain = false
		m.askAhead()
	}
}

// releaseIdle gives back idle planes, once they have reached the state in which the last operation leaves them.
func (m *Machine) releaseIdle() error {
	m.recall()
	if m.stage != idle {
		return nil
	}
	for j := range m.held.Each() {
		epoch, _, err := m.view.State(j)
		switch {
		case err != nil:
			if err := m.drop(j, err); err != nil {
				return err
			}
		case int32(epoch-m.standing[j].Epoch) < 0 && !m.abandoned():
			m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: IdleHold})
			return nil
		}
	}
	m.giveBack()
	return nil
}

// abandoned reports whether a rank has left that may not have agreed to a move of held planes.
func (m *Machine) abandoned() bool { return m.ahead.left && m.clock.Sub(m.since) > GapHold }

// acquire obtains all planes for the work. An operation on streams has no other way. Others go on with packet planes
// after a while, and at once while a request of an earlier operation is overdue.
func (m *Machine) acquire() error {
	m.stage = acquiring
	m.requestPlanes()
	switch {
	case m.work.shape.Scripted:
	case m.overdue:
		return m.decide()
	case m.contested:
		m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: MaxHold})
	case m.iteration.learner == nil || m.nextUser() == circuits.Alone:
		m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: GrantWait})
	default:
		m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: SharedWait})
	}
	return nil
}

// requestPlanes requests all planes, unless an earlier request has no answer yet.
func (m *Machine) requestPlanes() {
	if !m.asking {
		m.asking = true
		m.act(Action{Kind: Acquire, Lease: m.lease()})
	}
}

// lease returns the request for all planes. If the plan of the next operation is known, the request names the circuits
// with which the plan begins. The controller makes them before the grant, without posts. It makes those of groups side
// by side in one move. A communicator of all ports names none: no group is beside it, and each of its planes can send
// while others still move.
func (m *Machine) lease() ocsctl.Lease {
	site := m.cfg.Site
	l := ocsctl.Lease{Mask: uint64(site.All()), Ports: site.Places.Ports()}
	next := m.work
	if m.stage == idle {
		next, _ = m.predicted()
	}
	switch {
	case next.demand != nil, site.Cfg.Plan.Current, len(l.Ports) == site.Places.Size(),
		site.All().Len()*len(l.Ports) > ocsctl.MaxCircuits:
		return l
	}
	if p, _, err := m.choose(next.shape, site.All()); err == nil && p != nil && p.Plan != nil {
		l.Circuits = p.Plan.Initial
	}
	return l
}

// waitedLong goes on without planes. The request stands: its answer may come during a later operation, or between two.
func (m *Machine) waitedLong() error {
	m.overdue = true
	m.act(Action{Kind: Warn, Text: "no plane was granted in time, since other communicators hold them or no controller " +
		"answers; going on with packet planes until then (lightpath ocs status shows the holders)"})
	return m.decide()
}

// onGranted handles a grant of the controller.
func (m *Machine) onGranted(e *Event) error {
	m.asking, m.overdue = false, false
	late := m.stage != acquiring
	if !late {
		m.act(Action{Kind: StopTimer, Timer: IdleTimer})
	}
	switch {
	case late && e.Err != nil: // the next operation asks again
		return nil
	case errors.Is(e.Err, ocsctl.ErrPlaneDown):
		m.notice(0, e.Err)
		return m.decide()
	case e.Err != nil:
		return e.Err
	}
	m.held, m.since = e.Planes, m.clock
	if half := m.held &^ m.held.Usable(m.cfg.Site.Template.Circuits); half != 0 {
		m.held &^= half
		m.act(Action{Kind: Release, Planes: half})
	}
	m.notice(m.held, nil)
	m.reload()
	if late {
		return m.issueExpected()
	}
	return m.decide()
}

// onReached handles a plane that has reached its awaited state, or has failed before.
func (m *Machine) onReached(e *Event) error {
	if !m.waiting.Has(e.Plane) {
		return nil // the event belongs to an earlier stage
	}
	m.waiting = m.waiting.Without(e.Plane)
	if e.Err != nil {
		if err := m.drop(e.Plane, e.Err); err != nil {
			return err
		}
	}
	if m.stage == releasing {
		return m.releaseHeld()
	}
	return nil
}

// outOfService reports whether an error only says that a plane is out of service: no bytes were lost, and no rank made
// a mistake.
func outOfService(err error) bool {
	for _, is := range []error{
		ocsctl.ErrPlaneDown, ocsctl.ErrReconfFailed, ocsctl.ErrUnknownMap, ocsctl.ErrPortLost, ocsctl.ErrPinned,
	} {
		if errors.Is(err, is) {
			return !errors.Is(err, ocsctl.ErrFramesLost) && !errors.Is(err, ocsctl.ErrControlLost)
		}
	}
	return false
}

// drop gives back a plane that has failed while no operation was under way.
func (m *Machine) drop(j int, why error) error {
	if !outOfService(why) {
		return fmt.Errorf("shim: plane %d epoch %d: %w", j, m.standing[j].Epoch, why)
	}
	rest := m.held.Without(j).Usable(m.cfg.Site.Template.Circuits)
	gone := m.held &^ rest
	m.held = rest
	m.notice(rest, why)
	if gone != 0 {
		m.act(Action{Kind: Release, Planes: gone})
	}
	return nil
}

// notice logs once which planes have gone out of service and which are back.
func (m *Machine) notice(in planeset.Set, why error) {
	all, planes := m.cfg.Site.All(), m.cfg.Site.Planes
	out := all &^ in
	for j := range (out &^ m.down).Each() {
		reason := why
		if _, _, err := m.view.State(j); err != nil {
			reason = err
		}
		if reason == nil { // an operator removed it; the holder has not failed
			reason = errors.New(m.view.Waiting(j))
		}
		m.act(Action{Kind: Warn, Text: fmt.Sprintf("plane %s is out of service (%v); going on with %d of %d planes",
			planes[j].Name, reason, in.Len(), all.Len())})
	}
	for j := range (m.down &^ out).Each() {
		m.act(Action{Kind: Warn, Text: fmt.Sprintf("plane %s is back in service; going on with %d of %d planes",
			planes[j].Name, in.Len(), all.Len())})
	}
	if in == 0 && m.down != out {
		m.act(Action{Kind: Warn, Text: "no plane with circuits is in service; going on with packet planes"})
	}
	m.down = out
}

// TimedOut returns the error of a plane that does not reach its awaited state in time.
func TimedOut(waiting string) error { return fmt.Errorf("%s: %w", waiting, errdefs.ErrTimeout) }

// keepsPlanes reports whether planes stay granted beyond MaxHold: all planes are held, operations repeat, and no other
// job waits. With fewer planes, a new request may get the others.
func (m *Machine) keepsPlanes() bool {
	_, repeats := m.iteration.next()
	return repeats && !m.wanted && m.held == m.cfg.Site.All()
}

// onWanted handles the news that another request waits for held planes, or that an operator has disabled one.
func (m *Machine) onWanted(e *Event) {
	if m.held&e.Planes == 0 && !m.asking { // the news may come before the grant
		return
	}
	m.wanted = true
	if m.ahead.open && m.done == 0 && !m.ahead.recalling {
		m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: m.patience()})
	}
}
