package peer

import (
	"slices"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/log"
	"lightpath/shim/memory"
)

// A rank also lends memory of ncclMemAlloc that the program has not registered. The watchers of all communicators in
// the memory's context publish it. WithdrawAt withdraws it before it is freed.

// publishLibrary publishes memory of ncclMemAlloc in the communicator's context. It returns again if a call holds the
// lock: the watcher must then try again.
func (x *Path) publishLibrary() (again bool) {
	if x.n == 1 {
		return false
	}
	if !x.dev.Mu.TryLock() {
		return true
	}
	news := false
	// The lock keeps this memory allocated: freeing it calls WithdrawAt, which takes the lock.
	for _, m := range memory.InContext(x.ctx) {
		if !x.tried[m.Base] && len(x.tried) < maxAutoregistered {
			x.tried[m.Base] = true
			news = x.publishOne(&m) || news
		}
	}
	x.dev.Mu.Unlock()
	if news {
		x.tellRegions()
	}
	return false
}

// publishOne publishes an allocation of ncclMemAlloc. It reports whether it succeeded. Device.Mu must be held.
func (x *Path) publishOne(m *memory.Region) bool {
	at := *(*unsafe.Pointer)(unsafe.Pointer(&m.Base))
	r, handle, err := x.export(at, m.Size)
	if err == nil {
		r.auto = true
		err = x.enter(r, &handle)
	}
	if err != nil {
		x.c.Log.Info(log.Init, "memory of ncclMemAlloc at %p is exchanged by way of copies: %v", at, err)
	}
	return err == nil
}

// autoregisteredAt returns the region of publishLibrary that holds a buffer, nil if there is none.
func (x *Path) autoregisteredAt(at unsafe.Pointer, size uintptr) *region {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	i := slices.IndexFunc(x.regions, func(r *region) bool { return r.auto && r.holds(at, int64(size)) })
	if i < 0 {
		return nil
	}
	return x.regions[i]
}

// WithdrawAt withdraws memory of ncclMemAlloc that is about to be freed.
func (x *Path) WithdrawAt(at unsafe.Pointer) {
	x.dev.Mu.Lock()
	delete(x.tried, uintptr(at))
	i := slices.IndexFunc(x.regions, func(r *region) bool { return r.auto && r.at == uintptr(at) })
	var r *region
	if i >= 0 {
		r = x.regions[i]
	}
	x.dev.Mu.Unlock()
	if r != nil {
		_ = x.withdraw(r) // cannot fail: retire refuses only memory that the program registered
	}
}

// Context implements memory.DeviceUser.
func (x *Path) Context() device.Context { return x.ctx }

// MemoryAdded implements memory.DeviceUser.
func (x *Path) MemoryAdded() { x.news.tell() }
