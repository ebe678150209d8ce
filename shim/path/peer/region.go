package peer

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/errdefs"
	"lightpath/shim/log"
	"lightpath/shim/stream"
)

// Other ranks read and write the registered memory of a device in place: docs/design/peer-memory.md, Registered memory.
// The registering rank publishes the memory in the page. The watchers of all other ranks open it and confirm that in
// the page. After its confirmation a rank checks in each call whether the registering rank lends its buffer. The
// registering rank lends only buffers that all other ranks have opened before the call.

// maxRegions is how many registrations of a rank the others can open at a time; what is registered beyond goes through slots. Half
// of them at most are memory of ncclMemAlloc that nobody has registered.
const (
	maxRegions        = 128
	maxAutoregistered = maxRegions / 2
	regionPauses      = 50 * time.Microsecond // between looks at what the others have said, at first
	longestPauses     = 5 * time.Millisecond
)

// openTime is how long a registration waits for the others to open it, and one that ends for them to close it. It is good without: calls
// made meanwhile use slots.
const openTime = time.Second

// regionRecord is a registration, in the page.
type regionRecord struct {
	serial atomic.Uint64 // its number, never used again at this rank; 0: none. Whoever finds it, before and after, may believe the rest
	base   atomic.Uint64 // of the allocation, where its rank has it
	handle device.Handle // of the allocation
	opened [maxRanks]regionOpened
}

// regionOpened is what another rank says of a registration.
type regionOpened struct {
	holds  atomic.Uint64 // which it opens, or has open
	serial atomic.Uint64 // which it has opened, so that it looks
	since  atomic.Uint64 // its collectives so far: it looks in those that follow
	wanted atomic.Uint64 // and what it has received from the registering rank so far
	at     atomic.Uint64 // where it has the allocation
}

// region is memory that this rank has registered, or that the library has allocated.
type region struct {
	auto     bool // the library has
	index    int  // in the page
	serial   uint64
	at, size uintptr
	base     uintptr // of the allocation
	id       uint64  // of the allocation
	opened   bool    // by all others: then since is the last of theirs
	since    uint64
	launch   uint32 // the last that has lent it, but for those in graphs
	capture  uint64 // the last that has lent it
	graphs   atomic.Int32
}

// openRegion is a registration of another rank as this one has it. The watcher's alone.
type openRegion struct {
	serial   uint64
	at       unsafe.Pointer
	imported bool
}

func (x *Path) recordOf(rank, index int) *regionRecord { return &x.page.rank(rank).regions[index] }

// register publishes memory of the communicator's device, and gives the others some time to open it. nil where they cannot.
func (x *Path) register(at unsafe.Pointer, size uintptr) *region {
	if x.n == 1 || size == 0 {
		return nil
	}
	r := x.autoregisteredAt(at, size)
	known := r != nil
	if !known {
		var err error
		if r, err = x.publish(at, size); err != nil {
			x.c.Log.Info(log.Init, "memory at %p is exchanged by way of copies: %v", at, err)
			return nil
		}
		x.tellRegions()
	}
	x.await(func() bool { return x.isOpen(r) })
	if known { // it ends with the memory
		return nil
	}
	return r
}

// await waits for what other ranks say of regions, for a while.
func (x *Path) await(said func() bool) {
	pause, end := regionPauses, time.Now().Add(openTime)
	for !said() && !x.c.Failed() && time.Now().Before(end) {
		time.Sleep(pause)
		pause = min(2*pause, longestPauses)
	}
}

// isOpen takes the communicator's lock to ask whether all others have opened a region.
func (x *Path) isOpen(r *region) bool {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	return x.openedByAll(r)
}

// publish puts a region into the page.
func (x *Path) publish(at unsafe.Pointer, size uintptr) (*region, error) {
	r, handle, err := x.export(at, size)
	if err != nil {
		return nil, err
	}
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	return r, x.enter(r, &handle)
}

