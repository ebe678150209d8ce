package protocols

import (
	"context"
	"time"

	"lightpath/internal/clock"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// observe calls changed whenever circuits or light have changed, at that time. at calls a function at a time.
func (s *opticalSwitch) observe(at func(t int64, f func()), changed func()) {
	var next int64 // of the call that has been ordered
	var order func()
	order = func() {
		if due := s.model.Due(); !due.IsZero() && due.UnixNano() != next {
			next = due.UnixNano()
			at(next, order) // Due brings the model up to date, which calls the watcher
		}
	}
	s.model.Watch(func(device.Event) {
		changed()
		order()
	})
}

// table returns the circuits of the first plane that the switch has made or is making.
func (s *opticalSwitch) table() circuit.Permutation { return s.part(s.model.Map(), 0) }

// newDirect returns a task that sets all circuits of a switch without a controller, as an operator's command does. It
// calls done with the outcome.
func newDirect(s *opticalSwitch, now func() int64, dial func(s *opticalSwitch) wire, to circuit.Permutation,
	token uint64, done func(error)) *clock.Task {
	return clock.NewTask(func() time.Time { return time.Unix(0, now()) }, func(ctx context.Context) {
		session := driver.NewSession(&link{s: s, dial: dial}, len(to), driver.Rule{})
		_, err := session.Look(ctx)
		if err == nil {
			c := driver.Change{Before: session.Table(), After: to, Token: token, Want: driver.Light}
			_, err = session.Set(ctx, c, nil)
		}
		done(err)
	})
}
