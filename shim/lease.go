package shim

import (
	"errors"
	"fmt"
	"time"

	"lightpath/ocsctl"
	"lightpath/shim/errdefs"
	"lightpath/shim/planeset"
)

// secure sees to it that this communicator has been granted the planes in service: what it
// holds from the operation before, or all there are. Between two operations nothing is lost
// with a plane, so one that has failed is left out; none at all is no error either.
func (a *arbiter) secure() error {
	for j := range a.held.Each() {
		if _, err := a.o.at.Poll(j); err != nil {
			if err := a.drop(j, err); err != nil {
				return err
			}
		}
	}
	if !a.current() {
		a.o.reload(a.held)
		a.moved = a.held
	}
	if a.held != 0 && time.Since(a.since) > maxHold {
		if err := a.release(true); err != nil {
			return err
		}
	}
	if a.held != 0 {
		return nil
	}
	return a.acquire()
}

// current reports whether no plane that is held has an epoch beyond what this communicator's
// operations have asked for: one of a controller that has taken over, and does not know exactly
// where the one before was.
func (a *arbiter) current() bool {
	for j := range a.held.Each() {
		if int32(a.o.at.State(j).Epoch-a.o.now[j].epoch) > 0 {
			return false
		}
	}
	return true
}

// acquire obtains the planes of the fabric that are in service.
func (a *arbiter) acquire() error {
	mask, err := a.o.at.Acquire(uint64(a.o.All()), a.o.c.ID)
	switch {
	case errors.Is(err, ocsctl.ErrPlaneDown):
		a.notice(0, err)
		return nil
	case err != nil:
		return fmt.Errorf("shim: planes for communicator %#x: %w", a.o.c.ID, err)
	}
	a.held, a.since = planeset.Set(mask), time.Now()
	select {
	case <-a.l.stop:
		// The leader ended meanwhile and will not come back for what it holds.
		a.close()
		return errdefs.ErrDestroyed
	default:
	}
	if half := a.held &^ a.held.Usable(a.o.Template.Circuits); half != 0 {
		a.held &^= half
		if err := a.o.at.Release(uint64(half), a.o.c.ID); err != nil {
			return err
		}
	}
	a.notice(a.held, nil)
	a.o.reload(a.held)
	a.moved = a.held
	return a.vacate()
}

// outOfService reports whether an error says no more than that a plane does not serve: it
// has cost no bytes, and is nobody's mistake.
func outOfService(err error) bool {
	for _, is := range []error{ocsctl.ErrPlaneDown, ocsctl.ErrReconfFailed, ocsctl.ErrUnknownMap, ocsctl.ErrPortLost} {
		if errors.Is(err, is) {
			return !errors.Is(err, ocsctl.ErrFramesLost) && !errors.Is(err, ocsctl.ErrControlLost)
		}
	}
	return false
}

// drop gives back a plane that has failed while no operation was under way.
func (a *arbiter) drop(j int, why error) error {
	if !outOfService(why) {
		return fmt.Errorf("shim: plane %d epoch %d: %w", j, a.o.now[j].epoch, why)
	}
	rest := (a.held.Without(j)).Usable(a.o.Template.Circuits)
	gone := a.held &^ rest
	a.held = rest
	a.notice(rest, why)
	return a.o.at.Release(uint64(gone), a.o.c.ID)
}

// notice tells the log, once, which planes have gone out of service and which are back.
func (a *arbiter) notice(in planeset.Set, why error) {
	log, all := a.o.c.Log, a.o.All()
	out := all &^ in
	for j := range (out &^ a.out).Each() {
		reason := why
		if _, err := a.o.at.Poll(j); err != nil {
			reason = err
		}
		if reason == nil { // an operator's doing, which concerns nobody who holds it
			reason = errors.New(a.o.at.Waiting(j))
		}
		log.Warn("plane %s is out of service (%v); going on with %d of %d planes", a.o.Planes[j].Name, reason, in.Len(), all.Len())
	}
	for j := range (a.out &^ out).Each() {
		log.Warn("plane %s is back in service; going on with %d of %d planes", a.o.Planes[j].Name, in.Len(), all.Len())
	}
	if in == 0 && a.out != out {
		log.Warn("no plane with circuits is in service; going on with packet planes")
	}
	a.out = out
}

// release gives the planes back once they are where the last operation leaves them. With
// wait it waits for that, else it tries again later.
func (a *arbiter) release(wait bool) error {
	for j := range a.held.Each() {
		reached, err := a.o.reached(j)
		if err == nil && !reached {
			if !wait {
				a.idle.Reset(idleHold)
				return nil
			}
			err = a.await(j)
			if failed := a.o.c.AsyncError(); failed != nil {
				return failed
			}
		}
		if err != nil {
			if err := a.drop(j, err); err != nil {
				return err
			}
		}
	}
	held := a.held
	if held == 0 {
		return nil
	}
	a.held = 0
	return a.o.at.Release(uint64(held), a.o.c.ID)
}

// await waits until a plane is where the last operation leaves it.
func (a *arbiter) await(j int) error {
	for deadline := time.Now().Add(a.o.c.Cfg.Timeout); ; time.Sleep(50 * time.Microsecond) {
		if err := a.o.c.AsyncError(); err != nil {
			return err
		}
		reached, err := a.o.reached(j)
		switch {
		case err != nil || reached:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%s: %w", a.o.at.Waiting(j), errdefs.ErrTimeout)
		}
	}
}

// close gives the planes back for good.
func (a *arbiter) close() {
	a.idle.Stop()
	a.cancel()
	if a.held != 0 {
		// A switch that is gone holds nothing.
		_ = a.o.at.Release(uint64(a.held), a.o.c.ID)
		a.held = 0
	}
}
