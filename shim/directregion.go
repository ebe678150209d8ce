package shim

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/shim/device"
)

// Registered memory of a device is read and written by the other ranks where it is: see "Registered memory" in ARCHITECTURE.md. Its rank
// publishes it in the page; the watchers of all others open it, and say so there. A rank that has said so looks, in all its later
// calls, whether the registering rank lends its buffer; that one lends only what all others have opened before the call.

// maxRegions is how many registrations of a rank the others can open at a time; what is registered beyond goes through slots.
const maxRegions = 64

// openTime is how long a registration waits for the others to open it. It is good without: calls made meanwhile use slots.
const openTime = time.Second

// regionRecord is a registration, in the page.
type regionRecord struct {
	serial atomic.Uint64 // its number, never used again at this rank; 0: none. Whoever finds it, before and after, may believe the rest
	base   atomic.Uint64 // of the allocation, where its rank has it
	handle device.Handle // of the allocation
	opened [maxDirectRanks]regionOpened
}

// regionOpened is what another rank says of a registration.
type regionOpened struct {
	serial atomic.Uint64 // which it has opened
	since  atomic.Uint64 // its collectives so far: it looks in those that follow
	at     atomic.Uint64 // where it has the allocation
}

// region is memory that this rank has registered.
type region struct {
	index    int // in the page
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

func (x *direct) recordOf(rank, index int) *regionRecord { return &x.page.rank(rank).regions[index] }

// register publishes memory of the communicator's device, and gives the others some time to open it. nil where they cannot.
func (x *direct) register(at unsafe.Pointer, size uintptr) *region {
	if x.n == 1 || size == 0 {
		return nil
	}
	r, err := x.publish(at, size)
	if err != nil {
		x.c.log.info(subInit, "memory at %p is exchanged by way of copies: %v", at, err)
		return nil
	}
	x.tellRegions()
	pause, end := 50*time.Microsecond, time.Now().Add(openTime)
	for !x.isOpen(r) && x.c.poison.Load() == nil && time.Now().Before(end) {
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
	return r
}

// isOpen takes the communicator's lock to ask whether all others have opened a region.
func (x *direct) isOpen(r *region) bool {
	x.c.dev.mu.Lock()
	defer x.c.dev.mu.Unlock()
	return x.openedByAll(r)
}

// publish puts a region into the page.
func (x *direct) publish(at unsafe.Pointer, size uintptr) (*region, error) {
	place, err := devices.Locate(at)
	if err != nil {
		return nil, err
	}
	if place.Kind != device.Memory || place.Device != x.c.args.Device {
		return nil, fmt.Errorf("it is not memory of device %d: %w", x.c.args.Device, ErrInvalidArgument)
	}
	if err := x.driver.EnterContext(x.ctx); err != nil {
		return nil, err
	}
	defer x.driver.Leave()
	base, extent, err := x.driver.Allocation(at)
	if err != nil {
		return nil, err
	}
	if uintptr(at)+size > uintptr(base)+uintptr(extent) {
		return nil, fmt.Errorf("it is of several allocations: %w", ErrInvalidArgument)
	}
	handle, err := x.driver.Export(base)
	if err != nil {
		return nil, err
	}
	x.c.dev.mu.Lock()
	defer x.c.dev.mu.Unlock()
	index := 0
	for index < maxRegions && x.recordOf(x.me, index).serial.Load() != 0 {
		index++
	}
	if index == maxRegions {
		return nil, fmt.Errorf("%d registrations are the most: %w", maxRegions, ErrInvalidUsage)
	}
	x.serial++
	r := &region{index: index, serial: x.serial, at: uintptr(at), size: size, base: uintptr(base), id: place.ID}
	rec := x.recordOf(x.me, index)
	rec.base.Store(uint64(uintptr(base)))
	rec.handle = handle
	rec.serial.Store(r.serial)
	x.regions = append(x.regions, r)
	return r, nil
}

// withdraw has nobody use a region any more. It fails while something may.
func (x *direct) withdraw(r *region) error {
	if err := x.retire(r); err != nil {
		return err
	}
	x.tellRegions()
	return nil
}

func (x *direct) retire(r *region) error {
	x.c.dev.mu.Lock()
	defer x.c.dev.mu.Unlock()
	if x.c.poison.Load() == nil {
		if n := r.graphs.Load(); n > 0 {
			return fmt.Errorf("shim: memory at %#x is used by calls in %d graphs: destroy them first: %w", r.at, n, ErrInvalidUsage)
		}
		if r.launch != 0 && int32(x.ended()-r.launch) < 0 {
			return fmt.Errorf("shim: memory at %#x is used by a call that is still on its stream: %w", r.at, ErrInvalidUsage)
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
func (x *direct) tellRegions() {
	_ = x.c.star.toLeader(&message{Kind: msgRegions}) // a leader that is gone is noticed elsewhere
}

// regionsChanged is what a rank does on such a message; the leader passes it on.
func (c *Comm) regionsChanged(m *message) {
	if c.args.Rank == 0 {
		c.star.broadcast(m, int(m.From))
	}
	if c.dev != nil {
		c.dev.regionsChanged()
	}
}

// regionsChanged has the watcher look at what is registered. One that is not there yet does so first of all.
func (d *onDevice) regionsChanged() {
	select {
	case d.regions <- struct{}{}:
	default:
	}
}

// openRegions opens what others have registered, and closes what they have withdrawn. again: it could not do all of it now.
func (x *direct) openRegions() (again bool) {
	if x.n == 1 || x.driver.EnterContext(x.ctx) != nil {
		return false
	}
	defer x.driver.Leave()
	for owner := range x.n {
		for i := 0; i < maxRegions && owner != x.me; i++ {
			own, rec := &x.opened[owner*maxRegions+i], x.recordOf(owner, i)
			serial := rec.serial.Load()
			if serial != own.serial {
				x.closeRegion(own)
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
func (x *direct) openOne(owner int, rec *regionRecord, own *openRegion, serial uint64) {
	handle, base := rec.handle, rec.base.Load()
	if rec.serial.Load() != serial {
		return // changed meanwhile, which comes with a message
	}
	own.serial = serial
	var err error
	if x.page.rank(owner).process == processID() {
		own.at = *(*unsafe.Pointer)(unsafe.Pointer(&base))
		err = x.driver.Reach(own.at)
	} else {
		own.at, err = x.driver.Import(&handle)
		own.imported = err == nil
	}
	if err != nil {
		own.at = nil
		x.c.log.info(subInit, "registered memory of %s is exchanged by way of copies: %v", x.c.table[owner].where(), err)
	}
}

// sayOpen tells a registration's owner that this rank looks, beginning with its next call. False: a call is being made.
func (x *direct) sayOpen(owner int, rec *regionRecord, own *openRegion) bool {
	if !x.c.dev.mu.TryLock() {
		return false
	}
	defer x.c.dev.mu.Unlock()
	said := &rec.opened[x.me]
	said.at.Store(uint64(uintptr(own.at)))
	said.since.Store(x.calls)
	said.serial.Store(own.serial)
	x.looks |= one(owner)
	return true
}

func (x *direct) closeRegion(own *openRegion) {
	if own.imported {
		_ = x.driver.Close(own.at)
	}
	*own = openRegion{}
}

// openedByAll reports whether all others have opened a region. onDevice.mu is held.
func (x *direct) openedByAll(r *region) bool {
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

// lendable returns the region that a buffer of a call is in, nil where the others cannot use it there.
func (x *direct) lendable(at unsafe.Pointer, size int64, call uint64) *region {
	p, n := uintptr(at), uintptr(size)
	for _, r := range x.regions {
		if p < r.at || n > r.size || p-r.at > r.size-n || !x.openedByAll(r) || call <= r.since {
			continue
		}
		// Memory that was freed without being deregistered, and is another allocation's now, is not what the others have opened.
		if place, err := devices.Locate(at); err == nil && place.ID == r.id {
			return r
		}
	}
	return nil
}

// lend notes that the launch lends a region: it is not withdrawn before that is over, or the graph is gone.
func (x *direct) lend(r *region) error {
	x.lent.Store(true)
	if x.capture.ID == 0 {
		r.launch = x.number
		return nil
	}
	if r.capture == x.capture.ID {
		return nil
	}
	token := keepsakes.add(func() { r.graphs.Add(-1) })
	if err := devices.Retain(x.capture, token); err != nil {
		keepsakes.drop(token)
		return err
	}
	r.capture = x.capture.ID
	r.graphs.Add(1)
	return nil
}
