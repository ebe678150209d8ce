package peer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/stall"
	"lightpath/shim/status"
	"lightpath/shim/stream"
)

// No CPU takes part in a launch, so a goroutine of the communicator watches it: the watcher. It sleeps while no launch
// is pending. It reports what a stalled launch waits for. It ends the communicator after LIGHTPATH_TIMEOUT, and
// releases the streams of a failed communicator.

// watcher is how other goroutines control the watcher.
type watcher struct {
	kick  chan struct{} // a launch has been enqueued
	awake atomic.Bool   // it looks at launches without a kick
	stop  chan struct{} // no launch will follow
	over  chan struct{} // it has released everything
	close sync.Once
	last  atomic.Uint32 // number of the last launch outside graphs
	mu    sync.Mutex
	first dueDate // of the first pending launch that has a deadline
	final dueDate // of the last one
}

// dueDate is the deadline of a launch. The zero value is none.
type dueDate struct {
	at     time.Time
	number uint32
}

// Pauses between looks at launches. Launches in graphs begin without a kick, so the watcher also looks for them.
const (
	lookSoon  = 50 * time.Millisecond
	lookAgain = time.Second
	// Pauses between steps that release a stream.
	shortestLook = 50 * time.Microsecond
	longestLook  = 5 * time.Millisecond
	// Pauses before the watcher tries again to open or acknowledge regions.
	regionsAgain = 100 * time.Microsecond
)

