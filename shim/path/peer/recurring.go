package peer

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/settings"
)

// A rank also lends memory that the program has not registered: docs/design/peer-memory.md, Recurring memory. The
// watcher publishes memory of ncclMemAlloc at once; WithdrawAt withdraws it before it is freed. It publishes other
// allocations when a second launch uses them. The program frees these without notice, so each call and the watcher
// compare their numbers.

const (
	sightings  = 1024 // how many allocations are remembered after their first use
	mostOffers = 32   // how many allocations may wait for the watcher
	// longUnused is how many launches have not lent a region that makes room for another one. An offer that was refused
	// is repeated after as many.
	longUnused = 1000
	// fewUses and mostShort end a communicator's search for recurring memory: so many allocations could not be published,
	// or were freed before so many launches had lent them.
	fewUses   = 16
	mostShort = 64
	// sweepPause is the least time between comparisons of all numbers.
	sweepPause = time.Second
)

// unasked is what a rank knows of memory that the program has not registered. Device.Mu guards it.
type unasked struct {
	tried  map[uintptr]bool // addresses of ncclMemAlloc memory that publishUnasked has tried to publish
	seen   [sightings]sighting
	offers []offer
	taken  []offer     // not tried yet; only the watcher uses it
	stale  bool        // a call has found an allocation gone
	short  int         // number of allocations that were published in vain
	off    bool        // no more recurring memory is published
	some   atomic.Bool // there are recurring regions
	swept  time.Time   // only the watcher uses it
	said   bool        // the log has told of memory that cannot be published
}

// sighting is an allocation that a launch has used.
type sighting struct {
	id      uint64
	end     uintptr // of the buffer
	number  uint32  // of the launch
	offered bool
}

// offer is a buffer in recurring memory.
type offer struct{ at, size uintptr }

// begin sets up the search.
func (u *unasked) begin(cfg *settings.Config) {
	u.tried, u.offers = make(map[uintptr]bool), make([]offer, 0, mostOffers)
	u.off = cfg.Device.Register == settings.RegisterExplicit
}

// notice notes that a launch has used a buffer of an allocation. When a second launch does, it offers the buffer to the
// watcher. Hot path.
func (x *Path) notice(at unsafe.Pointer, size int64, id uint64) {
	u := &x.published.unasked
	if u.off || id == 0 {
		return
	}
	s, end := &u.seen[id%sightings], uintptr(at)+uintptr(size)
	switch {
	case s.id != id, end > s.end, s.offered && x.launch.number-s.number > longUnused:
		*s = sighting{id: id, end: end, number: x.launch.number}
	case !s.offered && s.number != x.launch.number && len(u.offers) < cap(u.offers):
		s.offered, s.number = true, x.launch.number
		u.offers = append(u.offers, offer{uintptr(at), uintptr(size)})
		x.news.tell()
	}
}

// forget lets what is left of a withdrawn region be offered again.
func (u *unasked) forget(r *region) {
	for _, p := range r.pieces {
		if s := &u.seen[p.id%sightings]; s.id == p.id {
			*s = sighting{}
		}
	}
}

// publishUnasked publishes memory of ncclMemAlloc in the communicator's context, and recurring memory. It first
// withdraws recurring memory that is gone. It returns again if a call holds the lock: the watcher must then try again.
func (x *Path) publishUnasked() (again bool) {
	if x.n == 1 {
		return false
	}
	if !x.dev.Mu.TryLock() {
		return true
	}
	u := &x.published.unasked
	news := u.stale && x.sweep()
	// The lock keeps this memory allocated: freeing it calls WithdrawAt, which takes the lock.
	for _, m := range memory.InContext(x.dev.Context) {
		if !u.tried[m.Base] && len(u.tried) < maxUnasked {
			u.tried[m.Base] = true
			news = x.publishLibrary(&m) || news
		}
	}
	u.taken = append(u.taken, u.offers...)
	u.offers = u.offers[:0]
	x.dev.Mu.Unlock()
	for len(u.taken) > 0 && !again {
		var published bool
		if published, again = x.publishRecurring(u.taken[0]); !again {
			u.taken = u.taken[1:]
		}
		news = news || published
	}
	if news {
		x.tellRegions()
	}
	return again
}

// publishLibrary publishes an allocation of ncclMemAlloc. It reports whether it succeeded. Device.Mu must be held.
func (x *Path) publishLibrary(m *memory.Region) bool {
	at := *(*unsafe.Pointer)(unsafe.Pointer(&m.Base))
	r, handle, err := x.export(at, m.Size)
	if err == nil {
		r.origin = library
		err = x.enter(r, &handle)
	}
	if err != nil {
		x.c.Log.Info(log.Init, "memory of ncclMemAlloc at %p is exchanged by way of copies: %v", at, err)
	}
	return err == nil
}

