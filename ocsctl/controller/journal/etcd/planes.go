package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// planeWriter keeps the states of the planes and writes those that have changed: at once, all in
// one transaction, when an intent waits, and otherwise some time later. While a transaction is
// under way, intents gather for the next one.
type planeWriter struct {
	l      *leadership
	loaded []planeRecord // until Recovered

	mu     sync.Mutex
	planes []planeSlot // nil until Recovered
	from   int         // the plane to begin the next transaction with
	wake   chan struct{}
}

// planeRecord is a value as it was found.
type planeRecord struct {
	key string
	stored
}

// planeSlot is one plane.
type planeSlot struct {
	state   journal.State
	mod     int64 // revision of what is stored
	dirty   bool
	writing bool
	urgent  bool          // what has changed should not linger
	waiting []func(error) // of intents and events that the next write makes durable
}

const (
	// linger is how long what nobody waits for may stay unwritten.
	linger = 20 * time.Millisecond
	// maxTxnBytes bounds the values of one transaction; etcd takes 1.5 MiB by default.
	maxTxnBytes = 1 << 19
	// maxTxnPlanes bounds its operations; etcd takes 128 by default.
	maxTxnPlanes = 64
	// flushPoll is how often a flush looks.
	flushPoll = 2 * time.Millisecond
)

func (w *planeWriter) begin(l *leadership) {
	w.l, w.wake = l, make(chan struct{}, 1)
}

func (w *planeWriter) load(ctx context.Context, c *Client) error {
	resp, err := c.etcd.Get(ctx, c.key(planesKey), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", c.key(planesKey), err)
	}
	for _, kv := range resp.Kvs {
		w.loaded = append(w.loaded, planeRecord{key: string(kv.Key), stored: stored{value: kv.Value, mod: kv.ModRevision}})
	}
	return nil
}

