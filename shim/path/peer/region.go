package peer

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

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
// limit goes through slots. At most half of the regions are memory that the program has not registered.
const (
	maxRegions    = 128
	maxUnasked    = maxRegions / 2
	regionPauses  = 50 * time.Microsecond // first pause between checks of the peers' acknowledgements
	longestPauses = 5 * time.Millisecond
)

// openTime limits how long a rank waits for peers to open a region, or to close it. A longer wait is not needed: calls
// use slots until all peers have opened the region.
const openTime = time.Second

// regionRecord is a region in the page. If serial is the same before and after a read, the other fields belong to that
// region.
type regionRecord struct {
	serial atomic.Uint64 // number of the region, never used again on this rank; 0 if there is none
	base   atomic.Uint64 // of the allocation, in its rank's address space
	size   uint64        // of the allocation
	mapped bool          // the program has mapped it: peers ask for its pieces
	handle device.Handle // of the allocation, unless it is mapped
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

// origin says why a region is published.
type origin uint8

const (
	asked     origin = iota // the program has registered it
	library                 // memory of ncclMemAlloc
	recurring               // calls use it again and again
)

// region is memory that this rank has published.
type region struct {
	origin   origin
	index    int  // in the page
	mapped   bool // the program has mapped it
	serial   uint64
	at, size uintptr
	pieces   []piece      // the allocations that hold it, one behind the other
	opened   bool         // all peers have opened it
	since    uint64       // largest number of collectives in their acknowledgements
	launch   uint32       // last launch that lent it, not counting graphs
	used     uint32       // last launch that lent it, or that published it
	uses     uint32       // how often it was lent
	capture  uint64       // last capture that lent it
	graphs   atomic.Int32 // number of graphs that lend it
}

// piece is an allocation. id is its number, which no other allocation of the process has.
type piece struct {
	base, size uintptr
	id         uint64
	handle     uint64 // of mapped memory: the driver's number, which the rank retains
}

// base returns the beginning of the allocation, or of the first piece.
func (r *region) base() uintptr { return r.pieces[0].base }

// published is what this rank has published.
type published struct {
	regions []*region
	serial  uint64      // of the last region
	unasked unasked     // memory that the program has not registered
	offers  offers      // of the mapped ones of regions
	lent    atomic.Bool // this rank has lent a buffer
}

func (x *Path) recordOf(rank, index int) *regionRecord { return &x.page.rank(rank).regions[index] }

// register publishes memory of the communicator's device, and waits for the peers to open it. It returns nil if there
// is nothing to withdraw later.
func (x *Path) register(at unsafe.Pointer, size uintptr) *region {
	if x.n == 1 || size == 0 {
		return nil
	}
	r := x.libraryAt(at, size)
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

// export makes a region of a range of memory, and a handle of its allocation. It asks for the number of an allocation
// before anything else: if the program replaces the allocation meanwhile, the number fits no call.
func (x *Path) export(at unsafe.Pointer, size uintptr) (r *region, handle device.Handle, err error) {
	place, err := device.Active().Locate(at)
	if err != nil {
		return nil, handle, err
	}
	if place.Kind != device.Memory || place.Device != x.c.Device || place.ID == 0 {
		return nil, handle, fmt.Errorf("it is not memory of device %d: %w", x.c.Device, errdefs.ErrInvalidArgument)
	}
	if err := x.driver.EnterContext(x.dev.Context); err != nil {
		return nil, handle, err
	}
	defer x.driver.Leave()
	base, extent, err := x.driver.Allocation(at)
	if err != nil {
		return nil, handle, err
	}
	r = &region{at: uintptr(at), size: size}
	r.pieces = append(r.pieces, piece{base: uintptr(base), size: uintptr(extent), id: place.ID})
	if handle, err = x.driver.Export(base); err == nil {
		if uintptr(at)+size > uintptr(base)+uintptr(extent) {
			err = fmt.Errorf("it spans several allocations: %w", errdefs.ErrInvalidArgument)
		}
		return r, handle, err
	}
	mapped := x.exportPieces(r)
	if mapped == nil {
		return r, device.Handle{}, nil
	}
	x.releasePieces(r)
	if !errors.Is(mapped, device.ErrNotMapped) {
		err = mapped
	}
	return nil, handle, err
}

// enter puts a region into the page. If it fails, it gives the pieces back to the driver. Device.Mu must be held.
func (x *Path) enter(r *region, handle *device.Handle) (err error) {
	defer func() {
		if err != nil {
			x.releasePieces(r)
		}
	}()
	for r.index < maxRegions && x.recordOf(x.me, r.index).serial.Load() != 0 {
		r.index++
	}
	if r.index == maxRegions {
		return fmt.Errorf("a rank can publish at most %d regions: %w", maxRegions, errdefs.ErrInvalidUsage)
	}
	if r.mapped {
		if err := x.offerPieces(x.published.serial+1, r.pieces); err != nil {
			return err
		}
	}
	x.published.serial++
	r.serial, r.used = x.published.serial, x.launch.number
	rec := x.recordOf(x.me, r.index)
	last := r.pieces[len(r.pieces)-1]
	rec.base.Store(uint64(r.base()))
	rec.size, rec.mapped = uint64(last.base+last.size-r.base()), r.mapped
	rec.handle = *handle
	rec.serial.Store(r.serial)
	if r.origin == asked { // it comes first, so that deregistering it sees who uses the memory
		x.published.regions = slices.Insert(x.published.regions, 0, r)
	} else {
		x.published.regions = append(x.published.regions, r)
	}
	return nil
}

// withdraw ends the use of a region, and waits for the peers to close it. It returns an error while a launch or graph
// may use the region. It does not check that in a failed communicator, nor for memory of ncclMemAlloc that is being
// freed: no call may use such memory.
func (x *Path) withdraw(r *region) error {
	x.dev.Mu.Lock()
	err := x.retire(r)
	x.dev.Mu.Unlock()
	if err != nil {
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

// retire removes a region from the page, unless a launch or graph may use it. Device.Mu must be held.
func (x *Path) retire(r *region) error {
	if !x.c.Failed() && r.origin != library {
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
	x.forgetPieces(r)
	x.published.unasked.forget(r)
	x.published.regions = slices.DeleteFunc(x.published.regions, func(other *region) bool { return other == r })
	return nil
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

// lendable returns the region that holds a buffer, nil if this rank cannot lend the buffer. id is the number of the
// allocation at the buffer's beginning. opened reports whether the readers of the call look for a region. Hot path.
func (x *Path) lendable(at unsafe.Pointer, size int64, id uint64, opened func(r *region) bool) *region {
	found := false
	for _, r := range x.published.regions {
		if !r.spans(at, size) {
			continue
		}
		found = true
		if opened(r) && x.fresh(r, at, size, id) {
			return r
		}
	}
	if !found {
		x.notice(at, size, id)
	}
	return nil
}

// openedBefore reports whether all peers had opened a region before they made a collective of this number.
func (x *Path) openedBefore(r *region, call uint64) bool { return x.openedByAll(r) && call > r.since }

// openedBy reports whether a peer had opened a region before it called for a message of this number.
func (x *Path) openedBy(peer int, r *region, number uint64) bool {
	said := &x.recordOf(x.me, r.index).opened[peer]
	return said.serial.Load() == r.serial && number > said.wanted.Load()
}

// spans reports whether a region has the addresses of a buffer.
func (r *region) spans(at unsafe.Pointer, size int64) bool {
	p, n := uintptr(at), uintptr(size)
	return p >= r.at && n <= r.size && p-r.at <= r.size-n
}

// fresh reports whether a call may lend a buffer in a region: the memory is that which the peers have opened. If the
// program has freed it, the addresses may belong to other allocations by now.
func (x *Path) fresh(r *region, at unsafe.Pointer, size int64, id uint64) bool {
	if r.mapped && r.origin == recurring && x.launch.capture.ID != 0 {
		return false // a program may map other memory there, and launch the graph again
	}
	from, to := uintptr(at), uintptr(at)+uintptr(size)
	for i := range r.pieces {
		p := &r.pieces[i]
		switch {
		case p.base+p.size <= from || p.base >= to:
			continue
		case p.base <= from:
		default:
			id = x.numberAt(p.base)
		}
		if id != p.id || r.mapped && !x.driver.IsPiece(*(*unsafe.Pointer)(unsafe.Pointer(&p.base)), p.handle) {
			if r.origin == recurring {
				x.published.unasked.stale = true
				x.news.tell()
			}
			return false
		}
	}
	return true
}

// numberAt returns the number of the allocation at an address, 0 if there is none.
func (x *Path) numberAt(at uintptr) uint64 {
	place, err := x.driver.Locate(*(*unsafe.Pointer)(unsafe.Pointer(&at)))
	if err != nil {
		return 0
	}
	return place.ID
}

// lend notes that the launch lends a region. The region cannot be withdrawn before the launch has ended, or its graph
// is destroyed.
func (x *Path) lend(r *region) error {
	x.published.lent.Store(true)
	r.used = x.launch.number
	r.uses++
	if x.launch.capture.ID == 0 {
		r.launch = x.launch.number
		return nil
	}
	if r.capture == x.launch.capture.ID {
		return nil
	}
	if err := stream.OnGraphGone(x.launch.capture, func() { r.graphs.Add(-1) }); err != nil {
		return err
	}
	r.capture = x.launch.capture.ID
	r.graphs.Add(1)
	return nil
}
