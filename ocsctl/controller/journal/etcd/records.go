package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

const (
	// maxTxnBytes bounds, roughly, the values of one transaction; etcd accepts 1.5 MiB by default.
	maxTxnBytes = 1 << 19
	// maxTxnPlanes bounds the operations of one transaction; etcd accepts 128 by default.
	maxTxnPlanes = 64
	// maxSegment bounds the events of a segment.
	maxSegment = 256
	// readSegments is how many segments a query reads at a time.
	readSegments = 16
)

// load reads the state that earlier rules have left. No other controller can write any more, since this rule has the
// leader key.
func (l *leadership) load(ctx context.Context) error {
	resp, err := l.c.etcd.Get(ctx, l.c.key(planesKey), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", l.c.key(planesKey), err)
	}
	planes := make(map[string][]byte)
	l.versions = make(map[string]int64)
	for _, kv := range resp.Kvs {
		planes[string(kv.Key)], l.versions[string(kv.Key)] = kv.Value, kv.ModRevision
	}
	last, err := l.loadHistory(ctx)
	if err != nil {
		return err
	}
	by := journal.Author{Name: l.me.Name, Token: l.token}
	l.Pending = journal.NewPending(by, l.c.conf.Queue, last, planes, l.Err)
	return nil
}

// loadHistory reads the numbers of the stored segments, and returns the number of the newest event.
func (l *leadership) loadHistory(ctx context.Context) (last uint64, err error) {
	c := l.c
	resp, err := c.etcd.Get(ctx, c.key(historyKey), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("etcd: %s: %w", c.key(historyKey), err)
	}
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		n, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
		if err != nil || c.key(segmentKey(n)) != key {
			return 0, fmt.Errorf("etcd: %s: the key does not end in an event number: %w", key, journal.ErrCorrupt)
		}
		l.segments = append(l.segments, n)
	}
	if len(l.segments) == 0 {
		return 0, nil
	}
	key := c.key(segmentKey(l.segments[len(l.segments)-1]))
	newest, err := c.etcd.Get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("etcd: %s: %w", key, err)
	}
	if len(newest.Kvs) == 0 {
		return 0, fmt.Errorf("etcd: %s was deleted while the history was read", key)
	}
	events, err := decodeSegment(key, newest.Kvs[0].Value)
	if err != nil {
		return 0, err
	}
	return events[len(events)-1].Seq, nil
}

// write writes planes and events until the rule ends. Then it answers the callers that still wait. An intent does not
// wait for the transactions of events.
func (l *leadership) write() {
	var loops sync.WaitGroup
	loops.Go(func() { journal.WriteLoop(l.done, l.Planes, l.PlanesUrgent, l.writePlanes) })
	loops.Go(func() { journal.WriteLoop(l.done, l.Events, l.EventsUrgent, l.writeEvents) })
	loops.Wait()
	l.Fail(l.why)
}

// writePlanes writes as many changed planes as fit into one transaction, and reports whether to call it again.
func (l *leadership) writePlanes() (more bool) {
	taken, err := l.TakePlanes(maxTxnPlanes, maxTxnBytes)
	if len(taken) == 0 {
		return false
	}
	puts := make([]put, len(taken))
	for i, w := range taken {
		key := l.c.key(journal.PlaneKey(w.Plane))
		puts[i] = put{key: key, value: string(w.Value), mod: l.versions[key]}
	}
	var at int64
	if err == nil {
		at, err = l.commit(puts)
	}
	if err == nil {
		for _, p := range puts {
			l.versions[p.key] = at
		}
	}
	l.SettlePlanes(taken, err)
	return err == nil
}

// writeEvents writes one segment, and reports whether to call it again.
func (l *leadership) writeEvents() (more bool) {
	taken, err := l.TakeEvents(maxSegment, maxTxnBytes)
	if len(taken) == 0 {
		return false
	}
	if err == nil {
		err = l.writeSegment(taken)
	}
	l.SettleEvents(taken, err)
	return err == nil
}

// writeSegment writes events in one transaction, which also deletes old segments.
func (l *leadership) writeSegment(events []journal.EventWrite) error {
	v := struct {
		Version int               `json:"version"`
		Events  []json.RawMessage `json:"events"`
	}{Version: journal.Format}
	for _, w := range events {
		v.Events = append(v.Events, w.Text)
	}
	value, err := journal.Encode(v)
	if err != nil {
		return err
	}
	old := l.oldSegments(events[len(events)-1].Seq)
	var sweep []clientv3.Op
	if old > 0 {
		end := l.c.key(segmentKey(l.segments[old]))
		sweep = []clientv3.Op{clientv3.OpDelete(l.c.key(historyKey), clientv3.WithRange(end))}
	}
	if _, err := l.commit([]put{{key: l.c.key(segmentKey(events[0].Seq)), value: string(value)}}, sweep...); err != nil {
		return err
	}
	l.segments = append(l.segments[old:], events[0].Seq)
	return nil
}

// oldSegments returns how many segments to delete when the newest event has number last: those with no event among the
// newest Config.History ones.
func (l *leadership) oldSegments(last uint64) int {
	keep := uint64(l.c.conf.History)
	n := 0
	for n+1 < len(l.segments) && l.segments[n+1]+keep <= last+1 {
		n++
	}
	return n
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
