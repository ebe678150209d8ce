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

// planeWriter keeps the states of the planes, and writes the changed ones together in one transaction: at once if an
// intent waits, else after linger. Changes during a transaction go into the next one.
type planeWriter struct {
	l      *leadership
	loaded []planeRecord // until Recovered

	mu     sync.Mutex
	planes []planeSlot // nil until Recovered
	from   int         // first plane of the next transaction
	wake   chan struct{}
}

// planeRecord is the value of a plane that load has read.
type planeRecord struct {
	key string
	stored
}

// planeSlot is one plane.
type planeSlot struct {
	state   journal.State
	mod     int64 // revision of the stored value
	dirty   bool
	writing bool
	urgent  bool          // write it without linger
	waiting []func(error) // callbacks of intents and events in the next write
}

const (
	// linger is the longest time that a change stays unwritten if no caller waits for it.
	linger = 20 * time.Millisecond
	// maxTxnBytes bounds the values of one transaction; etcd accepts 1.5 MiB by default.
	maxTxnBytes = 1 << 19
	// maxTxnPlanes bounds the operations of one transaction; etcd accepts 128 by default.
	maxTxnPlanes = 64
	// flushPoll is the interval of a flush's checks.
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
		r := planeRecord{key: string(kv.Key), stored: stored{value: kv.Value, mod: kv.ModRevision}}
		w.loaded = append(w.loaded, r)
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

// apply updates the state of an event's plane. The state is written with the next intent, or later; then done, unless
// it is nil, is called.
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
		// The longer a failed or restored plane stays unwritten, the further its epoch may be from the stored one.
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

// run writes until the rule ends. Then it calls the remaining callbacks with the reason.
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

// await waits until a plane is urgent or has callbacks, or another change has waited for linger. It returns false when
// the rule has ended.
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

// write writes as many changed planes as fit into one transaction, and reports whether to call it again.
func (w *planeWriter) write() (more bool) {
	taken := w.take()
	author := journal.Author{Name: w.l.me.Name, Token: w.l.token}
	var puts []put
	var err error
	for bytes := 0; len(puts) < len(taken) && err == nil; {
		p := &taken[len(puts)]
		var value []byte
		if value, err = journal.EncodePlane(p.plane, &p.state, author); err != nil {
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

// takenSlot is a changed plane in the current transaction.
type takenSlot struct {
	plane int
	planeSlot
}

// take returns up to maxTxnPlanes changed planes. It starts with planes that did not fit into the last transaction.
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

// putBack returns taken planes to the next transaction.
func (w *planeWriter) putBack(taken []takenSlot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.from = taken[0].plane
	for _, t := range taken {
		p := &w.planes[t.plane]
		p.dirty, p.writing, p.waiting = true, false, append(t.waiting, p.waiting...)
	}
}

// settle records the result of a transaction. After an error, the next change or intent writes its planes again.
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

// flush waits until all changes are written, the rule has ended or ctx has ended.
func (w *planeWriter) flush(ctx context.Context) {
	w.notify()
	for ctx.Err() == nil && w.l.Err() == nil && w.any(func(p *planeSlot) bool { return p.dirty || p.writing }) {
		pause(ctx, flushPoll)
	}
}
