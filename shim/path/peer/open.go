package peer

import (
	"math"
	"sync"
	"time"
	"unsafe"

	"lightpath/shim/control"
	"lightpath/shim/log"
	"lightpath/shim/stream"
)

// How this rank opens what its peers have published, and closes what they have withdrawn.

// openRegion is a region of a peer that this rank has opened. Only the watcher uses it.
type openRegion struct {
	serial   uint64
	at       unsafe.Pointer
	size     int64
	imported bool // from another process
	mapped   bool // from pieces

	failed uint64    // serial of the region that could not be opened
	tries  int       // how often
	next   time.Time // when to try again
}

// opened is what this rank has opened. Only the watcher uses it, except owners.
type opened struct {
	regions []openRegion // of all ranks, maxRegions each
	again   *time.Timer  // until the watcher looks at regions again
	unquiet time.Time    // since when opening or closing waits for pending launches
	owners  rankSet      // ranks that may lend buffers: this rank has opened a region of theirs
}

// The pauses between looks for a moment without pending launches. They grow as the wait does.
const (
	quietSoon   = 200 * time.Microsecond
	quietLatest = 20 * time.Millisecond
)

// A region that cannot be opened may be at an address where another communicator still has earlier memory open. So the
// watcher tries again, after pauses that double. The log tells of the first failure after a few.
const (
	tryAgain   = 500 * time.Millisecond
	mostDouble = 6
	tellAfter  = 4
	never      = time.Duration(math.MaxInt64)
)

// tellRegions makes all ranks look at the regions of their peers.
func (x *Path) tellRegions() {
	_ = x.c.Star.ToLeader(&control.Message{Kind: control.MsgRegions}) // another goroutine notices a lost leader
}

// opening is one look of a watcher at the regions of its peers.
type opening struct {
	again  bool          // it must try again to acknowledge some
	waits  bool          // some regions wait for a moment without launches
	later  time.Duration // until it must try again to open some
	asked  bool          // it has looked for such a moment
	resume func()        // ends that moment; nil if there is none
}

// openRegions closes what peers have withdrawn, then opens what they have published. A driver may refuse to open memory
// at an address whose earlier memory is open.
func (x *Path) openRegions() (o opening) {
	o.later = never
	if x.n == 1 || x.driver.EnterContext(x.dev.Context) != nil {
		return o
	}
	defer x.driver.Leave()
	defer func() {
		if o.resume != nil {
			o.resume()
		}
	}()
	x.eachOpen(func(owner, i int, own *openRegion, rec *regionRecord) {
		if own.serial != 0 && own.serial != rec.serial.Load() && x.may(&o, own.imported) {
			x.closeRegion(owner, i, func(free func()) { free() })
		}
	})
	x.eachOpen(func(owner, _ int, own *openRegion, rec *regionRecord) {
		serial := rec.serial.Load()
		if own.serial != 0 || serial == 0 {
			return
		}
		if wait := time.Until(own.next); own.failed == serial && wait > 0 {
			o.later = min(o.later, wait)
			return
		}
		if !x.may(&o, x.far(owner)) {
			rec.opened[x.me].later.Store(serial)
			return
		}
		if x.openOne(owner, rec, own, serial); own.failed == serial {
			o.later = min(o.later, time.Until(own.next))
		}
	})
	x.eachOpen(func(owner, _ int, own *openRegion, rec *regionRecord) {
		if own.at != nil && own.serial == rec.serial.Load() && rec.opened[x.me].serial.Load() != own.serial {
			o.again = !x.sayOpen(owner, rec, own) || o.again
		}
	})
	return o
}

// eachOpen calls f for the records of all peers.
func (x *Path) eachOpen(f func(owner, index int, own *openRegion, rec *regionRecord)) {
	for owner := range x.n {
		for i := 0; i < maxRegions && owner != x.me; i++ {
			f(owner, i, &x.opened.regions[owner*maxRegions+i], x.recordOf(owner, i))
		}
	}
}

// far reports whether a rank is in another process.
func (x *Path) far(rank int) bool { return x.c.Table[rank].Process != x.c.Table[x.me].Process }

// may reports whether the watcher may open or close a region now. Mappings of other processes' memory may make the
// driver wait for the device, while it keeps others from enqueuing. So they need a moment without launches.
func (x *Path) may(o *opening, far bool) bool {
	if !far {
		return true
	}
	if !o.asked {
		o.asked, o.resume = true, x.quiet()
	}
	o.waits = o.waits || o.resume == nil
	return o.resume != nil
}

// inUse holds the paths of this process, so that each can see the graphs of the others.
var inUse struct {
	mu  sync.Mutex
	all map[*Path]bool
}

func (x *Path) setInUse(in bool) {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if inUse.all == nil {
		inUse.all = map[*Path]bool{}
	}
	if in {
		inUse.all[x] = true
	} else {
		delete(inUse.all, x)
	}
}

