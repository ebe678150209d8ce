package device

import "time"

// EventKind is the kind of an event.
type EventKind int

// The kinds of events.
const (
	Made    EventKind = iota // a circuit is in the table and begins to tune
	Settled                  // a circuit is Tuned or Failed
	Broken                   // a circuit has left the table; its light is off
	Refused                  // a request was refused
	Injected
	Rebooted // the switch went down: its sessions end
	Started  // the switch is up again
)

// String returns the word used in logs.
func (k EventKind) String() string {
	return word([]string{"made", "settled", "broken", "refused", "injected", "rebooted", "started"}, int(k))
}

// Event is an entry of the log.
type Event struct {
	At      time.Duration // since New
	Kind    EventKind
	In, Out int       // of the circuit, else -1
	State   PortState // of the circuit now
	Note    string    // the fault or other cause, if no request caused the event
}

// maxLog bounds the log, which drops the oldest entries.
const maxLog = 1 << 16

// outbox holds the events, and the watchers to call.
type outbox struct {
	log        []Event
	queue      []Event // not yet given to watchers
	watchers   map[int]func(Event)
	watcherID  int
	delivering bool
	changed    chan struct{}
}

// Log returns the events so far, oldest first.
func (d *Device) Log() []Event {
	d.lock()
	defer d.unlock()
	return append([]Event(nil), d.log...)
}

// Changed returns a channel that is closed at the next event. Take it before reading the state.
func (d *Device) Changed() <-chan struct{} {
	d.lock()
	defer d.unlock()
	return d.changed
}

// Watch calls f with every later event, in order, one call at a time, until cancel. f may call the device, but must not
// block.
func (d *Device) Watch(f func(Event)) (cancel func()) {
	d.lock()
	defer d.unlock()
	if d.watchers == nil {
		d.watchers = make(map[int]func(Event))
	}
	id := d.watcherID
	d.watcherID++
	d.watchers[id] = f
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watchers, id)
	}
}

// emit records an event; the caller holds the lock.
func (d *Device) emit(at time.Time, e Event) {
	e.At = at.Sub(d.start)
	if len(d.log) == maxLog {
		d.log = append(d.log[:0], d.log[maxLog/2:]...)
	}
	d.log = append(d.log, e)
	d.queue = append(d.queue, e)
}

// lock takes the lock and updates the state to the present time.
func (d *Device) lock() {
	d.mu.Lock()
	d.advance(d.cfg.Now())
}

// unlock releases the lock and passes new events to the watchers. If a call of watchers is in progress, in another
// goroutine or further up this stack, that call passes them on, in order.
func (d *Device) unlock() {
	if len(d.queue) > 0 {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	if d.delivering {
		d.mu.Unlock()
		return
	}
	d.delivering = true
	told := len(d.queue) > 0
	for len(d.queue) > 0 {
		queue := d.queue
		d.queue = nil
		all := make([]func(Event), 0, len(d.watchers))
		for id := range d.watcherID {
			if f, ok := d.watchers[id]; ok {
				all = append(all, f)
			}
		}
		d.mu.Unlock()
		for _, e := range queue {
			for _, f := range all {
				f(e)
			}
		}
		d.mu.Lock()
	}
	if told {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	d.delivering = false
	d.mu.Unlock()
}

// told reports whether the watchers have got all events. Otherwise Changed fires again when they have.
func (d *Device) told() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.delivering && len(d.queue) == 0
}
