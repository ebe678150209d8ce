package file

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// linger is the longest time that a change stays unwritten if no caller waits for it.
const linger = 20 * time.Millisecond

// rule is a [journal.Leadership]. One goroutine commits all pending changes in one transaction.
type rule struct {
	s      *Store
	db     *bbolt.DB
	token  uint64
	last   uint64            // number of the newest event of earlier rules
	loaded map[string][]byte // states of planes by key, until Recovered

	once  sync.Once
	why   error // set before done is closed
	done  chan struct{}
	ended sync.WaitGroup
	wake  chan struct{}
	slow  journal.Slow

	mu      sync.Mutex
	planes  []journal.State // nil until Recovered
	dirty   []bool          // by plane
	seq     journal.Sequence
	events  []controller.Event
	lost    int           // events dropped since the last Lost event
	waiting []func(error) // callers that the next commit answers
	writing bool
}

var _ journal.Leadership = (*rule)(nil)

func newRule(s *Store, db *bbolt.DB) *rule {
	return &rule{
		s: s, db: db, loaded: make(map[string][]byte), done: make(chan struct{}), wake: make(chan struct{}, 1),
		slow: journal.Slow{Log: s.conf.Logger},
	}
}

func (r *rule) Token() uint64 { return r.token }

func (r *rule) LastSeq() uint64 { return r.last }

func (r *rule) Done() <-chan struct{} { return r.done }

func (r *rule) Err() error {
	select {
	case <-r.done:
		return r.why
	default:
		return nil
	}
}

// lose ends the rule; the first reason counts.
func (r *rule) lose(why error) {
	r.once.Do(func() {
		r.why = why
		close(r.done)
	})
}

// Recovered implements [journal.Leadership].
func (r *rule) Recovered(ports, planes int) ([]controller.Recovered, error) {
	states := make([]journal.State, planes)
	at := make([]controller.Recovered, planes)
	for key, value := range r.loaded {
		j, s, err := journal.DecodePlane(key, value)
		if err == nil {
			err = s.Fits(key, j, ports, planes)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.s.Path(), err)
		}
		states[j], at[j] = s, s.Recovered()
	}
	if len(r.loaded) == 0 {
		at = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.planes, r.dirty = states, make([]bool, planes)
	return at, nil
}

// Baseline implements [journal.Leadership].
func (r *rule) Baseline(at []controller.Recovered) {
	r.mu.Lock()
	for j := range r.planes {
		if r.Err() == nil && j < len(at) && r.planes[j].Baseline(at[j]) {
			r.dirty[j] = true
		}
	}
	r.mu.Unlock()
	r.notify()
}

// Intend implements [controller.Journal].
func (r *rule) Intend(i controller.Intent, done func(error)) {
	if err := r.intend(i, done); err != nil {
		done(err)
	}
}

