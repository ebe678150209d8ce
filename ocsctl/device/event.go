package device

import "time"

// EventKind says what happened.
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
	Note    string    // the fault, or who did it if not a request
}

// maxLog bounds the log: the oldest entries go.
const maxLog = 1 << 16

// outbox is what happened and who wants to know.
type outbox struct {
	log        []Event
	queue      []Event // not yet given to watchers
	watchers   map[int]func(Event)
	watcherID  int
	delivering bool
	changed    chan struct{}
}

// Log returns what happened so far, oldest first.
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

// Watch has f called with every event from now on, in order, one call at a time, until cancel. f may
// call the device, and must not block.
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

// lock takes the lock and brings the state up to now.
func (d *Device) lock() {
	d.mu.Lock()
	d.advance(d.cfg.Now())
}

// unlock releases the lock and gives new events to the watchers. Where one of them is being called
// already, in another goroutine or further up this stack, that call does it, which keeps the order.
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

// told reports whether watchers have been told of everything; when they have, Changed fires again.
func (d *Device) told() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.delivering && len(d.queue) == 0
}
