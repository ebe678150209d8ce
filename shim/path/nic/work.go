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
	"lightpath/collectives/transport/rdma/rendezvous"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/stall"
	"lightpath/shim/stream"
)

// exchange is a round of messages, which begins when a stream has come to it. Its word is 1 when they are over; the stream sets it
// back.
type exchange struct {
	x        *Path
	lane     int
	token    stream.Token
	word     *uint32
	kept     bool // by a graph
	putting  bool // its end is not on the stream yet
	receives bool
	group    rendezvous.Group
}

// work is what the goroutine that works on messages has; it lives as long as the path. An exchange that is over serves
// its lane again: what a lane puts on streams follows itself there, so nothing of the old one is left when the new one begins.
type work struct {
	mu    sync.Mutex
	idle  [][]*exchange // by lane
	all   []*exchange   // but for those of graphs that are gone
	queue []*exchange   // that streams have come to
	words []memory.Pinned
	free  []*uint32
	ended bool // nothing moves any more; streams do not wait

	over chan struct{} // closed when the goroutine has ended
	halt atomic.Bool
	// flushing counts how often the device has been asked to see what has come.
	flushing atomic.Int64
	once     sync.Once
	err      error // of the end

	// The goroutine's own:
	taken  []*exchange
	active int
	since  time.Time // that nothing has moved
	moves  uint64
	said   time.Time
}

// Come implements [stream.Place]: it begins the messages. Hot path: no allocation.
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

// take returns an exchange that nobody uses. That of a graph lives as long as the graph.
func (x *Path) take(lane int) (*exchange, error) {
	w := &x.work
	w.mu.Lock()
	defer w.mu.Unlock()
	captured := x.capture.ID != 0
	for i, ex := range w.idle[lane] {
		if !ex.putting && !captured {
			last := len(w.idle[lane]) - 1
			w.idle[lane][i] = w.idle[lane][last]
			w.idle[lane] = w.idle[lane][:last]
			return ex, nil
		}
	}
	if len(w.free) == 0 {
		r, err := memory.Pin(0)
		if err != nil {
			return nil, err
		}
		w.words = append(w.words, r)
		for at := 0; at < r.Size; at += memory.WordSize {
			w.free = append(w.free, (*uint32)(unsafe.Add(r.At, at)))
		}
	}
	ex := &exchange{x: x, lane: lane, kept: captured, word: w.free[len(w.free)-1]}
	ex.group.Owner = ex
	if captured {
		if err := stream.OnGraphGone(x.capture, func() { x.drop(ex) }); err != nil {
			return nil, err
		}
	}
	w.free = w.free[:len(w.free)-1]
	atomic.StoreUint32(ex.word, 0)
	ex.token = stream.AddPlace(ex)
	w.all = append(w.all, ex)
	return ex, nil
}

// drop forgets the exchange of a graph that is gone.
func (x *Path) drop(ex *exchange) {
	stream.DropPlace(ex.token)
	w := &x.work
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		if w.all[i] == ex {
			w.all[i] = w.all[len(w.all)-1]
			w.all = w.all[:len(w.all)-1]
			w.free = append(w.free, ex.word)
			return
		}
	}
}

// eager is how often who works on messages looks again before it sleeps.
const eager = 200

// Looks while something is under way, and while nothing is.
const (
	busyLook = 100 * time.Millisecond
	idleLook = time.Hour
)

