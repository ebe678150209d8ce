package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/ocsctl/controller"
)

const (
	// linger is the longest time that a change stays unwritten if no caller waits for it.
	linger = 20 * time.Millisecond
	// retryAfter is the pause after a write that the store has refused.
	retryAfter = time.Second
	// flushPoll is the interval of a flush's checks.
	flushPoll = 2 * time.Millisecond
)

// Pending holds the changes of a rule that its store has not written yet: states of planes, and events. It implements
// the part of [Leadership] that does not depend on the store. The store takes changes, writes them and settles them.
//
// While the queue of events is full, new ones are dropped and counted: a Lost event with their number takes their
// place.
type Pending struct {
	// Planes and Events hold an element after a change. A store that writes both together makes them one channel.
	Planes, Events chan struct{}

	err   func() error // see Leadership.Err
	by    Author
	queue int    // most events that wait
	last  uint64 // number of the newest event of earlier rules
	seq   uint64 // number of the newest event that was taken

	mu       sync.Mutex
	stored   map[string][]byte // states of planes by key, until Recovered
	slots    []slot            // by plane; nil until Recovered
	from     int               // plane at which the next batch begins
	events   []queued
	writing  int           // events that are taken and not settled
	lost     int           // events dropped since the last Lost event
	lostDone []func(error) // callbacks of dropped events, for the Lost event
	retry    *time.Timer   // nil: no write has failed
}

// slot is one plane.
type slot struct {
	state   State
	dirty   bool
	writing bool          // taken and not settled
	urgent  bool          // write it without linger
	waiting []func(error) // callbacks for the next write
}

// queued is an event; done may be nil.
type queued struct {
	controller.Event
	done func(error)
}

// NewPending returns the changes of a rule of by, after the event with number last. It keeps at most queue events. Err
// is the one of the rule; stored holds the states of planes by key, as earlier rules wrote them.
func NewPending(by Author, queue int, last uint64, stored map[string][]byte, err func() error) *Pending {
	p := &Pending{
		Planes: make(chan struct{}, 1), Events: make(chan struct{}, 1),
		err: err, by: by, queue: queue, last: last, seq: last, stored: stored,
	}
	return p
}

// Token implements [Leadership].
func (p *Pending) Token() uint64 { return p.by.Token }

// LastSeq implements [Leadership].
func (p *Pending) LastSeq() uint64 { return p.last }

