package peer

import (
	"slices"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/log"
	"lightpath/shim/memory"
)

// Memory of ncclMemAlloc is used where it is also where nobody has registered it: the watchers of the communicators of its context publish it
// as if somebody had, and it is withdrawn before it is freed.

// publishLibrary publishes what the library has allocated in the context. again: it could not do it now.
func (x *Path) publishLibrary() (again bool) {
	if x.n == 1 {
		return false
	}
	if !x.dev.Mu.TryLock() {
		return true
	}
	news := false
	for _, m := range memory.InContext(x.ctx) { // which are not freed while the lock is held: that takes WithdrawAt
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

// publishOne publishes memory of the library's. onDevice.mu is held.
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

// autoregisteredAt returns what publishLibrary has made of the memory that a buffer is in, nil where it has not.
func (x *Path) autoregisteredAt(at unsafe.Pointer, size uintptr) *region {
	x.dev.Mu.Lock()
	defer x.dev.Mu.Unlock()
	i := slices.IndexFunc(x.regions, func(r *region) bool { return r.auto && r.holds(at, int64(size)) })
	if i < 0 {
		return nil
	}
	return x.regions[i]
}

// WithdrawAt has nobody use memory of the library's any more, which is about to be freed.
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
		_ = x.withdraw(r) // of which nobody has asked whether it is in use
	}
}

// Context implements memory.DeviceUser.
func (x *Path) Context() device.Context { return x.ctx }

// MemoryAdded implements memory.DeviceUser.
func (x *Path) MemoryAdded() { x.news.tell() }
