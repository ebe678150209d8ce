package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// historyWriter writes events to etcd in order, in a goroutine of its own. Events that arrive during a
// transaction go into the next one, as one segment. While the queue is full, new events are dropped and counted;
// a Lost event with their number takes their place.
type historyWriter struct {
	l     *leadership
	last  uint64           // number of the newest event of earlier rules
	seq   journal.Sequence // numbers the events taken from the queue
	first []uint64         // number of the first event of each stored segment

	mu       sync.Mutex
	queue    []queued
	lost     int           // events dropped since the last Lost event
	lostDone []func(error) // callbacks of dropped events; called when the Lost event is durable
	wake     chan struct{}
}

// queued is an event to write; done may be nil.
type queued struct {
	controller.Event
	done func(error)
}

const (
	// maxSegment bounds the events of a segment, maxSegmentBytes, roughly, their encoding.
	maxSegment      = 256
	maxSegmentBytes = maxTxnBytes
	// readSegments is how many segments a query reads at a time.
	readSegments = 16
)

func (w *historyWriter) begin(l *leadership) {
	w.l, w.wake = l, make(chan struct{}, 1)
}

// load reads the numbers of the stored segments and of the newest event.
func (w *historyWriter) load(ctx context.Context, c *Client) error {
	resp, err := c.etcd.Get(ctx, c.key(historyKey), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", c.key(historyKey), err)
	}
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		n, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
		if err != nil || c.key(segmentKey(n)) != key {
			return fmt.Errorf("etcd: %s: the key does not end in an event number: %w", key, journal.ErrCorrupt)
		}
		w.first = append(w.first, n)
	}
	if len(w.first) == 0 {
		return nil
	}
	key := c.key(segmentKey(w.first[len(w.first)-1]))
	last, err := c.etcd.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", key, err)
	}
	if len(last.Kvs) == 0 {
		return fmt.Errorf("etcd: %s was deleted while the history was read", key)
	}
	events, err := decodeSegment(key, last.Kvs[0].Value)
	if err != nil {
		return err
	}
	w.last = events[len(events)-1].Seq
	w.seq.StartAfter(w.last)
	return nil
}

// Record implements [controller.Journal]. It stores the state of the plane even if it drops the event.
func (l *leadership) Record(e controller.Event, done func(error)) {
	if err := l.Err(); err != nil {
		if done != nil {
			done(err)
		}
		return
	}
	if done == nil {
		l.planes.apply(&e, nil)
		l.history.add(queued{Event: e})
		return
	}
	// The event is durable when the state of its plane and the history are both written.
	var left atomic.Int32
	var once sync.Once
	left.Store(2)
	part := func(err error) {
		if left.Add(-1) == 0 || err != nil {
			once.Do(func() { done(err) })
		}
	}
	l.planes.apply(&e, part)
	l.history.add(queued{e, part})
}

func (w *historyWriter) add(e queued) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queueLost()
	if w.lost > 0 || len(w.queue) == w.l.c.conf.Queue {
		w.lost++
		if e.done != nil {
			w.lostDone = append(w.lostDone, e.done)
		}
		return
	}
	w.queue = append(w.queue, e)
	w.notify()
}

// queueLost queues a Lost event for the dropped events if the queue has room. The caller holds w.mu.
func (w *historyWriter) queueLost() {
	if w.lost == 0 || len(w.queue) == w.l.c.conf.Queue {
		return
	}
	e := queued{Event: controller.Event{
		Time: time.Now(), Kind: controller.Lost, Plane: -1, Port: -1,
		Err: fmt.Sprintf("%d events came faster than the journal could write them", w.lost),
	}}
	if dropped := w.lostDone; len(dropped) > 0 {
		e.done = func(err error) {
			for _, done := range dropped {
				done(err)
			}
		}
	}
	w.queue = append(w.queue, e)
	w.lost, w.lostDone = 0, nil
}

func (w *historyWriter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes events until the rule ends. Then it calls the remaining callbacks with the reason.
func (w *historyWriter) run() {
	for w.l.Err() == nil {
		select {
		case <-w.l.done:
		case <-w.wake:
			if !w.urgent() {
				pause(w.l.ctx, linger) // collect more events for one segment
			}
			for w.write() {
			}
		}
	}
	w.mu.Lock()
	left := w.queue
	for _, done := range w.lostDone {
		left = append(left, queued{done: done})
	}
	w.queue, w.lostDone = nil, nil
	w.mu.Unlock()
	for _, e := range left {
		if e.done != nil {
			e.done(w.l.Err())
		}
	}
}

// urgent reports whether the core waits for a queued event to become durable.
func (w *historyWriter) urgent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.queue, func(e queued) bool { return e.done != nil })
}

