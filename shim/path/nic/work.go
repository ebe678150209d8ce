package nic

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/exec"
	"lightpath/collectives/program"
	"lightpath/collectives/transport"
	"lightpath/collectives/transport/messages"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/stall"
	"lightpath/shim/stream"
)

// exchange is a round of messages, which begins when a stream reaches it. Its word becomes 1 when they have completed;
// the stream resets it.
type exchange struct {
	x        *Path
	lane     int
	token    stream.Token
	word     *uint32
	kept     bool // a graph owns it
	putting  bool // finish has not put its end on the stream yet
	receives bool
	group    messages.Group
}

// work is the state of the goroutine that moves messages. It lives as long as the path. A completed exchange serves
// its lane again. Work on a lane's stream runs in order, so the old exchange has ended when the new one begins.
type work struct {
	mu    sync.Mutex
	known exchanges
	queue []*exchange // that streams have reached
	ended bool        // no message moves any more; streams do not wait

	over     chan struct{} // closed when the goroutine has ended
	halt     atomic.Bool
	flushing atomic.Int64 // calls of FlushRemote
	progress progress     // the goroutine's own
}

// exchanges are all exchanges of a path, and the words for more.
type exchanges struct {
	idle  [][]*exchange // by lane
	all   []*exchange   // except those of destroyed graphs
	pages []memory.Pinned
	free  []*uint32 // words
}

// progress is what the goroutine knows of the messages that are under way.
type progress struct {
	taken  []*exchange
	active int
	moves  uint64
	since  time.Time // when the messages last stopped moving; zero while they move
	said   time.Time
}

// Come implements [stream.Place]: it queues the messages and wakes the goroutine. Hot path: no allocation.
func (ex *exchange) Come(int) {
	w := &ex.x.work
	w.mu.Lock()
	if w.ended {
		atomic.StoreUint32(ex.word, 1)
	} else {
		w.queue = append(w.queue, ex)
	}
	w.mu.Unlock()
	ex.x.end.Wake()
}

// take returns an unused exchange. An exchange of a graph lives as long as the graph.
func (x *Path) take(lane int) (*exchange, error) {
	captured := x.launch.capture.ID != 0
	w := &x.work
	if !captured {
		if ex := w.reuse(lane); ex != nil {
			return ex, nil
		}
	}
	word, err := w.word()
	if err != nil {
		return nil, err
	}
	ex := &exchange{x: x, lane: lane, kept: captured, word: word}
	ex.group.Owner = ex
	atomic.StoreUint32(ex.word, 0)
	ex.token = stream.AddPlace(ex)
	w.mu.Lock()
	w.known.all = append(w.known.all, ex)
	w.mu.Unlock()
	if captured {
		drop := func() { x.drop(ex) }
		if err := stream.OnGraphGone(x.launch.capture, drop); err != nil {
			drop()
			return nil, err
		}
	}
	return ex, nil
}

// reuse returns an exchange of a lane that has ended, nil if there is none.
func (w *work) reuse(lane int) *exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := w.known.idle[lane]
	for i, ex := range idle {
		if !ex.putting {
			last := len(idle) - 1
			idle[i] = idle[last]
			w.known.idle[lane] = idle[:last]
			return ex
		}
	}
	return nil
}

// word returns an unused word. The driver may lock pages only after all work of the device, which waits for messages.
// So the goroutine moves messages meanwhile: w.mu is free.
func (w *work) word() (*uint32, error) {
	k := &w.known
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(k.free) == 0 {
		w.mu.Unlock()
		page, err := memory.Pin(0)
		w.mu.Lock()
		if err != nil {
			return nil, err
		}
		k.pages = append(k.pages, page)
		for at := 0; at < page.Size; at += memory.WordSize {
			k.free = append(k.free, (*uint32)(unsafe.Add(page.At, at)))
		}
	}
	last := len(k.free) - 1
	word := k.free[last]
	k.free = k.free[:last]
	return word, nil
}

// drop frees the exchange of a destroyed graph.
func (x *Path) drop(ex *exchange) {
	stream.DropPlace(ex.token)
	w := &x.work
	w.mu.Lock()
	defer w.mu.Unlock()
	k := &w.known
	for i := range k.all {
		if k.all[i] == ex {
			k.all[i] = k.all[len(k.all)-1]
			k.all = k.all[:len(k.all)-1]
			k.free = append(k.free, ex.word)
			return
		}
	}
}

// eager is how often the goroutine polls before it sleeps.
const eager = 200

// Longest sleeps between polls, while messages are under way and while there are none.
const (
	busyLook = 100 * time.Millisecond
	idleLook = time.Hour
)

// run moves messages until the path ends or the communicator fails. Then it lets all streams continue.
func (x *Path) run() {
	w := &x.work
	defer close(w.over)
	if _, ok := x.ends.(*plugin); ok {
		// Plugins may call the driver. The context is entered once, because a turn must not wait for the driver's lock.
		if err := x.driver.EnterContext(x.ctx); err != nil {
			x.c.Spread(err)
		} else {
			defer x.driver.Leave()
		}
	}
	defer x.letGo()
	for vain := 0; ; {
		armed, now := x.end.Arm(), time.Now()
		moved, err := x.turn()
		if err != nil {
			if errors.Is(err, transport.ErrPeerLost) {
				x.c.AwaitCause() // the peer may have failed and closed its queue pairs because of a third rank
			}
			x.c.Spread(x.withEpoch(err))
		}
		if w.halt.Load() || x.c.Failed() {
			return
		}
		switch {
		case moved:
			vain = 0
		case w.progress.active == 0:
			x.end.Wait(armed, idleLook)
		case vain < eager:
			vain++
			runtime.Gosched()
		default:
			if err := x.stalled(now); err != nil {
				x.c.Spread(err)
				return
			}
			x.end.Wait(armed, min(busyLook, x.c.Cfg.Timeout/4))
		}
	}
}

