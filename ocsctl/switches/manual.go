package switches

import (
	"context"
	"slices"
	"time"

	"lightpath/internal/clock"
)

// Manual is a device without goroutine or timer, for simulations. It does what a Device does, in the steps of a
// [clock.Task] per switch. One goroutine uses it. Each switch must wait with package clock alone.
type Manual struct {
	*Device
	tasks   []*clock.Task
	looking int // switches whose first read has not ended
}

// NewManual returns a device that has not connected to its switches. now is its clock. The caller must call Close,
// but not within a step.
func NewManual(c Config, now func() time.Time) (*Manual, error) {
	d, err := newDevice(c)
	if err != nil {
		return nil, err
	}
	m := &Manual{Device: d, looking: len(d.units)}
	d.start = func(f func(ctx context.Context)) (stop func()) {
		task := clock.NewTask(now, f)
		m.tasks = append(m.tasks, task)
		return func() {
			task.Stop()
			m.tasks = slices.DeleteFunc(m.tasks, func(t *clock.Task) bool { return t == task })
		}
	}
	for _, u := range d.units {
		d.stops = append(d.stops, d.start(func(ctx context.Context) { u.run(ctx, func() { m.looking-- }) }))
	}
	return m, nil
}

// Ready reports whether each switch has been read once: New returns then.
func (m *Manual) Ready() bool { return m.looking == 0 }

// Step does all that is due, and returns the time of the next call. After a call of Switch or Verify, and after an
// answer of a switch, the next call is due at once.
func (m *Manual) Step() (next time.Time) {
	for again := true; again; {
		again = false
		for i := 0; i < len(m.tasks); i++ { // tasks may begin and end other tasks
			if m.tasks[i].Due() {
				m.tasks[i].Step()
				again = true
			}
		}
	}
	for _, t := range m.tasks {
		if at, ok := t.Until(); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