// run works on messages until the path ends or the communicator fails, and lets all streams go then.
func (x *Path) run() {
	w := &x.work
	defer close(w.over)
	defer x.letGo()
	for vain := 0; ; {
		armed, now := x.end.Arm(), time.Now()
		moved, err := x.turn()
		if err != nil {
			if errors.Is(err, transport.ErrPeerLost) {
				x.c.AwaitCause() // it may have failed, and closed its queue pairs, for what a third rank has done
			}
			x.c.Spread(x.withEpoch(err))
		}
		if w.halt.Load() || x.c.Failed() {
			return
		}
		switch {
		case moved:
			vain = 0
		case w.active == 0:
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

// turn begins what streams have come to, moves everything on, and lets the streams go whose messages are over.
// Hot path: no allocation, no logging.
func (x *Path) turn() (moved bool, err error) {
	w := &x.work
	w.mu.Lock()
	w.taken, w.queue = w.queue, w.taken[:0]
	w.mu.Unlock()
	for _, ex := range w.taken {
		if err := x.end.Begin(&ex.group); err != nil {
			return false, err
		}
		w.active++
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
			w.idle[ex.lane] = append(w.idle[ex.lane], ex)
			w.mu.Unlock()
		}
		w.active--
		atomic.StoreUint32(word, 1)
	}
	moved = len(w.taken)+len(over) > 0
	if moves := x.end.Moves(); moves != w.moves {
		w.moves, moved = moves, true
	}
	if moved {
		w.since = time.Time{}
	}
	return moved, nil
}

// makeVisible has the device see what has come for it, where it does not by itself. A port's completions say that data is where it was
// sent; but they are in the memory of the host, and a device may order what comes for it otherwise.
func (x *Path) makeVisible(over []*rendezvous.Group) error {
	if !x.flush {
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

// stalled says what has not moved for a second, and ends the communicator after LIGHTPATH_TIMEOUT. now is from before the last turn, which
// has found nothing.
func (x *Path) stalled(now time.Time) error {
	w := &x.work
	if w.since.IsZero() {
		w.since, w.said = now, now
		return nil
	}
	recorder.Of(x.c).Notice()
	number := atomic.LoadUint32(x.ended.Word()) + 1
	on, waits := x.end.Waiting()
	if now.Sub(w.since) > x.c.Cfg.Timeout {
		return x.timedOut(number, on)
	}
	if waits && now.Sub(w.said) > time.Second {
		w.said = now
		kind := program.Recv
		if on.Send {
			kind = program.Send
		}
		for _, op := range recorder.Of(x.c).OfLaunch(number) {
			recorder.Of(x.c).Stalled(op.Number, exec.Wait{Rank: x.c.Rank, Op: op.Seq, Kind: kind, Peer: on.Peer, Plane: on.Plane, Bytes: on.Bytes})
			if op.Seq > 0 {
				stall.ReportShape(x.c, op.Seq, &op.Shape)
			}
		}
	}
	return nil
}

// timedOut ends the communicator.
func (x *Path) timedOut(number uint32, on rendezvous.Wait) error {
	what := "receives"
	if on.Send && !on.Offered {
		what = "sends, and nobody receives there,"
	} else if on.Send {
		what = "sends"
	}
	err := fmt.Errorf("shim: rank %d: a message of %d bytes that it %s has not moved for %v: rank %d, plane %d%s: %w",
		x.c.Rank, on.Bytes, what, x.c.Cfg.Timeout, on.Peer, on.Plane, x.epochText(on.Plane), errdefs.ErrTimeout)
	stall.LaunchTimedOut(x.c, number, err)
	return err
}

// letGo ends all messages, and then lets all streams go: nothing is written into memory any more that a stream has been told is
// its own.
func (x *Path) letGo() {
	w := &x.work
	w.err = errors.Join(x.end.Close(), x.ports.Close())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended, w.queue = true, nil
	for _, ex := range w.all {
		atomic.StoreUint32(ex.word, 1)
	}
}

// stop ends the path, when nothing is on streams any more or the communicator has failed. Idempotent.
func (x *Path) stop() error {
	x.work.once.Do(func() {
		x.work.halt.Store(true)
		x.end.Wake()
		<-x.work.over
		x.c.Log.Info(log.Net, "rdma: rank %d has sent %d bytes from memory of its device", x.c.Rank, x.end.Traffic())
	})
	return x.work.err
}

// Free implements [stream.Wire]: it gives back what streams have used that have left it for good.
func (x *Path) Free() {
	for _, m := range x.rooms {
		x.in.FreeMemory(m)
	}
	x.free()
}

// free gives back all but memory of the device.
func (x *Path) free() {
	w := &x.work
	recorder.Of(x.c).OnDevice(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ex := range w.all {
		stream.DropPlace(ex.token)
	}
	for _, r := range append(w.words, x.ended) {
		memory.Unpin(r)
	}
	w.all, w.words, w.free, x.ended = nil, nil, nil, memory.Pinned{}
	if x.driver.EnterContext(x.ctx) != nil {
		return // the context is gone, and all that was in it
	}
	defer x.driver.Leave()
	if x.own != 0 {
		_ = x.driver.FreeStream(x.own)
	}
	if x.joint != 0 {
		_ = x.driver.FreeEvent(x.joint)
	}
}
