package controller

import (
	"slices"
	"sync"
)

// maxBehind is how many events a watcher may be behind before it loses the oldest.
const maxBehind = 4096

// watchers holds the receivers of events.
type watchers struct {
	mu     sync.Mutex
	all    []*watcher
	closed bool
}

// watcher passes events to f in its own goroutine, so that a slow receiver does not delay another.
type watcher struct {
	f      func(Event)
	kinds  []EventKind // nil: all
	mu     sync.Mutex
	queue  []Event // the oldest first
	more   chan struct{}
	cancel chan struct{}
	once   sync.Once
}

// Watch implements Controller.
func (c *Core) Watch(f func(Event)) (cancel func()) { return c.watchKinds(f) }

// watchKinds is Watch for events of some kinds; none named: all.
func (c *Core) watchKinds(f func(Event), kinds ...EventKind) (cancel func()) {
	w := &watcher{f: f, kinds: kinds, more: make(chan struct{}, 1), cancel: make(chan struct{})}
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	if c.watch.closed {
		return func() {}
	}
	c.watch.all = append(c.watch.all, w)
	go w.run()
	return func() {
		w.end()
		c.watch.mu.Lock()
		defer c.watch.mu.Unlock()
		c.watch.all = slices.DeleteFunc(c.watch.all, func(x *watcher) bool { return x == w })
	}
}

// record passes an event to the journal, then to the watchers; done may be nil.
func (c *Core) record(e Event, done func(error)) {
	if c.cfg.Journal != nil {
		c.cfg.Journal.Record(e, done)
	} else if done != nil {
		done(nil)
	}
	c.watch.mu.Lock()
	defer c.watch.mu.Unlock()
	for _, w := range c.watch.all {
		w.put(e)
	}
}

func (w *watcher) put(e Event) {
	if w.kinds != nil && !slices.Contains(w.kinds, e.Kind) {
		return
	}
	w.mu.Lock()
	if len(w.queue) >= maxBehind {
		w.queue = append(w.queue[:0], w.queue[1:]...)
	}
	w.queue = append(w.queue, e)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (w *watcher) run() {
	var batch []Event
	for {
		select {
		case <-w.more:
		case <-w.cancel:
			return
		}
		w.mu.Lock()
		batch, w.queue = w.queue, batch[:0]
		w.mu.Unlock()
		for _, e := range batch {
			select {
			case <-w.cancel:
				return
			default:
				w.f(e)
			}
		}
	}
}

func (w *watcher) end() { w.once.Do(func() { close(w.cancel) }) }

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, x := range w.all {
		x.end()
	}
	w.all = nil
}
