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

// maxRegions is how many regions of a rank its peers can have open at a time. Memory that is registered beyond this
// limit goes through slots. At most half of the regions are memory of ncclMemAlloc that the program has not
// registered.
const (
	maxRegions        = 128
	maxAutoregistered = maxRegions / 2
	regionPauses      = 50 * time.Microsecond // first pause between checks of the peers' acknowledgements
	longestPauses     = 5 * time.Millisecond
)

// openTime limits how long a rank waits for peers to open a region, or to close it. A longer wait is not needed: calls
// use slots until all peers have opened the region.
const openTime = time.Second

// regionRecord is a region in the page. If serial is the same before and after a read, the other fields belong to that
// region.
type regionRecord struct {
	serial atomic.Uint64 // number of the region, never used again on this rank; 0 if there is none
	base   atomic.Uint64 // of the allocation, in its rank's address space
	handle device.Handle // of the allocation
	opened [maxRanks]regionOpened
}

// regionOpened is a peer's acknowledgement of a region.
type regionOpened struct {
	holds  atomic.Uint64 // serial of the region that it is opening or has open
	later  atomic.Uint64 // serial of the region that it opens when its device is idle
	serial atomic.Uint64 // serial of the region that it has opened and checks for lent buffers
	since  atomic.Uint64 // number of its collectives so far; it checks in later ones
	wanted atomic.Uint64 // number of its messages from the owner so far; it checks in later ones
	at     atomic.Uint64 // address at which it has mapped the allocation
}

// region is memory that this rank has registered, or memory of ncclMemAlloc.
type region struct {
	auto     bool // publishLibrary has published it
	index    int  // in the page
	serial   uint64
	at, size uintptr
	base     uintptr      // of the allocation
	id       uint64       // of the allocation
	opened   bool         // all peers have opened it
	since    uint64       // largest number of collectives in their acknowledgements
	launch   uint32       // last launch that lent it, not counting graphs
	capture  uint64       // last capture that lent it
	graphs   atomic.Int32 // number of graphs that lend it
}

// openRegion is a region of a peer that this rank has opened. Only the watcher uses it.
type openRegion struct {
	serial   uint64
	at       unsafe.Pointer
	imported bool
}

func (x *Path) recordOf(rank, index int) *regionRecord { return &x.page.rank(rank).regions[index] }

// register publishes memory of the communicator's device, and waits for the peers to open it. It returns nil if there
// is nothing to withdraw later.
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
	x.await(func() bool { return x.isOpen(r) || x.isPostponed(r) })
	if known { // WithdrawAt withdraws it
		return nil
	}
	return r
}

// await waits until said reports true, the communicator fails or openTime is over.
func (x *Path) await(said func() bool) {
	pause, end := regionPauses, time.Now().Add(openTime)
	for !said() && !x.c.Failed() && time.Now().Before(end) {
		time.Sleep(pause)
		pause = min(2*pause, longestPauses)
	}
}

// isOpen takes Device.Mu and reports whether all peers have opened a region.
func (x *Path) isOpen(r *region) bool {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	return x.openedByAll(r)
}

// isPostponed reports whether a peer opens a region only when its device is idle. That may take long.
func (x *Path) isPostponed(r *region) bool {
	rec := x.recordOf(x.me, r.index)
	for rank := range x.n {
		if rec.opened[rank].later.Load() == r.serial {
			return true
		}
	}
	return false
}

// publish makes a region of memory and puts it into the page.
func (x *Path) publish(at unsafe.Pointer, size uintptr) (*region, error) {
	r, handle, err := x.export(at, size)
	if err != nil {
		return nil, err
	}
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	return r, x.enter(r, &handle)
}

// export makes a region of a range of memory, and a handle of its allocation.
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
		return nil, handle, fmt.Errorf("it spans several allocations: %w", errdefs.ErrInvalidArgument)
	}
	handle, err = x.driver.Export(base)
	return &region{at: uintptr(at), size: size, base: uintptr(base), id: place.ID}, handle, err
}

