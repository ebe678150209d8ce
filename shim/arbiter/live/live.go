// Package live runs the arbiter's machine at rank 0. It turns messages, grants and timers into events. It performs the
// machine's actions with the real controller, book of plans, clock and control network.
//
// Layer: above arbiter and circuits, below the paths. It decides nothing.
package live

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
	"lightpath/shim/arbiter"
	"lightpath/shim/arbiter/sequence"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/planeset"
	"lightpath/shim/planning"
	"lightpath/shim/settings"
)

// Leader is the arbiter of a communicator, at its rank 0.
type Leader struct {
	Book *planning.Book
	// Scripted returns the plan of a shape whose scripts are on streams; set before the first of them.
	Scripted func(calls.Shape) *planning.Agreed

	c       *comm.Core
	p       *circuits.Planes
	machine *arbiter.Machine
	events  chan arbiter.Event
	grants  chan arbiter.Event // without a queue, so that no grant is lost in it when the leader ends
	awaits  []awaiting
	timers  [arbiter.NumTimers]*time.Timer
	stop    chan struct{}
	stopped chan struct{} // closed when the goroutine has ended
	started sync.Once
	// hits and misses count tickets that went out ahead.
	hits, misses atomic.Uint64
	closed       sync.Once
}

// awaiting is a plane for which an Await action is under way.
type awaiting struct {
	plane    int
	epoch    uint32
	deadline time.Time
}

// queueLength bounds the events that wait.
const queueLength = 256

var slot = comm.NewSlot[Leader]()

// Of returns the leader of a communicator. Only the leader at rank 0 serves.
func Of(c *comm.Core) *Leader { return slot.Of(c) }

// Handle turns messages into events of the machine. It also serves a communicator without circuits.
func Handle(c *comm.Core) {
	l := &Leader{c: c, events: make(chan arbiter.Event, queueLength), grants: make(chan arbiter.Event),
		stop: make(chan struct{}), stopped: make(chan struct{})}
	for _, kind := range arbiter.Messages {
		c.HandleAtLeader(kind, func(m *control.Message) {
			e, err := arbiter.Decode(m, c.Ranks)
			if err != nil {
				go c.Spread(err)
				return
			}
			l.post(e)
		})
	}
	slot.Set(c, l)
}

// Attach creates the machine at rank 0, for attached planes. [Leader.Start] starts it.
func Attach(c *comm.Core, p *circuits.Planes) (err error) {
	l := Of(c)
	l.p = p
	if l.Book, err = planning.OpenBook(&p.Site, &p.Known, c.Log); err != nil {
		return err
	}
	l.machine = arbiter.New(arbiter.Config{
		Ranks: c.Ranks, Site: &p.Site, RoundWait: c.Cfg.Demand.Wait,
		Scripted: func(s calls.Shape) *planning.Agreed { return l.Scripted(s) }, Repeats: repeats(c.Cfg),
		NextUser: p.Machine.NextUser,
	}, view{p}, l.Book)
	p.Machine.OnNext(func() { l.postLater(arbiter.Event{Kind: arbiter.Next}) })
	for i := range l.timers {
		l.timers[i] = time.NewTimer(time.Hour)
		l.timers[i].Stop()
	}
	return nil
}

// repeats returns how often a sequence of operations has to come before tickets go out ahead.
func repeats(cfg *settings.Config) int {
	if cfg.Iteration == settings.IterationOff {
		return 0
	}
	return sequence.DefaultRepeats
}

// Predictions returns how many tickets that went out ahead were used, and how many were not.
func (l *Leader) Predictions() (hits, misses uint64) { return l.hits.Load(), l.misses.Load() }

// Departed notes that ranks have left the communicator, this one included.
func (l *Leader) Departed() {
	if l.machine == nil {
		return
	}
	for _, d := range l.c.Departures() {
		l.postLater(arbiter.Event{Kind: arbiter.Left, Rank: d.Rank})
	}
	if l.c.Life() == comm.Destroyed {
		l.postLater(arbiter.Event{Kind: arbiter.Left})
	}
}

// postLater is post for callers that must not block.
func (l *Leader) postLater(e arbiter.Event) { go l.post(e) }

// Start begins to serve, first the queued messages.
func (l *Leader) Start() {
	if l.machine != nil {
		l.started.Do(func() { go l.serve() })
	}
}

func (l *Leader) post(e arbiter.Event) {
	select {
	case l.events <- e:
	case <-l.stop:
	}
}

// Close ends the goroutine and gives planes back. Idempotent.
func (l *Leader) Close() {
	l.closed.Do(func() {
		close(l.stop)
		if l.Book != nil {
			l.Book.Close() // the goroutine may be waiting for a plan
		}
	})
	l.started.Do(func() { close(l.stopped) })
	<-l.stopped
}

// lookPause is the time between checks of awaited planes.
const lookPause = 50 * time.Microsecond