// Recovered implements [Leadership].
func (p *Pending) Recovered(ports, planes int) ([]controller.Recovered, error) {
	slots := make([]slot, planes)
	at := make([]controller.Recovered, planes)
	for key, value := range p.stored {
		j, s, err := DecodePlane(key, value)
		if err == nil {
			err = s.Fits(key, j, ports, planes)
		}
		if err != nil {
			return nil, err
		}
		slots[j].state, at[j] = s, s.Next()
	}
	if len(p.stored) == 0 {
		at = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots, p.stored = slots, nil
	return at, nil
}

// Baseline implements [Leadership].
func (p *Pending) Baseline(at []controller.Recovered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err() != nil {
		return
	}
	for j := range p.slots[:min(len(p.slots), len(at))] {
		if p.slots[j].state.Baseline(at[j]) {
			p.slots[j].dirty = true
		}
	}
	notify(p.Planes)
}

// Intend implements [controller.Journal].
func (p *Pending) Intend(i controller.Intent, done func(error)) {
	if err := p.intend(i, done); err != nil {
		done(err)
	}
}

func (p *Pending) intend(i controller.Intent, done func(error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.err(); err != nil {
		return err
	}
	if i.Plane < 0 || i.Plane >= len(p.slots) {
		return fmt.Errorf("journal: an intent for plane %d of %d that were recovered", i.Plane, len(p.slots))
	}
	s := &p.slots[i.Plane]
	s.state.Intend(i)
	s.dirty = true
	s.waiting = append(s.waiting, done)
	notify(p.Planes)
	return nil
}

// Record implements [controller.Journal]. It keeps the state of the plane even if it drops the event.
func (p *Pending) Record(e controller.Event, done func(error)) {
	if err := p.record(e, done); err != nil && done != nil {
		done(err)
	}
}

func (p *Pending) record(e controller.Event, done func(error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.err(); err != nil {
		return err
	}
	if e.Plane >= 0 && e.Plane < len(p.slots) {
		s := &p.slots[e.Plane]
		if s.state.Apply(&e) || done != nil {
			s.dirty = true
			// The longer a failed or restored plane stays unwritten, the further its epoch may be from the stored one.
			s.urgent = s.urgent || e.Kind == controller.Failed || e.Kind == controller.Restored
			if done != nil {
				done = afterBoth(done)
				s.waiting = append(s.waiting, done)
			}
			notify(p.Planes)
		}
	}
	p.queueLost()
	if p.lost > 0 || p.full() {
		p.lost++
		if done != nil {
			p.lostDone = append(p.lostDone, done)
		}
		return nil
	}
	p.events = append(p.events, queued{e, done})
	notify(p.Events)
	return nil
}

// afterBoth returns a callback for the two writes of an event, of its plane and of the history. It calls done after
// the second, or at the first error.
func afterBoth(done func(error)) func(error) {
	var left atomic.Int32
	var once sync.Once
	left.Store(2)
	return func(err error) {
		if left.Add(-1) == 0 || err != nil {
			once.Do(func() { done(err) })
		}
	}
}

// full reports whether the queue has no room. The caller holds p.mu.
func (p *Pending) full() bool { return len(p.events)+p.writing >= p.queue }

// queueLost queues a Lost event for the dropped events if the queue has room. The caller holds p.mu.
func (p *Pending) queueLost() {
	if p.lost == 0 || p.full() {
		return
	}
	e := queued{Event: controller.Event{
		Time: time.Now(), Kind: controller.Lost, Plane: -1, Port: -1,
		Err: fmt.Sprintf("the journal was too slow for %d events, or refused them", p.lost),
	}}
	if dropped := p.lostDone; len(dropped) > 0 {
		e.done = func(err error) { answer(dropped, err) }
	}
	p.events = append(p.events, e)
	p.lost, p.lostDone = 0, nil
}

// PlaneWrite is the encoded state of a plane, to be written.
type PlaneWrite struct {
	Plane   int
	Value   []byte
	waiting []func(error)
}

// EventWrite is an encoded event, to be written.
type EventWrite struct {
	Seq  uint64
	Text json.RawMessage
	done func(error)
}

// TakePlanes returns changed planes: at most most, and no more than fit into bytes, but one at least. The next batch
// begins with the others. The caller settles what it gets, with an error too.
func (p *Pending) TakePlanes(most, bytes int) (taken []PlaneWrite, err error) {
	for len(taken) < most && err == nil {
		j, s := p.takePlane()
		if s == nil {
			break
		}
		w := PlaneWrite{Plane: j, waiting: s.waiting}
		w.Value, err = EncodePlane(j, &s.state, p.by)
		if bytes -= len(w.Value); bytes < 0 && len(taken) > 0 {
			p.putBack(w)
			break
		}
		taken = append(taken, w)
	}
	return taken, err
}

// takePlane returns the next changed plane; nil if there is none.
func (p *Pending) takePlane() (int, *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.slots {
		j := (p.from + n) % len(p.slots)
		if s := &p.slots[j]; s.dirty && !s.writing {
			taken := *s
			s.dirty, s.writing, s.urgent, s.waiting = false, true, false, nil
			p.from = j + 1
			return j, &taken
		}
	}
	return 0, nil
}

// putBack returns a plane to the next batch.
func (p *Pending) putBack(w PlaneWrite) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.slots[w.Plane]
	s.dirty, s.writing, s.waiting = true, false, append(w.waiting, s.waiting...)
	p.from = w.Plane
}

// SettlePlanes answers the callers that wait for planes. After an error, the next batch has the planes again.
func (p *Pending) SettlePlanes(taken []PlaneWrite, err error) {
	p.mu.Lock()
	for _, w := range taken {
		s := &p.slots[w.Plane]
		s.dirty, s.writing = s.dirty || err != nil, false
	}
	p.again(err)
	p.mu.Unlock()
	for _, w := range taken {
		answer(w.waiting, err)
	}
}

// TakeEvents numbers and returns the oldest events: at most most, and no more than fit into bytes, but one at least.
// The caller settles what it gets, with an error too. TakeEvents is for one goroutine at a time.
func (p *Pending) TakeEvents(most, bytes int) (taken []EventWrite, err error) {
	p.mu.Lock()
	p.queueLost()
	events := slices.Clone(p.events[:min(len(p.events), most)])
	p.mu.Unlock()
	for i := range events {
		e := &events[i]
		before := p.seq
		p.seq = number(&e.Event, p.seq)
		w := EventWrite{Seq: e.Seq, done: e.done}
		if w.Text, err = json.Marshal(&e.Event); err != nil {
			err = fmt.Errorf("event %d: %w", e.Seq, err)
		}
		if bytes -= len(w.Text); bytes < 0 && i > 0 {
			p.seq = before
			break
		}
		if taken = append(taken, w); err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = p.events[len(taken):]
	p.writing = len(taken)
	return taken, err
}

// SettleEvents answers the callers that wait for events. After an error, the events count as lost.
func (p *Pending) SettleEvents(taken []EventWrite, err error) {
	p.mu.Lock()
	p.writing = 0
	if err != nil {
		p.lost += len(taken)
	}
	p.again(err)
	p.mu.Unlock()
	for _, w := range taken {
		if w.done != nil {
			w.done(err)
		}
	}
}

// PlanesUrgent reports whether a plane is to be written without linger.
func (p *Pending) PlanesUrgent() bool {
	return p.anyPlane(func(s *slot) bool { return s.urgent || len(s.waiting) > 0 })
}

// EventsUrgent reports whether a caller waits for an event.
func (p *Pending) EventsUrgent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.events, func(e queued) bool { return e.done != nil })
}

func (p *Pending) anyPlane(is func(*slot) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for j := range p.slots {
		if is(&p.slots[j]) {
			return true
		}
	}
	return false
}

// again has the store look for changes once more if a write has failed: the store may take it later, and no other
// change may come. The caller holds p.mu.
func (p *Pending) again(err error) {
	switch {
	case err == nil:
	case p.retry == nil:
		p.retry = time.AfterFunc(retryAfter, func() {
			notify(p.Planes)
			notify(p.Events)
		})
	default:
		p.retry.Reset(retryAfter)
	}
}

// Flush waits until all changes are written, the rule has ended or ctx has ended.
func (p *Pending) Flush(ctx context.Context) {
	for ctx.Err() == nil && p.err() == nil && !p.written() {
		notify(p.Planes)
		notify(p.Events)
		select {
		case <-ctx.Done():
		case <-time.After(flushPoll):
		}
	}
}

func (p *Pending) written() bool {
	if p.anyPlane(func(s *slot) bool { return s.dirty || s.writing }) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events)+p.writing+p.lost == 0
}