// enter puts a region into the page. Device.Mu must be held.
func (x *Path) enter(r *region, handle *device.Handle) error {
	for r.index < maxRegions && x.recordOf(x.me, r.index).serial.Load() != 0 {
		r.index++
	}
	if r.index == maxRegions {
		return fmt.Errorf("a rank can publish at most %d regions: %w", maxRegions, errdefs.ErrInvalidUsage)
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

// withdraw ends the use of a region, and waits for the peers to close it. It returns an error while a launch or graph
// may use the region. It does not check that in a failed communicator, nor for memory of ncclMemAlloc that is being
// freed: no call may use such memory.
func (x *Path) withdraw(r *region) error {
	if err := x.retire(r); err != nil {
		return err
	}
	x.tellRegions()
	x.await(func() bool { return x.closedByAll(r) })
	return nil
}

// closedByAll reports whether all peers have closed a retired region.
func (x *Path) closedByAll(r *region) bool {
	rec := x.recordOf(x.me, r.index)
	for rank := range x.n {
		if rank != x.me && rec.opened[rank].holds.Load() == r.serial {
			return false
		}
	}
	return true
}

// retire removes a region from the page, unless a launch or graph may use it.
func (x *Path) retire(r *region) error {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	if !x.c.Failed() && !r.auto {
		if n := r.graphs.Load(); n > 0 {
			return fmt.Errorf("shim: memory at %#x is used by calls in %d graphs: destroy them first: %w",
				r.at, n, errdefs.ErrInvalidUsage)
		}
		if r.launch != 0 && int32(x.ended()-r.launch) < 0 {
			return fmt.Errorf("shim: memory at %#x is used by a call that is still on its stream: %w",
				r.at, errdefs.ErrInvalidUsage)
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

// tellRegions makes all ranks look at the regions of their peers.
func (x *Path) tellRegions() {
	_ = x.c.Star.ToLeader(&control.Message{Kind: control.MsgRegions}) // another goroutine notices a lost leader
}

// openRegions opens what peers have registered, and closes what they have withdrawn. It returns again if it must try
// again to acknowledge some.
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
				// The driver may open and close memory of other processes only when the device is idle.
				if x.page.rank(owner).process != x.c.Table[x.me].Process && !x.pool.Quiet() {
					rec.opened[x.me].later.Store(serial)
					again = true
					continue
				}
				x.closeRegion(owner, i, func(free func()) { free() })
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

// openOne opens a region of a peer. If the driver cannot open it, this rank does not acknowledge it, and the memory
// goes through slots.
func (x *Path) openOne(owner int, rec *regionRecord, own *openRegion, serial uint64) {
	handle, base := rec.handle, rec.base.Load()
	holds := &rec.opened[x.me].holds
	holds.Store(serial)
	if rec.serial.Load() != serial {
		holds.Store(0)
		return // it has changed; the owner announces that by a message
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
		x.c.Log.Info(log.Init, "registered memory of %s is exchanged by way of copies: %v",
			x.c.Table[owner].Where(), err)
	}
}

// sayOpen acknowledges a region: from its next call on, this rank checks whether the owner lends it. It returns false
// if a call is being put on its streams.
func (x *Path) sayOpen(owner int, rec *regionRecord, own *openRegion) bool {
	if !x.putting.TryLock() {
		return false
	}
	defer x.putting.Unlock()
	said := &rec.opened[x.me]
	said.at.Store(uint64(uintptr(own.at)))
	said.since.Store(x.calls)
	said.wanted.Store(x.wanted[owner])
	said.serial.Store(own.serial)
	x.looks |= one(owner)
	return true
}

// closeRegions closes all regions that this rank has opened.
func (x *Path) closeRegions() {
	if x.driver.EnterContext(x.ctx) != nil {
		return // the context is gone, with everything in it
	}
	defer x.driver.Leave()
	for i := range x.opened {
		if x.opened[i].at != nil {
			x.closeRegion(i/maxRegions, i%maxRegions, x.pool.Later)
		}
	}
}

// closeRegion closes a region of a peer if this rank has opened it. when says when the driver may close it.
func (x *Path) closeRegion(owner, index int, when func(free func())) {
	own := &x.opened[owner*maxRegions+index]
	if own.imported {
		at := own.at
		when(func() { _ = x.driver.Close(at) })
	}
	if own.at != nil {
		x.recordOf(owner, index).opened[x.me].holds.Store(0)
	}
	*own = openRegion{}
}

// openedByAll reports whether all peers have opened a region. Device.Mu must be held.
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

// lendable returns the region that holds a buffer of a collective. It returns nil if this rank cannot lend the buffer
// in that call.
func (x *Path) lendable(at unsafe.Pointer, size int64, call uint64) *region {
	for _, r := range x.regions {
		if r.holds(at, size) && x.openedByAll(r) && call > r.since {
			return r
		}
	}
	return nil
}

// lendableTo returns the region that holds a message to a peer, nil if this rank cannot lend it. number counts the
// messages to that peer.
func (x *Path) lendableTo(peer int, at unsafe.Pointer, size int64, number uint64) *region {
	for _, r := range x.regions {
		said := &x.recordOf(x.me, r.index).opened[peer]
		if r.holds(at, size) && said.serial.Load() == r.serial && number > said.wanted.Load() {
			return r
		}
	}
	return nil
}

// holds reports whether a buffer is in a region. It returns false if the program freed the memory without
// deregistering it. Then the address belongs to an allocation that the peers have not opened.
func (r *region) holds(at unsafe.Pointer, size int64) bool {
	p, n := uintptr(at), uintptr(size)
	if p < r.at || n > r.size || p-r.at > r.size-n {
		return false
	}
	place, err := device.Active().Locate(at)
	return err == nil && place.ID == r.id
}

// lend notes that the launch lends a region. The region cannot be withdrawn before the launch has ended, or its graph
// is destroyed.
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
