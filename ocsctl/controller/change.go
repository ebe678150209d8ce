package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// Change sets the maps of planes together: all of them, or none.
type Change struct {
	Planes []PlaneChange
	// DryRun: only check whether the change would be refused now.
	DryRun bool
	// ConfirmWithin: the controller undoes the change after this time, unless an operator confirms it. 0: it stays.
	ConfirmWithin time.Duration
}

// PlaneChange is a plane's part of a [Change].
type PlaneChange struct {
	Plane     int
	Target    circuit.Permutation
	IfCurrent circuit.Permutation // the map that the plane must have; nil: any
}

// Trial is a change that waits for its confirmation.
type Trial struct {
	Planes []int     `json:"planes"` // of the change
	Until  time.Time `json:"until"`
	Who    string    `json:"who"`
	// Before and After are the maps of the plane before and after the change. Snapshots do not have them.
	Before circuit.Permutation `json:"before,omitempty"`
	After  circuit.Permutation `json:"after,omitempty"`
}

// Errors of changes.
var (
	// ErrNotCurrent: the plane does not have the map that the change starts from.
	ErrNotCurrent = errors.New("the plane has another map")
	// ErrUndone: a part of the change failed, and the controller has undone the others.
	ErrUndone = errors.New("the other planes have their maps of before")
	// ErrNoTrial: there is no change to confirm. It was confirmed or undone, or the plane was set again.
	ErrNoTrial = errors.New("no change waits for a confirmation")
)

// Bounds of Change.ConfirmWithin.
const (
	minTrial = time.Second
	maxTrial = 24 * time.Hour
)

// retryUndo is the pause before the next attempt to undo a change of a plane that is in use.
const retryUndo = time.Second

// Change implements Controller.
func (c *Core) Change(change Change, who string) error {
	return c.await(func(done func(error)) error { return c.BeginChange(change, who, done) })
}

// BeginChange is Change, without waiting: the core calls done once with the result, from its goroutine. done must not
// block. If BeginChange returns an error, the core does not call done.
func (c *Core) BeginChange(change Change, who string, done func(error)) error {
	if err := c.checkChange(&change); err != nil {
		return fmt.Errorf("controller: change: %w", err)
	}
	change.Planes = slices.Clone(change.Planes)
	return c.do(func(now int64) { c.machine.change(&change, who, done, now) })
}

// Confirm implements Controller.
func (c *Core) Confirm(plane int, who string) error {
	if err := c.checkPlane(plane); err != nil {
		return fmt.Errorf("controller: confirm: %w", err)
	}
	return c.await(func(done func(error)) error {
		return c.do(func(now int64) { c.machine.confirmTrial(plane, who, done, now) })
	})
}

func (c *Core) checkChange(change *Change) error {
	if len(change.Planes) == 0 {
		return errors.New("no planes")
	}
	if w := change.ConfirmWithin; w != 0 && (w < minTrial || w > maxTrial) {
		return fmt.Errorf("confirm within %v, want %v..%v", w, minTrial, maxTrial)
	}
	seen := map[int]bool{}
	for i := range change.Planes {
		p := &change.Planes[i]
		if err := c.checkMap(p.Plane, p.Target); err != nil {
			return err
		}
		if p.IfCurrent != nil && len(p.IfCurrent) != c.cfg.Ports {
			return fmt.Errorf("%s: current map of %d ports, want %d", &c.cfg.Planes[p.Plane], len(p.IfCurrent), c.cfg.Ports)
		}
		if seen[p.Plane] {
			return fmt.Errorf("%s is named twice", &c.cfg.Planes[p.Plane])
		}
		seen[p.Plane] = true
	}
	return nil
}

// changeUnderWay is a change whose planes move.
type changeUnderWay struct {
	parts  []PlaneChange
	before []circuit.Permutation
	failed []error // by part; nil: it is set
	who    string
	done   func(error)
}