func (l *Leader) serve() {
	defer close(l.stopped)
	l.p.Controller.WatchWanted(l.c.ID, func(planes uint64) {
		l.postLater(arbiter.Event{Kind: arbiter.Wanted, Planes: planeset.Set(planes)})
	})
	defer l.end()
	for {
		var look <-chan time.Time
		if len(l.awaits) > 0 {
			look = time.After(lookPause)
		}
		select {
		case e := <-l.events:
			l.step(e)
		case e := <-l.grants:
			l.granted(e)
		case <-l.timers[arbiter.IdleTimer].C:
			l.step(arbiter.Event{Kind: arbiter.Expired, Timer: arbiter.IdleTimer})
		case <-l.timers[arbiter.RoundTimer].C:
			l.step(arbiter.Event{Kind: arbiter.Expired, Timer: arbiter.RoundTimer})
		case <-look:
			l.checkAwaits()
		case <-l.stop:
			return
		}
	}
}

// end gives back the planes that the machine holds.
func (l *Leader) end() {
	l.p.Controller.WatchWanted(l.c.ID, nil)
	for _, t := range l.timers {
		t.Stop()
	}
	if held := l.machine.Held(); held != 0 {
		// A controller that has ended holds nothing.
		_ = l.p.Controller.Release(uint64(held), l.c.ID)
	}
}

// step makes the machine handle an event, and performs its actions.
func (l *Leader) step(e arbiter.Event) {
	for _, a := range l.machine.Step(time.Now(), &e) {
		l.perform(&a)
	}
	hits, misses := l.machine.Predictions()
	l.hits.Store(hits)
	l.misses.Store(misses)
}

func (l *Leader) perform(a *arbiter.Action) {
	c := l.c
	switch a.Kind {
	case arbiter.SendTicket:
		m := &control.Message{Kind: control.MsgTicket, Seq: a.Seq, Body: a.Body}
		if a.Rank < 0 {
			c.ToAll(m)
		} else {
			c.Star.To(a.Rank, m)
		}
	case arbiter.SendRecall:
		c.ToAll(&control.Message{Kind: control.MsgRecall, Seq: a.Seq})
	case arbiter.SendPlan:
		c.Star.To(a.Rank, &control.Message{Kind: control.MsgPlan, Seq: a.Seq, Body: a.Body})
	case arbiter.Acquire:
		go l.acquire(a.Lease)
	case arbiter.Release:
		if err := l.p.Controller.Release(uint64(a.Planes), c.ID); err != nil {
			c.Spread(err)
		}
	case arbiter.Await:
		l.awaits = append(l.awaits, awaiting{a.Plane, a.Epoch, time.Now().Add(c.Cfg.Timeout)})
	case arbiter.Prepare:
		c.ToAll((&circuits.Move{Plane: a.Plane, Epoch: a.Epoch, Target: a.Target}).Message())
	case arbiter.SetTimer:
		l.timers[a.Timer].Reset(a.After)
	case arbiter.StopTimer:
		l.timers[a.Timer].Stop()
	case arbiter.Fail:
		c.Spread(a.Err)
	case arbiter.Inform:
		c.Log.Info(log.Coll, "%s", a.Text)
	case arbiter.Warn:
		c.Log.Notice("%s", a.Text)
	}
}

// granted takes a grant. A communicator that has failed meanwhile gives the planes back, which it has not used.
func (l *Leader) granted(e arbiter.Event) {
	if !l.c.Failed() {
		l.step(e)
	} else if e.Planes != 0 {
		_ = l.p.Controller.Release(uint64(e.Planes), l.c.ID)
	}
}

// acquire waits for planes. If the leader has ended, it gives granted planes back at once.
func (l *Leader) acquire(lease ocsctl.Lease) {
	lease.Holder = l.c.ID
	mask, err := l.p.Controller.Acquire(lease)
	if err != nil && !errors.Is(err, errdefs.ErrDestroyed) {
		err = fmt.Errorf("shim: planes for communicator %#x: %w", l.c.ID, err)
	}
	select {
	case l.grants <- arbiter.Event{Kind: arbiter.Granted, Planes: planeset.Set(mask), Err: err}:
	case <-l.stop:
		if mask != 0 {
			_ = l.p.Controller.Release(mask, l.c.ID)
		}
	}
}

// checkAwaits finds planes that have reached their awaited state or will not reach it.
func (l *Leader) checkAwaits() {
	for i := 0; i < len(l.awaits); {
		w := l.awaits[i]
		epoch, _, err := l.p.State(w.plane)
		switch {
		case err != nil || int32(epoch-w.epoch) >= 0:
		case l.c.Failed():
			err = l.c.AsyncError()
		case time.Now().After(w.deadline):
			err = arbiter.TimedOut(l.p.WaitingOn(w.plane))
		default:
			i++
			continue
		}
		l.awaits = append(l.awaits[:i], l.awaits[i+1:]...)
		l.step(arbiter.Event{Kind: arbiter.Reached, Plane: w.plane, Err: err})
	}
}

// view is the latest knowledge of the controller's client about planes.
type view struct{ p *circuits.Planes }

// State implements arbiter.View.
func (v view) State(plane int) (epoch uint32, ports circuit.Permutation, err error) {
	_, err = v.p.Controller.Poll(plane)
	st := v.p.Controller.State(plane)
	return st.Epoch, st.Map, err
}

// Waiting implements arbiter.View.
func (v view) Waiting(plane int) string { return v.p.WaitingOn(plane) }
