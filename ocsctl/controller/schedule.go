package controller

import (
	"fmt"
	"slices"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// maxTimers is how many moves of a plane may be scheduled at one time.
const maxTimers = 4096

// timer is a scheduled move: one of the time-based barrier.
type timer struct {
	epoch  uint32
	target circuit.Permutation
	at     int64
}

// timer returns the scheduled move of an epoch; nil: none.
func (pl *plane) timer(epoch uint32) *timer {
	for i := range pl.timers {
		if pl.timers[i].epoch == epoch {
			return &pl.timers[i]
		}
	}
	return nil
}

// schedule adds a scheduled move. A bad request is an error; if the move fails later, the plane fails.
func (m *machine) schedule(a *attachment, plane int, t timer, now int64) error {
	pl := m.planes[plane]
	where := fmt.Sprintf("controller: port %d: schedule of plane %d epoch %d", a.port, plane, t.epoch)
	if err := m.mayMove(pl, a, m.lease.held[plane].holder, t.target, true); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	switch {
	case pl.fault != nil:
		return fmt.Errorf("%s: %w", where, pl.fault)
	case int32(t.epoch-pl.epoch) < 0:
		return fmt.Errorf("%s: plane is at %d: %w", where, pl.epoch, ocsctl.ErrStaleEpoch)
	case t.epoch-pl.epoch > maxAhead || len(pl.timers) >= maxTimers:
		return fmt.Errorf("%s: too far ahead of %d: %w", where, pl.epoch, ocsctl.ErrStaleEpoch)
	}
	if have := pl.timer(t.epoch); have != nil {
		if !have.target.Equal(t.target) {
			return fmt.Errorf("%s: another map is scheduled: %w", where, ocsctl.ErrConflict)
		}
		return nil
	}
	if r := pl.barrier.rounds[roundKey{t.epoch, m.lease.held[plane].holder}]; r != nil && !r.target.Equal(t.target) {
		return fmt.Errorf("%s: port %d posted another map: %w", where, r.first, ocsctl.ErrConflict)
	}
	pl.timers = append(pl.timers, t)
	slices.SortFunc(pl.timers, func(x, y timer) int { return int(int32(x.epoch - y.epoch)) })
	m.runTimers(pl, now)
	return nil
}

// runTimers starts the next scheduled move if it is due, and returns the time of the next call.
func (m *machine) runTimers(pl *plane, now int64) (next int64) {
	if m.over != nil || pl.fault != nil || len(pl.timers) == 0 {
		return never
	}
	t := pl.timers[0]
	if pl.move.on {
		if t.at <= now {
			m.failf(pl, now, "a move was due at epoch %d while the one before is under way: %w",
				t.epoch, ocsctl.ErrReconfFailed)
			return never
		}
		return t.at
	}
	if t.epoch != pl.epoch {
		return never // posts move the plane to that epoch
	}
	if !m.ready(pl, t.target, now) {
		return never
	}
	if t.at > now {
		return t.at
	}
	if !pl.intent.durable {
		return never // intended calls again
	}
	pl.timers = slices.Delete(pl.timers, 0, 1)
	m.begin(pl, t.target, 0, nil, now)
	return now
}
