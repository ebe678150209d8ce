package peer

import (
	"fmt"
	"sync/atomic"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/errdefs"
	"lightpath/shim/session"
	"lightpath/shim/status"
)

// What a rank lends may not be used any more when its stream has left the call. Tokens say so until the communicator fails and watchers
// hand out tokens that nobody has given back. From then on there is a grace period, as of RCU: a stream that has taken its words back
// stands between two gates until all others have been seen outside of kernels that may have found them.
//
// The gates are open while the communicator is sound, so the stream runs through. The first watcher that lets a stream go has shut
// those in of all ranks before it hands out a token; then the rank's own watcher opens one of its two gates at a time.

const (
	// graceTimeout is for how long a rank that has failed waits, once, for each other one whose process is there and whose stream does not move.
	graceTimeout = 10 * time.Second
	// longestTurn is how much of that may pass from one look to the next: who has been stopped has not been waiting, and the others may have been stopped with it.
	longestTurn = 100 * time.Millisecond
)

// grace is what a watcher knows of its stream at the gates.
type grace struct {
	shut   bool             // the gates in of all ranks
	stands bool             // the stream does, before the gate in
	leaves bool             // that has been opened for it
	inside rankSet          // ranks that may have a kernel which has found a word
	launch [maxRanks]uint32 // that their streams were in
	gone   rankSet          // ranks that are not waited for any more
	waited time.Duration    // for them
	looked time.Time        // last
}

// passGates has the stream, which has taken its words back, say so and pass the gates. Hot path.
func (x *Path) passGates() {
	own := x.page.rank(x.me)
	x.write(&own.settling, 1)
	x.word(x.page.wordOf(&own.gateIn), 1, 1)
	x.write(&own.settling, 0)
	x.word(x.page.wordOf(&own.gateOut), 1, 1)
}

// shutGates comes before the first stream of a communicator that has failed is let go: who passes a gate later has its tokens of nobody,
// who has passed it has them of those who have read.
func (x *Path) shutGates() {
	if x.grace.shut {
		return
	}
	x.grace.shut = true
	for r := range x.n {
		atomic.StoreUint32(&x.page.rank(r).gateIn, 0)
	}
}

// peerFailed reports whether a rank has shut this one's gates: it has failed, and from then on streams of all may have got results that are void. So who asks
// after its stream is through hears of it, whether or not the error has come.
func (x *Path) peerFailed() bool {
	x.reading.Lock()
	defer x.reading.Unlock()
	return x.page != nil && len(x.page.mem) > 0 && atomic.LoadUint32(&x.page.rank(x.me).gateIn) == 0
}

// failIfPeerFailed has the communicator fail before anybody takes results for good that another rank's failure has spoilt. The reason comes by the control
// network, but for that of a rank that is gone before it says so.
func failIfPeerFailed(c *comm.Core) {
	if x := slot.Of(c); x == nil || c.AsyncError() != nil || !x.peerFailed() {
		return
	}
	select {
	case <-c.FailedChan():
	case <-time.After(session.VerdictWait):
		c.Spread(fmt.Errorf("shim: rank %d: another rank has failed, and has not said why in %v: %w", c.Rank, session.VerdictWait, errdefs.ErrRemote))
	}
}

// advanceGates leads the stream through its gates, one step at a time. It reports whether it has done one.
func (x *Path) advanceGates() bool {
	g, own := &x.grace, x.page.rank(x.me)
	settling := atomic.LoadUint32(&own.settling) != 0
	switch {
	case g.leaves && settling:
		atomic.StoreUint32(&own.gateIn, 1) // again: another rank that fails may have shut it
		return false
	case g.leaves:
		atomic.StoreUint32(&own.gateIn, 0)
		atomic.StoreUint32(&own.gateOut, 1)
		g.leaves = false
	case g.stands:
		if !x.unused() {
			return false
		}
		g.stands, g.leaves = false, true
		atomic.StoreUint32(&own.gateIn, 1)
	case settling:
		// It may have been through the gate in before that was shut. Then it is not held at the one out, or has come to the next settle.
		atomic.StoreUint32(&own.gateOut, 0)
		if atomic.LoadUint32(&own.settling) == 0 {
			atomic.StoreUint32(&own.gateOut, 1)
			return true
		}
		g.stands = true
		x.lookInside()
	default:
		return false
	}
	return true
}

// lookInside begins a grace period: it notes which launches the streams of the others are in.
func (x *Path) lookInside() {
	g := &x.grace
	g.inside, g.waited, g.looked = 0, 0, time.Now()
	for r := range x.n {
		if r == x.me || g.gone.has(r) {
			continue
		}
		theirs := x.page.rank(r)
		atomic.StoreUint32(&theirs.waited, 1) // the stream clears it when it begins a launch, which may have the number of the last: a graph's
		if g.launch[r] = atomic.LoadUint32(&theirs.current); g.launch[r] != 0 {
			g.inside |= one(r)
		}
	}
}

// unused reports whether all others have been outside since, or are not waited for any more.
func (x *Path) unused() bool {
	g := &x.grace
	for r := range x.n {
		if g.inside.has(r) && x.outside(r) {
			g.inside = g.inside.without(r)
		}
	}
	now := time.Now()
	g.waited += min(now.Sub(g.looked), longestTurn)
	g.looked = now
	if g.waited > graceTimeout {
		g.gone |= g.inside
		g.inside = 0
	}
	return g.inside == 0
}

// outside reports whether a rank's stream is or has been where it runs no kernel: between launches or gates, or in a process that is gone.
func (x *Path) outside(r int) bool {
	theirs := x.page.rank(r)
	return atomic.LoadUint32(&theirs.settling) != 0 || atomic.LoadUint32(&theirs.waited) == 0 ||
		atomic.LoadUint32(&theirs.current) != x.grace.launch[r] ||
		theirs.process != x.page.rank(x.me).process && status.ProcessAnswer(x.c.Table[r].PID) == status.Gone
}