// publishRecurring publishes the allocations that hold a buffer, whole. It returns again if a call holds the lock. That
// call may wait for the watcher.
func (x *Path) publishRecurring(o offer) (news, again bool) {
	r, handle, err := x.export(*(*unsafe.Pointer)(unsafe.Pointer(&o.at)), o.size)
	if !x.dev.Mu.TryLock() {
		x.releasePieces(r)
		return false, true
	}
	defer x.dev.Mu.Unlock()
	if err == nil {
		last := r.pieces[len(r.pieces)-1]
		r.origin, r.at, r.size = recurring, r.base(), last.base+last.size-r.base()
		if slices.ContainsFunc(x.published.regions, r.covers) || !x.makeRoom() {
			x.releasePieces(r)
			return false, false
		}
		err = x.enter(r, &handle)
	}
	if err != nil {
		x.published.unasked.short++
		x.giveUp()
	}
	if err != nil && !x.published.unasked.said {
		x.published.unasked.said = true
		x.c.Log.Info(log.Init, "memory at %#x recurs in calls, and is exchanged by way of copies: %v. "+
			"More such memory is not reported", o.at, err)
	}
	x.published.unasked.some.Store(x.published.unasked.some.Load() || err == nil)
	return err == nil, false
}

// covers reports whether another region has the same allocations.
func (r *region) covers(other *region) bool {
	return other.at <= r.at && other.at+other.size >= r.at+r.size && slices.Contains(other.pieces, r.pieces[0])
}

// makeRoom reports whether recurring memory may be published. If its half of the table is full, it withdraws the region
// that was not lent for longest, if that is long. Device.Mu must be held.
func (x *Path) makeRoom() bool {
	var oldest *region
	n := 0
	for _, r := range x.published.regions {
		if r.origin == asked {
			continue
		}
		if n++; r.origin == recurring && (oldest == nil || int32(r.used-oldest.used) < 0) {
			oldest = r
		}
	}
	if n < maxUnasked {
		return true
	}
	return oldest != nil && x.launch.number-oldest.used > longUnused && x.retire(oldest) == nil
}

// sweep withdraws recurring memory that is gone. It reports whether there was some. Device.Mu must be held.
func (x *Path) sweep() (news bool) {
	u := &x.published.unasked
	u.stale = false
	some := false
	for i := len(x.published.regions) - 1; i >= 0; i-- {
		r := x.published.regions[i]
		if r.origin != recurring {
			continue
		}
		if x.lives(r) || x.retire(r) != nil { // a region that a graph uses stays
			some = true
			continue
		}
		news = true
		if r.uses < fewUses {
			u.short++
			x.giveUp()
		}
	}
	u.some.Store(some)
	return news
}

// giveUp ends the search if it has found too little.
func (x *Path) giveUp() {
	if u := &x.published.unasked; u.short >= mostShort && !u.off {
		u.off = true
		x.c.Log.Info(log.Init, "%d allocations recurred and were freed before %d more calls, or cannot be used in place: "+
			"from now on only memory that the program registers is", u.short, fewUses)
	}
}

// lives reports whether the program has freed none of a region's allocations.
func (x *Path) lives(r *region) bool {
	return !slices.ContainsFunc(r.pieces, func(p piece) bool {
		return x.numberAt(p.base) != p.id ||
			r.mapped && !x.driver.IsPiece(*(*unsafe.Pointer)(unsafe.Pointer(&p.base)), p.handle)
	})
}

// sweepSometimes makes the watcher compare all numbers, once in a while. So memory that the program has freed does not
// stay allocated because peers have it open.
func (x *Path) sweepSometimes() {
	u := &x.published.unasked
	if !u.some.Load() || time.Since(u.swept) < sweepPause || !x.dev.Mu.TryLock() {
		return
	}
	u.swept = time.Now()
	news := x.sweep()
	x.dev.Mu.Unlock()
	if news {
		x.tellRegions()
	}
}

// libraryAt returns the region of memory of ncclMemAlloc that holds a buffer, nil if there is none.
func (x *Path) libraryAt(at unsafe.Pointer, size uintptr) *region {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	all := x.published.regions
	i := slices.IndexFunc(all, func(r *region) bool { return r.origin == library && r.spans(at, int64(size)) })
	if i < 0 {
		return nil
	}
	return all[i]
}

// WithdrawAt withdraws memory of ncclMemAlloc that is about to be freed.
func (x *Path) WithdrawAt(at unsafe.Pointer) {
	x.dev.Mu.Lock()
	delete(x.published.unasked.tried, uintptr(at))
	i := slices.IndexFunc(x.published.regions, func(r *region) bool { return r.origin == library && r.at == uintptr(at) })
	var r *region
	if i >= 0 {
		r = x.published.regions[i]
	}
	x.dev.Mu.Unlock()
	if r != nil {
		_ = x.withdraw(r) // cannot fail: retire refuses only memory that the program has registered
	}
}

// Context implements memory.DeviceUser.
func (x *Path) Context() device.Context { return x.dev.Context }

// MemoryAdded implements memory.DeviceUser.
func (x *Path) MemoryAdded() { x.news.tell() }