// Fail answers all waiting callers after the rule has ended. No goroutine takes changes any more.
func (p *Pending) Fail(err error) {
	p.mu.Lock()
	left := p.lostDone
	for j := range p.slots {
		left = append(left, p.slots[j].waiting...)
		p.slots[j].waiting = nil
	}
	for _, e := range p.events {
		if e.done != nil {
			left = append(left, e.done)
		}
	}
	p.lostDone, p.events = nil, nil
	p.mu.Unlock()
	answer(left, err)
}

// WriteLoop calls write after every change until done is closed: at once if urgent, otherwise after linger. It repeats
// the call while write returns true.
func WriteLoop(done, changed <-chan struct{}, urgent, write func() bool) {
	for awaitChange(done, changed, urgent) {
		for write() {
		}
	}
}

// awaitChange returns false when done is closed.
func awaitChange(done, changed <-chan struct{}, urgent func() bool) bool {
	select {
	case <-done:
		return false
	case <-changed:
	}
	lazy := time.NewTimer(linger)
	defer lazy.Stop()
	for !urgent() {
		select {
		case <-done:
			return false
		case <-lazy.C:
			return true
		case <-changed:
		}
	}
	return true
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

func answer(waiting []func(error), err error) {
	for _, done := range waiting {
		done(err)
	}
}