// write writes one segment, and reports whether to call it again.
func (w *historyWriter) write() (more bool) {
	w.mu.Lock()
	w.queueLost()
	taken := slices.Clone(w.queue[:min(len(w.queue), maxSegment)])
	w.mu.Unlock()
	if len(taken) == 0 {
		return false
	}
	events, value, err := w.segment(taken)
	if err == nil {
		old := w.old(events[len(events)-1].Seq)
		var sweep []clientv3.Op
		if old > 0 {
			end := w.l.c.key(segmentKey(w.first[old]))
			sweep = []clientv3.Op{clientv3.OpDelete(w.l.c.key(historyKey), clientv3.WithRange(end))}
		}
		segment := put{key: w.l.c.key(segmentKey(events[0].Seq)), value: value}
		if _, err = w.l.commit([]put{segment}, sweep...); err == nil {
			w.first = append(w.first[old:], events[0].Seq)
		}
	}
	if stopped(err) {
		return false
	}
	if err != nil {
		w.l.c.conf.Logger.Error("events were not written to the history", "events", len(events), "error", err)
	}
	w.mu.Lock()
	w.queue = w.queue[len(events):]
	if err != nil {
		w.lost += len(events)
	}
	w.mu.Unlock()
	for _, e := range taken[:len(events)] {
		if e.done != nil {
			e.done(err)
		}
	}
	return true
}

// segment numbers and encodes as many of the taken events as fit into one value, and returns them.
func (w *historyWriter) segment(taken []queued) ([]controller.Event, string, error) {
	events := make([]controller.Event, len(taken))
	for i := range taken {
		events[i] = taken[i].Event
	}
	v := struct {
		Version int               `json:"version"`
		Events  []json.RawMessage `json:"events"`
	}{Version: journal.Format}
	bytes := 0
	for i := range events {
		e := &events[i]
		before := w.seq
		w.seq.Number(e)
		text, err := json.Marshal(e)
		if err != nil {
			return events[:i+1], "", fmt.Errorf("etcd: event %d: %w", e.Seq, err)
		}
		if bytes += len(text); i > 0 && bytes > maxSegmentBytes {
			w.seq = before
			events = events[:i]
			break
		}
		v.Events = append(v.Events, text)
	}
	value, err := journal.Encode(v)
	return events, string(value), err
}

// old returns how many segments to delete when the newest event has number last: those with no event among the
// newest Config.History ones.
func (w *historyWriter) old(last uint64) int {
	keep := uint64(w.l.c.conf.History)
	n := 0
	for n+1 < len(w.first) && w.first[n+1]+keep <= last+1 {
		n++
	}
	return n
}

// flush waits until the queue is empty, the rule has ended or ctx has ended.
func (w *historyWriter) flush(ctx context.Context) {
	for ctx.Err() == nil && w.l.Err() == nil && !w.empty() {
		pause(ctx, flushPoll)
	}
}

func (w *historyWriter) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue) == 0
}

// History implements [controller.History]. It returns an event some milliseconds after Record, in order.
func (c *Client) History(ctx context.Context, q controller.Query) ([]controller.Event, error) {
	limit := journal.Limit(q)
	end := clientv3.GetPrefixRangeEnd(c.key(historyKey))
	if q.Before > 0 {
		end = c.key(segmentKey(q.Before))
	}
	var found []controller.Event
	for {
		resp, err := c.etcd.Get(ctx, c.key(historyKey), clientv3.WithRange(end), clientv3.WithLimit(readSegments),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
		if err != nil {
			return nil, fmt.Errorf("etcd: %s: %w", c.key(historyKey), err)
		}
		for _, kv := range resp.Kvs {
			events, err := decodeSegment(string(kv.Key), kv.Value)
			if err != nil {
				return nil, err
			}
			for _, e := range slices.Backward(events) {
				if !q.Match(&e) {
					continue
				}
				if found = append(found, e); len(found) == limit {
					return found, nil
				}
			}
			end = string(kv.Key)
		}
		if !resp.More {
			return found, nil
		}
	}
}
