package file

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// rule is a [journal.Leadership]. One goroutine commits all pending changes in one transaction.
type rule struct {
	*journal.Pending
	s  *Store
	db *bbolt.DB

	once  sync.Once
	why   error // set before done is closed
	done  chan struct{}
	ended sync.WaitGroup
	slow  journal.Slow
}

var _ journal.Leadership = (*rule)(nil)

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

// run commits until the rule ends. Then it answers the callers that still wait.
func (r *rule) run() {
	urgent := func() bool { return r.PlanesUrgent() || r.EventsUrgent() }
	journal.WriteLoop(r.done, r.Planes, urgent, r.commit)
	r.Fail(r.why)
}

// commit writes all pending changes in one transaction, and reports whether to look for more.
func (r *rule) commit() (more bool) {
	planes, err := r.TakePlanes(math.MaxInt, math.MaxInt)
	events, eventsErr := r.TakeEvents(math.MaxInt, math.MaxInt)
	if len(planes)+len(events) == 0 {
		return false
	}
	if err = cmp.Or(err, eventsErr); err == nil {
		began, end := time.Now(), r.slow.Begin()
		err = r.db.Update(func(tx *bbolt.Tx) error { return r.write(tx, planes, events) })
		end(err)
		r.s.conf.OnWrite(time.Since(began), err)
	}
	if err != nil {
		err = fmt.Errorf("journal: %s: %w", r.s.Path(), err)
	}
	r.SettlePlanes(planes, err)
	r.SettleEvents(events, err)
	return err == nil
}

// write puts changes into a transaction, and deletes all but the newest Config.History events.
func (r *rule) write(tx *bbolt.Tx, planes []journal.PlaneWrite, events []journal.EventWrite) error {
	states, history := tx.Bucket(planesBucket), tx.Bucket(historyBucket)
	for _, w := range planes {
		if err := states.Put([]byte(journal.PlaneKey(w.Plane)), w.Value); err != nil {
			return err
		}
	}
	for _, w := range events {
		if err := history.Put(number(w.Seq), w.Text); err != nil {
			return err
		}
	}
	if len(events) == 0 {
		return nil
	}
	newest := events[len(events)-1].Seq
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
	r.Flush(ctx)
	r.lose(fmt.Errorf("journal: %s has resigned: %w", r.s.conf.Name, controller.ErrNotLeader))
	r.ended.Wait()
	return r.s.release(r)
}