// quiet returns nil if a launch of some communicator is pending in the context. Otherwise none begins, except those of
// graphs, until the caller calls the result.
func (x *Path) quiet() (resume func()) {
	if resume = stream.Quiet(x.dev.Context); resume == nil {
		return nil
	}
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	for p := range inUse.all {
		if p.dev.Context == x.dev.Context && p.busy() {
			resume()
			return nil
		}
	}
	return resume
}

// openOne opens a region of a peer. If the driver cannot open it, this rank does not acknowledge it, and the memory
// goes through slots.
func (x *Path) openOne(owner int, rec *regionRecord, own *openRegion, serial uint64) {
	handle, base, size, mapped := rec.handle, rec.base.Load(), rec.size, rec.mapped
	holds := &rec.opened[x.me].holds
	holds.Store(serial)
	if rec.serial.Load() != serial {
		holds.Store(0)
		return // it has changed; the owner announces that by a message
	}
	tries := 1
	if own.failed == serial {
		tries = own.tries + 1
	}
	*own = openRegion{serial: serial, size: int64(size), mapped: mapped}
	var err error
	switch {
	case !x.far(owner):
		own.at = *(*unsafe.Pointer)(unsafe.Pointer(&base))
		err = x.reachPieces(own.at, int64(size), mapped)
	case mapped:
		own.at, err = x.importPieces(owner, serial, int64(size))
		own.imported = err == nil
	default:
		own.at, err = x.driver.Import(&handle)
		own.imported = err == nil
	}
	if err != nil {
		*own = openRegion{failed: serial, tries: tries, next: time.Now().Add(tryAgain << min(tries-1, mostDouble))}
		holds.Store(0)
	}
	if err != nil && tries == tellAfter {
		x.c.Log.Info(log.Init, "registered memory of %s is exchanged by way of copies: %v",
			x.c.Table[owner].Where(), err)
	}
}

// reachPieces gives the context access to memory of another context of this process.
func (x *Path) reachPieces(at unsafe.Pointer, size int64, mapped bool) error {
	if !mapped {
		return x.driver.Reach(at)
	}
	for off := int64(0); off < size; {
		base, extent, err := x.driver.Allocation(unsafe.Add(at, off))
		if err == nil {
			err = x.driver.Reach(base)
		}
		if err != nil {
			return err
		}
		off += extent
	}
	return nil
}

// sayOpen acknowledges a region: from its next call on, this rank checks whether the owner lends it. It returns false
// if a call is being put on its streams.
func (x *Path) sayOpen(owner int, rec *regionRecord, own *openRegion) bool {
	if !x.queue.putting.TryLock() {
		return false
	}
	defer x.queue.putting.Unlock()
	said := &rec.opened[x.me]
	said.at.Store(uint64(uintptr(own.at)))
	said.since.Store(x.counts.calls)
	said.wanted.Store(x.counts.wanted[owner])
	said.serial.Store(own.serial)
	x.opened.owners |= one(owner)
	return true
}

// closeRegions closes all regions that this rank has opened.
func (x *Path) closeRegions() {
	if x.driver.EnterContext(x.dev.Context) != nil {
		return // the context is gone, with everything in it
	}
	defer x.driver.Leave()
	for i := range x.opened.regions {
		if x.opened.regions[i].at != nil {
			x.closeRegion(i/maxRegions, i%maxRegions, x.dev.Pool.Later)
		}
	}
}

// closeRegion closes a region of a peer if this rank has opened it. when says when the driver may close it.
func (x *Path) closeRegion(owner, index int, when func(free func())) {
	own := &x.opened.regions[owner*maxRegions+index]
	at, size := own.at, own.size
	switch {
	case own.imported && own.mapped:
		when(func() { _ = x.driver.ClosePieces(at, size) })
	case own.imported:
		when(func() { _ = x.driver.Close(at) })
	}
	if own.at != nil {
		x.recordOf(owner, index).opened[x.me].holds.Store(0)
	}
	*own = openRegion{}
}

// lookAtRegions publishes memory of this rank, and opens what peers have published. It tries again later where a call
// holds a lock, or launches are pending.
func (x *Path) lookAtRegions() {
	if x.c.Failed() { // streams may still use what is open
		return
	}
	x.sweepSometimes()
	again := x.publishUnasked()
	o := x.openRegions()
	switch {
	case o.again || again:
		x.lookAgain(regionsAgain)
	case o.waits && x.opened.unquiet.IsZero():
		x.opened.unquiet = time.Now()
		x.lookAgain(quietSoon)
	case !o.waits && o.later < never:
		x.lookAgain(o.later)
	case o.waits:
		x.lookAgain(min(max(time.Since(x.opened.unquiet)/16, quietSoon), quietLatest))
	}
	if !o.waits {
		x.opened.unquiet = time.Time{}
	}
}

// lookAgain makes the watcher look after a pause, which replaces an earlier one.
func (x *Path) lookAgain(pause time.Duration) {
	if x.opened.again == nil {
		x.opened.again = time.AfterFunc(pause, x.news.tell)
		return
	}
	x.opened.again.Reset(pause)
}
