package shim

import (
	"slices"
	"unsafe"

	"lightpath/shim/device"
	"lightpath/shim/log"
	"lightpath/shim/memory"
)

// Memory of ncclMemAlloc is used where it is also where nobody has registered it: the watchers of the communicators of its context publish it
// as if somebody had, and it is withdrawn before it is freed.

// publishUnasked publishes what the library has allocated in the context. again: it could not do it now.
func (x *direct) publishUnasked() (again bool) {
	if x.n == 1 {
		return false
	}
	if !onDeviceOf(x.c).mu.TryLock() {
		return true
	}
	news := false
	for _, m := range memory.InContext(x.ctx) { // which are not freed while the lock is held: that takes WithdrawAt
		if !x.tried[m.Base] && len(x.tried) < maxUnasked {
			x.tried[m.Base] = true
			news = x.publishOne(&m) || news
		}
	}
	onDeviceOf(x.c).mu.Unlock()
	if news {
		x.tellRegions()
	}
	return false
}

// publishOne publishes memory of the library's. onDevice.mu is held.
func (x *direct) publishOne(m *memory.Region) bool {
	at := *(*unsafe.Pointer)(unsafe.Pointer(&m.Base))
	r, handle, err := x.export(at, m.Size)
	if err == nil {
		r.unasked = true
		err = x.enter(r, &handle)
	}
	if err != nil {
		x.c.Log.Info(log.Init, "memory of ncclMemAlloc at %p is exchanged by way of copies: %v", at, err)
	}
	return err == nil
}

// unaskedAt returns what publishUnasked has made of the memory that a buffer is in, nil where it has not.
func (x *direct) unaskedAt(at unsafe.Pointer, size uintptr) *region {
	onDeviceOf(x.c).mu.Lock()
	defer onDeviceOf(x.c).mu.Unlock()
	i := slices.IndexFunc(x.regions, func(r *region) bool { return r.unasked && r.holds(at, int64(size)) })
	if i < 0 {
		return nil
	}
	return x.regions[i]
}

// WithdrawAt has nobody use memory of the library's any more, which is about to be freed.
func (x *direct) WithdrawAt(at unsafe.Pointer) {
	onDeviceOf(x.c).mu.Lock()
	delete(x.tried, uintptr(at))
	i := slices.IndexFunc(x.regions, func(r *region) bool { return r.unasked && r.at == uintptr(at) })
	var r *region
	if i >= 0 {
		r = x.regions[i]
	}
	onDeviceOf(x.c).mu.Unlock()
	if r != nil {
		_ = x.withdraw(r) // of which nobody has asked whether it is in use
	}
}

// Context implements memory.DeviceUser.
func (x *direct) Context() device.Context { return x.ctx }

// MemoryAdded implements memory.DeviceUser.
func (x *direct) MemoryAdded() { onDeviceOf(x.c).regionsChanged() }