// change sets planes together. If it refuses one, it changes none.
func (m *machine) change(c *Change, who string, done func(error), now int64) {
	u := &changeUnderWay{parts: c.Planes, failed: make([]error, len(c.Planes)), who: who, done: done}
	numbers := make([]int, len(c.Planes))
	for i := range c.Planes {
		p := &c.Planes[i]
		pl := m.planes[p.Plane]
		observed, err := m.maySet(pl, p.Target)
		if err == nil && p.IfCurrent != nil && !observed.Equal(p.IfCurrent) {
			err = fmt.Errorf("%s: %w: %s", pl, ErrNotCurrent, mismatch(observed, p.IfCurrent))
		}
		if err != nil {
			done(fmt.Errorf("controller: %w", err))
			return
		}
		numbers[i] = p.Plane
		u.before = append(u.before, pl.wanted())
	}
	if c.DryRun {
		done(nil)
		return
	}
	until := m.wall(now).Add(c.ConfirmWithin) // one time names the change
	all := &gather{done: func([]error) { m.changed(u) }}
	last := all.add()
	for i := range c.Planes {
		set := all.add()
		o := &order{target: c.Planes[i].Target.Clone(), who: who, done: func(err error) {
			u.failed[i] = err
			set(nil)
		}}
		if c.ConfirmWithin > 0 {
			o.trial = &Trial{Planes: numbers, Until: until, Who: who, Before: u.before[i], After: o.target}
		}
		m.set(c.Planes[i].Plane, o, now)
	}
	last(nil)
}

// changed ends a change when all parts have ended. It undoes the change if a part has failed.
func (m *machine) changed(u *changeUnderWay) {
	failed := driver.OneLine(u.failed...)
	if failed == nil || m.over != nil || !slices.Contains(u.failed, nil) {
		u.done(failed)
		return
	}
	// The call comes from within the end of a move. Undo after it.
	m.later(func(now int64) { m.undo(u, failed, now) })
}

// undo gives the planes of a change that has failed their maps of before.
func (m *machine) undo(u *changeUnderWay, failed error, now int64) {
	all := &gather{done: func(wrong []error) {
		if len(wrong) > 0 {
			u.done(fmt.Errorf("%w; the controller could not undo the rest: %w", failed, driver.OneLine(wrong...)))
			return
		}
		u.done(fmt.Errorf("%w: %w", failed, ErrUndone))
	}}
	last := all.add()
	for i := range u.parts {
		if u.failed[i] == nil {
			m.set(u.parts[i].Plane, &order{target: u.before[i], who: "undo for " + u.who, done: all.add()}, now)
		}
	}
	last(nil)
}

// confirmTrial keeps the change that plane is a part of.
func (m *machine) confirmTrial(plane int, who string, done func(error), now int64) {
	t := m.planes[plane].trial
	if m.over != nil || t == nil {
		done(fmt.Errorf("controller: %s: %w", m.planes[plane], cmp.Or(m.over, ErrNoTrial)))
		return
	}
	all := &gather{done: func(failed []error) { done(driver.OneLine(failed...)) }}
	last := all.add()
	for _, j := range t.Planes {
		if pl := m.planes[j]; pl.trial != nil && pl.trial.Until.Equal(t.Until) {
			pl.trial = nil
			m.confirm(now, m.commanded(pl, "confirmed by "+who), all.add())
		}
	}
	last(nil)
}

// endTrials undoes changes that no operator has confirmed in time, and returns the time of the next one. It tries a
// plane that is in use, or whose switch or journal does not answer, again later. If ranks have moved the plane since,
// its circuits are theirs, and stay.
func (m *machine) endTrials(now int64) (next int64) {
	next = never
	for j, pl := range m.planes {
		t := pl.trial
		if t == nil {
			continue
		}
		due := max(now+int64(t.Until.Sub(m.wall(now))), pl.undoAt)
		if due > now {
			next = min(next, due)
			continue
		}
		busy := m.operable(pl)
		switch {
		case !t.After.Equal(pl.wanted()):
			pl.trial = nil
			m.event(now, m.commanded(pl, "not confirmed in time; ranks have moved the plane since, and their circuits stay"))
		case busy != nil:
			pl.undoAt = now + int64(retryUndo)
			next = min(next, pl.undoAt)
		default:
			pl.trial, pl.undoAt = nil, now+int64(retryUndo)
			next = min(next, pl.undoAt)
			m.set(j, &order{target: t.Before, who: "not confirmed in time: " + t.Who, done: func(err error) {
				if err != nil && t.After.Equal(pl.wanted()) { // no move has begun
					pl.trial = t
				}
			}}, now)
		}
	}
	return next
}

// commanded returns the event of an operator's order that leaves the map as it is.
func (m *machine) commanded(pl *plane, who string) Event {
	return Event{Kind: Commanded, Plane: pl.index, Epoch: pl.epoch, Port: -1, Who: who, Err: pl.off, Trial: pl.trial}
}