// export makes a region of a stretch of memory, and a name of its allocation.
func (x *Path) export(at unsafe.Pointer, size uintptr) (r *region, handle device.Handle, err error) {
	place, err := device.Active().Locate(at)
	if err != nil {
		return nil, handle, err
	}
	if place.Kind != device.Memory || place.Device != x.c.Device {
		return nil, handle, fmt.Errorf("it is not memory of device %d: %w", x.c.Device, errdefs.ErrInvalidArgument)
	}
	if err := x.driver.EnterContext(x.ctx); err != nil {
		return nil, handle, err
	}
	defer x.driver.Leave()
	base, extent, err := x.driver.Allocation(at)
	if err != nil {
		return nil, handle, err
	}
	if uintptr(at)+size > uintptr(base)+uintptr(extent) {
		return nil, handle, fmt.Errorf("it is of several allocations: %w", errdefs.ErrInvalidArgument)
	}
	handle, err = x.driver.Export(base)
	return &region{at: uintptr(at), size: size, base: uintptr(base), id: place.ID}, handle, err
}

// enter puts a region into the page. onDevice.mu is held.
func (x *Path) enter(r *region, handle *device.Handle) error {
	for r.index < maxRegions && x.recordOf(x.me, r.index).serial.Load() != 0 {
		r.index++
	}
	if r.index == maxRegions {
		return fmt.Errorf("%d registrations are the most: %w", maxRegions, errdefs.ErrInvalidUsage)
	}
	x.serial++
	r.serial = x.serial
	rec := x.recordOf(x.me, r.index)
	rec.base.Store(uint64(r.base))
	rec.handle = *handle
	rec.serial.Store(r.serial)
	x.regions = append(x.regions, r)
	return nil
}

// withdraw has nobody use a region any more, and gives the others some time to close it. It fails while something may use it; not where
// the memory ends anyhow, which no call uses then.
func (x *Path) withdraw(r *region) error {
	if err := x.retire(r); err != nil {
		return err
	}
	x.tellRegions()
	x.await(func() bool { return x.closedByAll(r) })
	return nil
}

// closedByAll reports whether no other rank has a region open that has been retired.
func (x *Path) closedByAll(r *region) bool {
	rec := x.recordOf(x.me, r.index)
	for rank := range x.n {
		if rank != x.me && rec.opened[rank].holds.Load() == r.serial {
			return false
		}
	}
	return true
}

func (x *Path) retire(r *region) error {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	if !x.c.Failed() && !r.auto {
		if n := r.graphs.Load(); n > 0 {
			return fmt.Errorf("shim: memory at %#x is used by calls in %d graphs: destroy them first: %w", r.at, n, errdefs.ErrInvalidUsage)
		}
		if r.launch != 0 && int32(x.ended()-r.launch) < 0 {
			return fmt.Errorf("shim: memory at %#x is used by a call that is still on its stream: %w", r.at, errdefs.ErrInvalidUsage)
		}
	}
	x.recordOf(x.me, r.index).serial.Store(0)
	for i := range x.regions {
		if x.regions[i] == r {
			x.regions = append(x.regions[:i], x.regions[i+1:]...)
			break
		}
	}
	return nil
}

// tellRegions has all ranks look at what is registered.
func (x *Path) tellRegions() {
	_ = x.c.Star.ToLeader(&control.Message{Kind: control.MsgRegions}) // a leader that is gone is noticed elsewhere
}

// openRegions opens what others have registered, and closes what they have withdrawn. again: it could not do all of it now.
func (x *Path) openRegions() (again bool) {
	if x.n == 1 || x.driver.EnterContext(x.ctx) != nil {
		return false
	}
	defer x.driver.Leave()
	for owner := range x.n {
		for i := 0; i < maxRegions && owner != x.me; i++ {
			own, rec := &x.opened[owner*maxRegions+i], x.recordOf(owner, i)
			serial := rec.serial.Load()
			if serial != own.serial {
				x.closeRegion(owner, i)
				if serial != 0 {
					x.openOne(owner, rec, own, serial)
				}
			}
			if own.at != nil && rec.opened[x.me].serial.Load() != own.serial {
				again = !x.sayOpen(owner, rec, own) || again
			}
		}
	}
	return again
}

