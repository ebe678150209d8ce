package peer

import (
	"fmt"
	"sync/atomic"
	"time"

	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/session"
	"lightpath/shim/status"
)

// A peer must not use a lent buffer after the owner's stream has left the call. Tokens ensure this until the
// communicator fails. Then watchers set tokens that no peer has given back. From then on a grace period, as in RCU,
// protects the buffers. A stream that has withdrawn its words waits at its entry gate. Its watcher opens the gate when
// no peer runs a kernel that may have read the words.
//
// The gates are open until the communicator fails, so the stream does not stop at them. A watcher shuts the entry
// gates of all ranks before it releases the first stream. Then each rank's watcher opens one of its own two gates at a
// time.

const (
	// graceTimeout is how long a failed rank waits for peers whose process is alive and whose stream does not move. It
	// waits for each such peer once.
	graceTimeout = 10 * time.Second
	// longestTurn is the most that one check adds to the time waited. A process that was stopped has not waited, and
	// its peers may have been stopped with it.
	longestTurn = 100 * time.Millisecond
)

// grace is a watcher's record of its stream at the gates.
type grace struct {
	shut   bool             // the entry gates of all ranks have been shut
	stands bool             // the stream waits at its entry gate
	leaves bool             // the entry gate has been opened for the stream
	inside rankSet          // ranks that may run a kernel that has read a withdrawn word
	launch [maxRanks]uint32 // the launches that their streams were in
	gone   rankSet          // ranks that the watcher does not wait for any more
	waited time.Duration    // time waited for the ranks inside
	looked time.Time        // time of the last check
}

// passGates makes the stream, which has withdrawn its words, set settling and pass the gates. Hot path.
func (x *Path) passGates() {
	own := x.page.rank(x.me)
	x.queue.launch()
	x.queue.put(word{gives: true, Store: device.Store{At: x.page.wordOf(&own.settling), Value: 1}})
	x.queue.wait(x.page.wordOf(&own.gateIn))
	x.queue.write(&own.settling, 0)
	x.queue.wait(x.page.wordOf(&own.gateOut))
}

// shutGates shuts the entry gates of all ranks. The watcher calls it before it releases the first stream of a failed
// communicator. A stream that reaches its gate later may hold tokens that no peer gave back. A stream that passed its
// gate earlier holds tokens from peers that had read.
func (x *Path) shutGates() {
	if x.grace.shut {
		return
	}
	x.grace.shut = true
	for r := range x.n {
		atomic.StoreUint32(&x.page.rank(r).gateIn, 0)
	}
}

// peerFailed reports whether a rank has shut this rank's entry gate. That rank has failed, and streams of all ranks
// may have got invalid results since. A caller that asks whether its stream has finished so learns of the failure
// before the error arrives.
func (x *Path) peerFailed() bool {
	x.reading.Lock()
	defer x.reading.Unlock()
	return x.page != nil && len(x.page.mem) > 0 && atomic.LoadUint32(&x.page.rank(x.me).gateIn) == 0
}

// failIfPeerFailed fails the communicator before the caller accepts results that another rank's failure may have
// spoilt. The reason comes over the control network. If the failed rank ended before it sent the reason, the error
// says so.
func failIfPeerFailed(c *comm.Core) {
	if x := slot.Of(c); x == nil || c.AsyncError() != nil || !x.peerFailed() {
		return
	}
	wait := session.VerdictWait(c.Cfg.Timeout)
	select {
	case <-c.FailedChan():
	case <-time.After(wait):
		c.Spread(fmt.Errorf("shim: rank %d: another rank has failed, and has not said why in %v: %w",
			c.Rank, wait, errdefs.ErrRemote))
	}
}

// advanceGates moves the stream one step through its gates. It reports whether it made a step.
func (x *Path) advanceGates() bool {
	g, own := &x.grace, x.page.rank(x.me)
	settling := atomic.LoadUint32(&own.settling) != 0
	switch {
	case g.leaves && settling:
		atomic.StoreUint32(&own.gateIn, 1) // write it again: a peer that failed later may have shut it
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
		// The stream may have passed the entry gate before a watcher shut it. Then the exit gate must not hold the
		// stream. If settling is still set, the stream is at the entry gate, perhaps of a later call.
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

// lookInside begins a grace period: it notes which launches the peers' streams are in.
func (x *Path) lookInside() {
	g := &x.grace
	g.inside, g.waited, g.looked = 0, 0, time.Now()
	for r := range x.n {
		if r == x.me || g.gone.has(r) {
			continue
		}
		theirs := x.page.rank(r)
		// The stream clears waited when it begins a launch. A replay of a graph has the same launch number again.
		atomic.StoreUint32(&theirs.waited, 1)
		if g.launch[r] = atomic.LoadUint32(&theirs.current); g.launch[r] != 0 {
			g.inside |= one(r)
		}
	}
}

// unused reports whether all peers have been outside since lookInside. It ignores peers in gone.
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

// outside reports whether a peer's stream has run no kernel at some time since lookInside: it was between launches or
// at a gate, or its process is gone.
func (x *Path) outside(r int) bool {
	theirs := x.page.rank(r)
	return atomic.LoadUint32(&theirs.settling) != 0 || atomic.LoadUint32(&theirs.waited) == 0 ||
		atomic.LoadUint32(&theirs.current) != x.grace.launch[r] ||
		x.far(r) && status.ProcessAnswer(x.c.Table[r].PID) == status.Gone
}
