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

var (
	errPlaneDown  = ocsctl.ErrPlaneDown
	errUnknownMap = ocsctl.ErrUnknownMap
)

// secure sees to it that the communicator holds the planes in service: those that it holds from the operation before, or
// all there are. Between operations nothing is lost with a plane, so one that has failed is left out. None at all is no
// error either.
func (m *Machine) secure() error {
	for j := range m.held.Each() {
		if _, _, err := m.view.State(j); err != nil {
			if err := m.drop(j, err); err != nil {
				return err
			}
		}
	}
	if !m.current() {
		m.reload(m.held)
	}
	switch {
	case m.held == 0:
		return m.acquire()
	case m.clock.Sub(m.since) > MaxHold:
		m.stage = releasing
		m.awaitStanding(m.held)
		return m.releaseHeld()
	}
	return m.decide()
}

// current reports whether no plane that is held has an epoch beyond what operations of this communicator have asked for.
// A controller that has taken over, and does not know exactly where the one before was, begins with such an epoch.
func (m *Machine) current() bool {
	for j := range m.held.Each() {
		if epoch, _, _ := m.view.State(j); int32(epoch-m.now[j].Epoch) > 0 {
			return false
		}
	}
	return true
}

// reload reads where planes stand that others may have moved. The next ticket tells ranks.
func (m *Machine) reload(planes planeset.Set) {
	for j := range planes.Each() {
		epoch, ports, _ := m.view.State(j)
		m.now[j] = ticket.At(epoch, circuits.RankMap(ports, m.cfg.Site.Ports, m.member))
	}
	m.moved |= planes
}

// awaitStanding waits until planes are where operations leave them.
func (m *Machine) awaitStanding(planes planeset.Set) {
	for j := range planes.Each() {
		m.await(j, m.now[j].Epoch)
	}
}

// await waits until a plane has reached an epoch, unless it has or has failed.
func (m *Machine) await(j int, epoch uint32) {
	if at, _, err := m.view.State(j); err == nil && int32(at-epoch) >= 0 {
		return
	}
	m.waiting |= 1 << j
	m.act(Action{Kind: Await, Plane: j, Epoch: epoch})
}

// releaseHeld gives planes back that have been held for long, and asks for all anew.
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
		m.held = 0
	}
}

// releaseIdle gives planes back that no operation has needed for a while, once they are where the last one leaves them.
func (m *Machine) releaseIdle() error {
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
		case int32(epoch-m.now[j].Epoch) < 0:
			m.act(Action{Kind: SetTimer, Timer: IdleTimer, After: IdleHold})
			return nil
		}
	}
	m.giveBack()
	return nil
}

// acquire asks for all planes.
func (m *Machine) acquire() error {
	m.stage = acquiring
	m.act(Action{Kind: Acquire, Planes: m.cfg.Site.All()})
	return nil
}

// granted takes the planes that the controller has granted.
func (m *Machine) granted(e *Event) error {
	switch {
	case errors.Is(e.Err, errPlaneDown):
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
	m.reload(m.held)
	return m.vacate(0)
}

// vacate has circuits from ports outside the communicator to its members released, plane by plane from one on. If that
// cannot be, they stay as they are, and the operation goes by packet planes.
func (m *Machine) vacate(from int) error {
	for j := range m.held.Each() {
		if j < from {
			continue
		}
		epoch, ports, _ := m.view.State(j)
		if target, outside := circuits.Outside(ports, m.member); len(outside) > 0 {
			m.stage = vacating
			m.act(Action{Kind: Vacate, Plane: j, Epoch: epoch, Target: target, Ports: outside})
			return nil
		}
	}
	return m.decide()
}

// vacated goes on when the ranks of other communicators have been told.
func (m *Machine) vacated(e *Event) error {
	if !e.OK {
		return m.decide()
	}
	m.stage = vacated
	m.await(e.Plane, m.now[e.Plane].Epoch+1)
	if m.waiting != 0 {
		return nil
	}
	return m.vacatedPlane(e.Plane)
}

func (m *Machine) vacatedPlane(j int) error {
	if m.held.Has(j) {
		m.reload(1 << j)
	}
	return m.vacate(j + 1)
}

// reached takes a plane that has got to where it was awaited, or has failed on the way.
func (m *Machine) reached(e *Event) error {
	if !m.waiting.Has(e.Plane) {
		return nil // from a stage that is over
	}
	m.waiting = m.waiting.Without(e.Plane)
	if e.Err != nil {
		if m.stage == settling {
			return fmt.Errorf("shim: plane %d epoch %d: %w", e.Plane, m.now[e.Plane].Epoch, e.Err)
		}
		if err := m.drop(e.Plane, e.Err); err != nil {
			return err
		}
	}
	switch m.stage {
	case releasing:
		return m.releaseHeld()
	case vacated:
		return m.vacatedPlane(e.Plane)
	case settling:
		return m.settled()
	}
	return nil
}

// outOfService reports whether an error says no more than that a plane does not serve: it has cost no bytes, and is no
// rank's mistake.
func outOfService(err error) bool {
	for _, is := range []error{errPlaneDown, ocsctl.ErrReconfFailed, errUnknownMap, ocsctl.ErrPortLost} {
		if errors.Is(err, is) {
			return !errors.Is(err, ocsctl.ErrFramesLost) && !errors.Is(err, ocsctl.ErrControlLost)
		}
	}
	return false
}

// drop gives back a plane that has failed while no operation was under way.
func (m *Machine) drop(j int, why error) error {
	if !outOfService(why) {
		return fmt.Errorf("shim: plane %d epoch %d: %w", j, m.now[j].Epoch, why)
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

// notice tells the log, once, which planes have gone out of service and which are back.
func (m *Machine) notice(in planeset.Set, why error) {
	all, planes := m.cfg.Site.All(), m.cfg.Site.Planes
	out := all &^ in
	for j := range (out &^ m.out).Each() {
		reason := why
		if _, _, err := m.view.State(j); err != nil {
			reason = err
		}
		if reason == nil { // an operator took it, which is no failure of a holder
			reason = errors.New(m.view.Waiting(j))
		}
		m.act(Action{Kind: Warn, Text: fmt.Sprintf("plane %s is out of service (%v); going on with %d of %d planes",
			planes[j].Name, reason, in.Len(), all.Len())})
	}
	for j := range (m.out &^ out).Each() {
		m.act(Action{Kind: Warn, Text: fmt.Sprintf("plane %s is back in service; going on with %d of %d planes",
			planes[j].Name, in.Len(), all.Len())})
	}
	if in == 0 && m.out != out {
		m.act(Action{Kind: Warn, Text: "no plane with circuits is in service; going on with packet planes"})
	}
	m.out = out
}

// TimedOut returns the error of a plane that does not get where it is awaited.
func TimedOut(waiting string) error { return fmt.Errorf("%s: %w", waiting, errdefs.ErrTimeout) }
