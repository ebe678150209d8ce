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

// historyWriter writes events, in order and behind the core's back: those that gather while one
// transaction is under way go into the next as one segment. What comes faster than that is
// dropped and counted, and the count becomes an event in its place.
type historyWriter struct {
	l     *leadership
	last  uint64           // number of the newest event of the rules before
	seq   journal.Sequence // of events that have been taken from the queue
	first []uint64         // of the segments that are stored

	mu    sync.Mutex
	queue []queued
	lost  int // events dropped since the queue was full
	wake  chan struct{}
}

// queued is an event that is to be written; done may be nil.
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

// load reads where the history stands.
func (w *historyWriter) load(ctx context.Context, c *Client) error {
	resp, err := c.etcd.Get(ctx, c.key(historyKey), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", c.key(historyKey), err)
	}
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		n, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
		if err != nil || c.key(segmentKey(n)) != key {
			return fmt.Errorf("etcd: %s: not a number of an event: %w", key, journal.ErrCorrupt)
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
		return fmt.Errorf("etcd: %s has gone while it was read", key)
	}
	events, err := decodeSegment(key, last.Kvs[0].Value)
	if err != nil {
		return err
	}
	w.last = events[len(events)-1].Seq
	w.seq.StartAfter(w.last)
	return nil
}

// Record implements [controller.Journal]. The state of the plane is kept even where the event
// is dropped.
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
	// The event is durable when both the state of its plane and the history have it.
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
	w.tell()
	if w.lost > 0 || len(w.queue) == w.l.c.conf.Queue {
		w.lost++
		if e.done != nil {
			e.done(nil) // the state of the plane has it
		}
		return
	}
	w.queue = append(w.queue, e)
	w.notify()
}

// tell puts what was dropped into the queue, as soon as there is room; w.mu is held.
func (w *historyWriter) tell() {
	if w.lost == 0 || len(w.queue) == w.l.c.conf.Queue {
		return
	}
	w.queue = append(w.queue, queued{Event: controller.Event{
		Time: time.Now(), Kind: controller.Lost, Plane: -1, Port: -1,
		Err: fmt.Sprintf("%d events came faster than the journal could write them", w.lost),
	}})
	w.lost = 0
}

func (w *historyWriter) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run writes until the rule ends, and then answers the requests that wait.
func (w *historyWriter) run() {
	for w.l.Err() == nil {
		select {
		case <-w.l.done:
		case <-w.wake:
			if !w.urgent() {
				pause(w.l.ctx, linger) // for company
			}
			for w.write() {
			}
		}
	}
	w.mu.Lock()
	left := w.queue
	w.queue = nil
	w.mu.Unlock()
	for _, e := range left {
		if e.done != nil {
			e.done(w.l.Err())
		}
	}
}

// urgent reports whether the core waits for an event.
func (w *historyWriter) urgent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.queue, func(e queued) bool { return e.done != nil })
}

// write writes one segment, and reports whether there may be another.
func (w *historyWriter) write() (more bool) {
	w.mu.Lock()
	w.tell()
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
			sweep = []clientv3.Op{clientv3.OpDelete(w.l.c.key(historyKey), clientv3.WithRange(w.l.c.key(segmentKey(w.first[old]))))}
		}
		if _, err = w.l.commit([]put{{key: w.l.c.key(segmentKey(events[0].Seq)), value: value}}, sweep...); err == nil {
			w.first = append(w.first[old:], events[0].Seq)
		}
	}
	if stopped(err) {
		return false
	}
	if err != nil {
		w.l.c.conf.Logger.Error("events are not in the history", "events", len(events), "error", err)
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

// segment numbers and encodes the first of events, as many as one value takes, and returns them.
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

// old counts the segments that are older than what is kept when the newest event is last.
func (w *historyWriter) old(last uint64) int {
	keep := uint64(w.l.c.conf.History)
	n := 0
	for n+1 < len(w.first) && w.first[n+1]+keep <= last+1 {
		n++
	}
	return n
}

// flush waits until everything is written, the rule ends, or ctx does.
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

// History implements [controller.History]. Events become visible some milliseconds after they
// have happened, in order.
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