// turn begins the messages that streams have reached, moves all messages, and releases the streams whose messages have
// completed. Hot path: no allocation, no logging.
func (x *Path) turn() (moved bool, err error) {
	w, p := &x.work, &x.work.progress
	w.mu.Lock()
	p.taken, w.queue = w.queue, p.taken[:0]
	w.mu.Unlock()
	for _, ex := range p.taken {
		if err := x.end.Begin(&ex.group); err != nil {
			return false, err
		}
		p.active++
	}
	over, err := x.end.Poll()
	if err != nil {
		return false, err
	}
	if err := x.makeVisible(over); err != nil {
		return false, err
	}
	for _, g := range over {
		ex := g.Owner.(*exchange)
		word := ex.word
		if !ex.kept {
			w.mu.Lock()
			w.known.idle[ex.lane] = append(w.known.idle[ex.lane], ex)
			w.mu.Unlock()
		}
		p.active--
		atomic.StoreUint32(word, 1)
	}
	moved = len(p.taken)+len(over) > 0
	if moves := x.end.Moves(); moves != p.moves {
		p.moves, moved = moves, true
	}
	if moved {
		p.since = time.Time{}
	}
	return moved, nil
}

// makeVisible makes received data visible to the device, if the driver needs a flush. A port's completion says that
// the data has arrived. But completions are in host memory, and a device may order them differently from its own data.
func (x *Path) makeVisible(over []*messages.Group) error {
	if !x.access.flush {
		return nil
	}
	for _, g := range over {
		if !g.Owner.(*exchange).receives {
			continue
		}
		x.work.flushing.Add(1)
		if err := x.driver.EnterContext(x.ctx); err != nil {
			return err
		}
		defer x.driver.Leave()
		return x.driver.FlushRemote()
	}
	return nil
}

// stalled reports messages that have not moved for a [comm.Core.StallInterval], and fails the communicator after
// LIGHTPATH_TIMEOUT. now is a time before the last turn, which moved nothing.
func (x *Path) stalled(now time.Time) error {
	p := &x.work.progress
	if p.since.IsZero() {
		p.since, p.said = now, now
		return nil
	}
	recorder.Of(x.c).Notice()
	number := atomic.LoadUint32(x.ended.Word()) + 1
	on, waits := x.end.Waiting()
	if now.Sub(p.since) > x.c.Cfg.Timeout {
		return x.timedOut(number, on)
	}
	if waits && now.Sub(p.said) > x.c.StallInterval() {
		p.said = now
		kind := program.Recv
		if on.Send {
			kind = program.Send
		}
		for _, op := range recorder.Of(x.c).OfLaunch(number) {
			recorder.Of(x.c).Stalled(op.Number, exec.Wait{Rank: x.c.Rank, Op: op.Seq, Kind: kind, Peer: on.Peer, Plane: on.Plane,
				Bytes: on.Bytes})
			if op.Seq > 0 {
				stall.ReportShape(x.c, op.Seq, &op.Shape)
			}
		}
	}
	return nil
}

// timedOut returns the time-out error, and reports it for the calls of the launch.
func (x *Path) timedOut(number uint32, on messages.Wait) error {
	what := "receives"
	if on.Send && !on.Offered {
		what = "sends, and nobody receives there,"
	} else if on.Send {
		what = "sends"
	}
	err := fmt.Errorf("shim: rank %d: a message of %d bytes that it %s has not moved for %v: rank %d, plane %d%s: %w",
		x.c.Rank, on.Bytes, what, x.c.Cfg.Timeout, on.Peer, on.Plane, x.epochText(on.Plane), errdefs.ErrTimeout)
	stall.GiveUpLaunch(x.c, number, err)
	return err
}

// letGo ends all messages, and then releases all streams. After that no port writes into memory that a stream may use.
func (x *Path) letGo() {
	w := &x.work
	_ = errors.Join(x.end.Close(), x.ends.Close()) // there is no caller to tell
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.queue = true, nil
	for _, ex := range w.known.all {
		atomic.StoreUint32(ex.word, 1)
	}
}

// Stop implements [stream.Wire].
func (x *Path) Stop(bool) {
	x.work.halt.Store(true)
	x.end.Wake()
	<-x.work.over
	x.c.Log.Info(log.Net, "rank %d has sent %d bytes from memory of its device", x.c.Rank, x.end.Traffic())
}

// Free implements [stream.Wire]. It frees the rooms and the rest of the path. No stream uses them any more.
func (x *Path) Free() {
	for _, m := range x.memory.rooms {
		x.in.FreeMemory(m)
	}
	x.free()
}

// free frees everything except device memory.
func (x *Path) free() {
	w := &x.work
	recorder.Of(x.c).OnDevice(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ex := range w.known.all {
		stream.DropPlace(ex.token)
	}
	for _, r := range append(w.known.pages, x.ended) {
		memory.Unpin(r)
	}
	w.known, x.ended = exchanges{}, memory.Pinned{}
	if x.driver.EnterContext(x.ctx) != nil {
		return // the context was destroyed with everything in it
	}
	defer x.driver.Leave()
	if x.own != 0 {
		_ = x.driver.FreeStream(x.own)
	}
}