// wake tells the watcher of a launch. Hot path: while launches follow each other, the watcher is awake.
func (w *watcher) wake() {
	if w.awake.Load() {
		return
	}
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// expect sets the deadline of a launch. The watcher keeps the deadlines of the first and the last pending launch.
func (w *watcher) expect(number uint32, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.final = dueDate{due, number}
	if w.first.at.IsZero() {
		w.first = w.final
	}
}

// missed reports whether a pending launch has missed its deadline. ended is the number of the last launch that has
// ended.
func (w *watcher) missed(ended uint32, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if int32(ended-w.first.number) >= 0 {
		w.first = w.final
	}
	if int32(ended-w.first.number) >= 0 {
		w.first, w.final = dueDate{}, dueDate{}
	}
	return !w.first.at.IsZero() && now.After(w.first.at)
}

// end makes the watcher release everything when nothing uses it any more. Idempotent.
func (w *watcher) end() { w.close.Do(func() { close(w.stop) }) }

// watch is the watcher's goroutine.
func (x *Path) watch() {
	w := &x.watcher
	defer close(w.over)
	x.lookAtRegions()
	for {
		var look <-chan time.Time
		if x.captured.Load() || x.published.unasked.some.Load() {
			look = time.After(lookAgain)
		}
		select {
		case <-w.kick:
		case <-look:
		case <-x.news.changed:
			x.lookAtRegions()
			continue
		case <-x.c.FailedChan():
		case <-w.stop:
			x.shutDown()
			return
		}
		if x.c.Failed() {
			x.letGoOn()
			x.shutDown()
			return
		}
		x.follow()
	}
}

// standing is the watcher's record of the current launch.
type standing struct {
	tokens uint64    // hash of the tokens
	since  time.Time // time of their last change
	said   time.Time // time of the last report
}

// follow looks at launches until none has been pending for a while.
func (x *Path) follow() {
	var seen standing
	timer := time.NewTimer(0)
	defer timer.Stop()
	w := &x.watcher
	w.awake.Store(true)
	for last := w.last.Load(); !x.c.Failed(); {
		timer.Reset(min(lookSoon, x.c.Cfg.Timeout/4))
		select {
		case <-timer.C:
		case <-x.c.FailedChan():
		case <-x.news.changed:
			x.lookAtRegions()
		}
		recorder.Of(x.c).Notice()
		x.sweepSometimes()
		if err := x.look(&seen, time.Now()); err != nil {
			x.c.Spread(err)
		}
		now := w.last.Load()
		if quiet := now == last && !x.busy(); quiet {
			w.awake.Store(false)
			if w.last.Load() == last {
				return
			}
			w.awake.Store(true) // a launch has come in between, without a kick
		}
		last = now
	}
	w.awake.Store(false)
}

// busy reports whether launches are pending. A failed communicator may have one that never ends by its number.
func (x *Path) busy() bool {
	return x.n > 1 && (atomic.LoadUint32(&x.page.rank(x.me).current) != 0 ||
		x.ended() != x.watcher.last.Load() && !x.c.Failed())
}

// look checks the current launch once.
func (x *Path) look(seen *standing, now time.Time) error {
	if err := x.broken(); err != nil || x.n == 1 {
		return err
	}
	own := x.page.rank(x.me)
	if x.watcher.missed(x.ended(), now) {
		return fmt.Errorf("shim: rank %d: a call has missed its deadline; %s: %w",
			x.me, x.missing(), errdefs.ErrTimeout)
	}
	number, tokens := atomic.LoadUint32(&own.current), x.tokens()
	if number == 0 || atomic.LoadUint32(&own.waited) == 0 || tokens != seen.tokens {
		atomic.StoreUint32(&own.waited, 1)
		*seen = standing{tokens: tokens, since: now}
		return nil
	}
	if now.Sub(seen.since) > x.c.Cfg.Timeout {
		return x.timedOut(number)
	}
	if every := x.c.StallInterval(); now.Sub(seen.since) > every && now.Sub(seen.said) > every {
		seen.said = now
		x.say(number)
	}
	return nil
}

// broken returns the driver's error if a launch has failed on the device.
func (x *Path) broken() error {
	d := x.dev
	if !d.Mu.TryLock() {
		return nil
	}
	defer d.Mu.Unlock()
	_, err := d.Reached()
	if err != nil {
		err = fmt.Errorf("shim: rank %d: on its device: %w", x.me, err)
	}
	return err
}

// tokens returns a hash of the words that this rank or its peers wait for. It changes while a launch moves on.
func (x *Path) tokens() (h uint64) {
	p := x.page
	p.eachSlot(func(stage, slot, peer int) {
		for word := range tokenWords {
			h = h*31 + uint64(atomic.LoadUint32(p.tokenWord(stage, slot, peer, x.me, word)))
			h = h*31 + uint64(atomic.LoadUint32(p.tokenWord(stage, slot, x.me, peer, word)))
		}
	})
	return h
}

// say reports to the leader and to the flight recorder which peer a launch waits for.
func (x *Path) say(number uint32) {
	late := x.late()
	for _, op := range recorder.Of(x.c).OfLaunch(number) {
		recorder.Of(x.c).Stalled(op.Number, exec.Wait{
			Rank: x.me, Op: op.Seq, Kind: program.Recv, Peer: x.awaited(&op, late),
			Bytes: max(op.Bytes, int64(op.Shape.Count)*int64(op.Shape.Type.Size())),
		})
		if op.Seq > 0 {
			stall.ReportShape(x.c, op.Seq, &op.Shape)
		}
	}
}

// awaited returns the first late peer for which an operation may wait, -1 for none. A group of messages waits for no
// peer that has called as many with this rank as this rank with it. Replays call nothing.
func (x *Path) awaited(op *recorder.Operation, late []int) int {
	for _, peer := range late {
		own, theirs := x.page.rank(x.me), x.page.rank(peer)
		if op.Messages == 0 || op.Replay || last(&own.wanted[peer]) > last(&theirs.sent[x.me]) ||
			last(&own.sent[peer]) > last(&theirs.wanted[x.me]) {
			return peer
		}
	}
	return -1
}

// late lists the peers whose streams are in no launch. This rank's launch may wait for them.
func (x *Path) late() (ranks []int) {
	for r := range x.n {
		if r != x.me && atomic.LoadUint32(&x.page.rank(r).current) == 0 {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// missing describes the late ranks for an error.
func (x *Path) missing() string {
	late := x.late()
	if len(late) == 0 {
		return "the streams of all ranks are in one"
	}
	return "no stream of " + status.ListRanks(late) + " is in one"
}

// timedOut reports a launch that has waited longer than LIGHTPATH_TIMEOUT. It returns the error that ends the
// communicator.
func (x *Path) timedOut(number uint32) error {
	c := x.c
	err := fmt.Errorf("shim: rank %d: launch %d on its device has waited %v: %s%s: %w",
		x.me, number, c.Cfg.Timeout, x.missing(), stream.QueueHint(c), errdefs.ErrTimeout)
	stall.GiveUpLaunch(c, number, err)
	return err
}

// letGoOn releases streams until the communicator is destroyed, because the program may replay graphs at any time.
func (x *Path) letGoOn() {
	for {
		x.letGo()
		var look <-chan time.Time
		if x.captured.Load() {
			look = time.After(lookSoon)
		}
		select {
		case <-look:
		case <-x.watcher.stop:
			return
		}
	}
}

// letGo releases the streams of a failed communicator: it sets every word that they wait for, until they have
// finished.
func (x *Path) letGo() {
	if x.n == 1 {
		return
	}
	x.shutGates()
	quiet, pause := time.Now(), shortestLook
	for ; ; pause = min(2*pause, longestLook) {
		x.page.letGo(x.me)
		if x.advanceGates() {
			pause = shortestLook
		}
		if !x.finished() {
			quiet = time.Now()
		} else if !x.captured.Load() || time.Since(quiet) > lookAgain {
			return
		}
		time.Sleep(pause)
	}
}

// finished reports whether the communicator's streams have left its launches. It does not wait for the lock, because a
// caller that holds it may wait for these streams.
func (x *Path) finished() bool {
	d := x.dev
	if !d.Mu.TryLock() {
		return false
	}
	defer d.Mu.Unlock()
	if x.torn && x.driver.EnterContext(x.dev.Context) == nil {
		x.breakOff()
		x.driver.Leave()
	}
	if x.torn || atomic.LoadUint32(&x.page.rank(x.me).current) != 0 {
		return false
	}
	reached, err := d.Reached()
	return reached || err != nil
}

// home reports whether all peers have read what this rank has given them.
func (x *Path) home() bool {
	home := true
	if x.n > 1 {
		x.page.eachSlot(func(stage, slot, peer int) {
			home = home && atomic.LoadUint32(x.page.tokenWord(stage, slot, x.me, peer, tokenFree)) != 0
		})
	}
	return home
}

// shutDown waits for at most comm.Linger until peers have read what this rank has given them. Then it releases what
// the communicator has on its device.
func (x *Path) shutDown() {
	for end := time.Now().Add(comm.Linger); !x.c.Failed() && !x.home() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	read := x.home()
	if x.c.Failed() {
		x.letGo()
		read = false
	}
	x.stopPieces()
	x.setInUse(false)
	x.closeRegions()
	memory.RemoveUser(x)
	x.free(read)
}