// Recovered implements [journal.Leadership].
func (l *leadership) Recovered(ports, planes int) ([]controller.Recovered, error) {
	w := &l.planes
	slots := make([]planeSlot, planes)
	at := make([]controller.Recovered, planes)
	for _, r := range w.loaded {
		j, s, err := journal.DecodePlane(r.key, r.value)
		if err == nil {
			err = s.Fits(r.key, j, ports, planes)
		}
		if err != nil {
			return nil, err
		}
		slots[j] = planeSlot{state: s, mod: r.mod}
		at[j] = s.Recovered()
	}
	if len(w.loaded) == 0 {
		at = nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.planes, w.loaded = slots, nil
	return at, nil
}

// Baseline implements [journal.Leadership].
func (l *leadership) Baseline(at []controller.Recovered) {
	w := &l.planes
	w.mu.Lock()
	for j := range w.planes {
		if j < len(at) && w.planes[j].state.Baseline(at[j]) {
			w.planes[j].dirty = true
		}
	}
	w.mu.Unlock()
	w.notify()
}

// Intend implements [controller.Journal].
func (l *leadership) Intend(i controller.Intent, done func(error)) {
	if err := l.planes.intend(i, done); err != nil {
		done(err)
	}
}

func (w *planeWriter) intend(i controller.Intent, done func(error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.l.Err(); err != nil {
		return err
	}
	if i.Plane < 0 || i.Plane >= len(w.planes) {
		return fmt.Errorf("etcd: an intent for plane %d of %d that were recovered", i.Plane, len(w.planes))
	}
	p := &w.planes[i.Plane]
	p.state.Intend(i)
	p.dirty = true
	p.waiting = append(p.waiting, done)
	w.notify()
	return nil
}

// apply takes an event; it is written with the next intent, or some time later. done, where it is not nil,
// is called when it is written.
func (w *planeWriter) apply(e *controller.Event, done func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Plane < 0 || e.Plane >= len(w.planes) {
		if done != nil {
			done(nil) // it changes no plane
		}
		return
	}
	p := &w.planes[e.Plane]
	if p.state.Apply(e) || done != nil {
		p.dirty = true
		// How far a plane that failed and is back may be from what is stored is a matter of time.
		p.urgent = p.urgent || e.Kind == controller.Failed || e.Kind == controller.Restored
		if done != nil {
			p.waiting = append(p.waiting, done)
		}
		w.notify()
	}
}

func (w *planeWriter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes until the rule ends, and then tells those who wait.
func (w *planeWriter) run() {
	for w.await() {
		for w.write() {
		}
	}
	w.mu.Lock()
	var left []func(error)
	for j := range w.planes {
		left = append(left, w.planes[j].waiting...)
		w.planes[j].waiting = nil
	}
	w.mu.Unlock()
	for _, done := range left {
		done(w.l.Err())
	}
}

// await returns when an intent waits, or something else for long enough; false: the rule has
// ended.
func (w *planeWriter) await() bool {
	select {
	case <-w.l.done:
		return false
	case <-w.wake:
	}
	lazy := time.NewTimer(linger)
	defer lazy.Stop()
	for !w.any(func(p *planeSlot) bool { return p.urgent || len(p.waiting) > 0 }) {
		select {
		case <-w.l.done:
			return false
		case <-lazy.C:
			return true
		case <-w.wake:
		}
	}
	return true
}

func (w *planeWriter) any(is func(*planeSlot) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for j := range w.planes {
		if is(&w.planes[j]) {
			return true
		}
	}
	return false
}

// write writes the planes that have changed, as many as one transaction takes, and reports
// whether there may be more to write.
func (w *planeWriter) write() (more bool) {
	taken := w.take()
	var puts []put
	var err error
	for bytes := 0; len(puts) < len(taken) && err == nil; {
		p := &taken[len(puts)]
		var value []byte
		if value, err = journal.EncodePlane(p.plane, &p.state, journal.Author{Name: w.l.me.Name, Token: w.l.token}); err != nil {
			break
		}
		if bytes += len(value); len(puts) > 0 && bytes > maxTxnBytes {
			w.putBack(taken[len(puts):])
			taken = taken[:len(puts)]
			break
		}
		puts = append(puts, put{key: w.l.c.key(journal.PlaneKey(p.plane)), value: string(value), mod: p.mod})
	}
	if len(taken) == 0 {
		return false
	}
	var at int64
	if err == nil {
		at, err = w.l.commit(puts)
	}
	w.settle(taken, at, err)
	for _, p := range taken {
		for _, done := range p.waiting {
			done(err)
		}
	}
	return err == nil
}

// takenSlot is a changed plane that is being written.
type takenSlot struct {
	plane int
	planeSlot
}

// take takes the planes that have changed, at most what one transaction may compare, and those
// first that an earlier one had no room for.
func (w *planeWriter) take() []takenSlot {
	w.mu.Lock()
	defer w.mu.Unlock()
	var taken []takenSlot
	for n := range w.planes {
		j := (w.from + n) % len(w.planes)
		if p := &w.planes[j]; p.dirty && len(taken) < maxTxnPlanes {
			taken = append(taken, takenSlot{plane: j, planeSlot: *p})
			p.dirty, p.writing, p.urgent, p.waiting = false, true, false, nil
		}
	}
	return taken
}

// putBack leaves what was taken to the next transaction.
func (w *planeWriter) putBack(taken []takenSlot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = taken[0].plane
	for _, t := range taken {
		p := &w.planes[t.plane]
		p.dirty, p.writing, p.waiting = true, false, append(t.waiting, p.waiting...)
	}
}

// settle notes what has become of a transaction. What was refused is tried again with the next
// intent, or the next change.
func (w *planeWriter) settle(taken []takenSlot, at int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range taken {
		p := &w.planes[t.plane]
		if err == nil {
			p.mod = at
		}
		p.dirty = p.dirty || err != nil
		p.writing = false
	}
}

// flush waits until everything is written, the rule ends, or ctx does.
func (w *planeWriter) flush(ctx context.Context) {
	w.notify()
	for ctx.Err() == nil && w.l.Err() == nil && w.any(func(p *planeSlot) bool { return p.dirty || p.writing }) {
		pause(ctx, flushPoll)
	}
}