// openOne opens a registration. Where it cannot be, nobody is told that it has, and it goes through slots.
func (x *Path) openOne(owner int, rec *regionRecord, own *openRegion, serial uint64) {
	handle, base := rec.handle, rec.base.Load()
	holds := &rec.opened[x.me].holds
	holds.Store(serial)
	if rec.serial.Load() != serial {
		holds.Store(0)
		return // changed meanwhile, which comes with a message
	}
	own.serial = serial
	var err error
	if x.page.rank(owner).process == x.c.Table[x.me].Process {
		own.at = *(*unsafe.Pointer)(unsafe.Pointer(&base))
		err = x.driver.Reach(own.at)
	} else {
		own.at, err = x.driver.Import(&handle)
		own.imported = err == nil
	}
	if err != nil {
		own.at = nil
		holds.Store(0)
		x.c.Log.Info(log.Init, "registered memory of %s is exchanged by way of copies: %v", x.c.Table[owner].Where(), err)
	}
}

// sayOpen tells a registration's owner that this rank looks, beginning with its next call. False: a call is being made.
func (x *Path) sayOpen(owner int, rec *regionRecord, own *openRegion) bool {
	if !x.dev.Mu.TryLock() {
		return false
	}
	defer x.dev.Mu.Unlock()
	said := &rec.opened[x.me]
	said.at.Store(uint64(uintptr(own.at)))
	said.since.Store(x.calls)
	said.wanted.Store(x.wanted[owner])
	said.serial.Store(own.serial)
	x.looks |= one(owner)
	return true
}

// closeRegions closes all that this rank has open.
func (x *Path) closeRegions() {
	if x.driver.EnterContext(x.ctx) != nil {
		return // the context is gone, and all that was in it
	}
	defer x.driver.Leave()
	for i := range x.opened {
		if x.opened[i].at != nil {
			x.closeRegion(i/maxRegions, i%maxRegions)
		}
	}
}

// closeRegion closes what this rank has open of a rank's.
func (x *Path) closeRegion(owner, index int) {
	own := &x.opened[owner*maxRegions+index]
	if own.imported {
		_ = x.driver.Close(own.at)
	}
	if own.at != nil {
		x.recordOf(owner, index).opened[x.me].holds.Store(0)
	}
	*own = openRegion{}
}

// openedByAll reports whether all others have opened a region. onDevice.mu is held.
func (x *Path) openedByAll(r *region) bool {
	if r.opened {
		return true
	}
	rec, since := x.recordOf(x.me, r.index), uint64(0)
	for rank := range x.n {
		said := &rec.opened[rank]
		if rank == x.me {
			continue
		}
		if said.serial.Load() != r.serial {
			return false
		}
		since = max(since, said.since.Load())
	}
	r.opened, r.since = true, since
	return true
}

// lendable returns the region that a buffer of a collective is in, nil where the others cannot use it there.
func (x *Path) lendable(at unsafe.Pointer, size int64, call uint64) *region {
	for _, r := range x.regions {
		if r.holds(at, size) && x.openedByAll(r) && call > r.since {
			return r
		}
	}
	return nil
}

// lendableTo is the same for a message to another rank, which has a number of those between the two.
func (x *Path) lendableTo(peer int, at unsafe.Pointer, size int64, number uint64) *region {
	for _, r := range x.regions {
		said := &x.recordOf(x.me, r.index).opened[peer]
		if r.holds(at, size) && said.serial.Load() == r.serial && number > said.wanted.Load() {
			return r
		}
	}
	return nil
}

// holds reports whether a buffer is in a region: not where its memory was freed without being deregistered, and is another allocation's now,
// which is not what the others have opened.
func (r *region) holds(at unsafe.Pointer, size int64) bool {
	p, n := uintptr(at), uintptr(size)
	if p < r.at || n > r.size || p-r.at > r.size-n {
		return false
	}
	place, err := device.Active().Locate(at)
	return err == nil && place.ID == r.id
}

// lend notes that the launch lends a region: it is not withdrawn before that is over, or the graph is gone.
func (x *Path) lend(r *region) error {
	x.lent.Store(true)
	if x.capture.ID == 0 {
		r.launch = x.number
		return nil
	}
	if r.capture == x.capture.ID {
		return nil
	}
	if err := stream.OnGraphGone(x.capture, func() { r.graphs.Add(-1) }); err != nil {
		return err
	}
	r.capture = x.capture.ID
	r.graphs.Add(1)
	return nil
}