func (r *rule) intend(i controller.Intent, done func(error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.Err(); err != nil {
		return err
	}
	if i.Plane < 0 || i.Plane >= len(r.planes) {
		return fmt.Errorf("journal: an intent for plane %d of %d that were recovered", i.Plane, len(r.planes))
	}
	r.planes[i.Plane].Intend(i)
	r.dirty[i.Plane] = true
	r.waiting = append(r.waiting, done)
	r.notify()
	return nil
}

// Record implements [controller.Journal]. It stores the state of the plane even if it drops the event.
func (r *rule) Record(e controller.Event, done func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.Err(); err != nil {
		if done != nil {
			done(err)
		}
		return
	}
	if e.Plane >= 0 && e.Plane < len(r.planes) && r.planes[e.Plane].Apply(&e) {
		r.dirty[e.Plane] = true
	}
	if r.lost > 0 && len(r.events) < r.s.conf.Queue {
		r.addLost()
	}
	if len(r.events) >= r.s.conf.Queue {
		r.lost++
	} else {
		r.seq.Number(&e)
		r.events = append(r.events, e)
	}
	if done != nil {
		r.waiting = append(r.waiting, done)
	}
	r.notify()
}

// addLost adds a Lost event for the dropped events. The caller holds r.mu.
func (r *rule) addLost() {
	e := controller.Event{
		Time: time.Now(), Kind: controller.Lost, Plane: -1, Port: -1,
		Err: fmt.Sprintf("%d events came faster than the journal could write them", r.lost),
	}
	r.seq.Number(&e)
	r.events, r.lost = append(r.events, e), 0
}

func (r *rule) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run commits until the rule ends. Then it calls the remaining callbacks with the reason.
func (r *rule) run() {
	for r.Err() == nil {
		select {
		case <-r.done:
		case <-r.wake:
			r.gather()
			r.commit()
		}
	}
	r.mu.Lock()
	left := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, done := range left {
		done(r.why)
	}
}

// gather waits for more to write: until a caller waits for an answer, linger has passed or the rule ends.
func (r *rule) gather() {
	lazy := time.NewTimer(linger)
	defer lazy.Stop()
	for {
		r.mu.Lock()
		urgent := len(r.waiting) > 0
		r.mu.Unlock()
		if urgent {
			return
		}
		select {
		case <-r.wake:
		case <-lazy.C:
			return
		case <-r.done:
			return
		}
	}
}

// batch holds the writes of one transaction.
type batch struct {
	planes  map[int][]byte
	events  []controller.Event
	waiting []func(error)
}

// commit writes all pending changes in one transaction. If that fails, the states of the planes stay pending.
func (r *rule) commit() {
	b, err := r.take()
	if err == nil && len(b.planes)+len(b.events) > 0 {
		began, end := time.Now(), r.slow.Begin()
		err = r.db.Update(func(tx *bbolt.Tx) error { return r.write(tx, b) })
		end(err)
		r.s.conf.OnWrite(time.Since(began), err)
	}
	if err != nil {
		err = fmt.Errorf("journal: %s: %w", r.s.Path(), err)
		r.putBack(b)
	}
	r.mu.Lock()
	r.writing = false
	r.mu.Unlock()
	for _, done := range b.waiting {
		done(err)
	}
}

func (r *rule) take() (b batch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = true
	if r.lost > 0 { // in this batch, since it answers the callers whose events were dropped
		r.addLost()
	}
	b = batch{planes: make(map[int][]byte), events: r.events, waiting: r.waiting}
	r.events, r.waiting = nil, nil
	for j := range r.planes {
		if !r.dirty[j] {
			continue
		}
		r.dirty[j] = false
		by := journal.Author{Name: r.s.conf.Name, Token: r.token}
		if b.planes[j], err = journal.EncodePlane(j, &r.planes[j], by); err != nil {
			return b, err
		}
	}
	return b, nil
}

// putBack marks the states of a failed batch as pending again, and counts its events as lost.
func (r *rule) putBack(b batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j := range b.planes {
		r.dirty[j] = true
	}
	r.lost += len(b.events)
}

// write puts a batch into a transaction, and deletes all but the newest Config.History events.
func (r *rule) write(tx *bbolt.Tx, b batch) error {
	planes, history := tx.Bucket(planesBucket), tx.Bucket(historyBucket)
	for j, value := range b.planes {
		if err := planes.Put([]byte(journal.PlaneKey(j)), value); err != nil {
			return err
		}
	}
	for i := range b.events {
		value, err := json.Marshal(&b.events[i])
		if err != nil {
			return fmt.Errorf("event %d: %w", b.events[i].Seq, err)
		}
		if err := history.Put(number(b.events[i].Seq), value); err != nil {
			return err
		}
	}
	if len(b.events) == 0 {
		return nil
	}
	newest := b.events[len(b.events)-1].Seq
	c := history.Cursor()
	for k, _ := c.First(); k != nil && binary.BigEndian.Uint64(k)+uint64(r.s.conf.History) <= newest; k, _ = c.First() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}

// Resign ends the rule once everything is written, and lets the next controller start at once.
func (r *rule) Resign(ctx context.Context) error {
	for r.Err() == nil && ctx.Err() == nil && r.pending() {
		r.notify()
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	r.lose(fmt.Errorf("journal: %s has resigned: %w", r.s.conf.Name, controller.ErrNotLeader))
	r.ended.Wait()
	return r.s.release(r)
}

func (r *rule) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dirty := range r.dirty {
		if dirty {
			return true
		}
	}
	return r.writing || len(r.events)+len(r.waiting) > 0 || r.lost > 0
}
