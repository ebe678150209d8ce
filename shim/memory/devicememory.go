package memory

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"lightpath/shim/device"
)

// deviceRegion is memory of ncclMemAlloc on a device.
type deviceRegion struct {
	base unsafe.Pointer // as the driver returned it
	size uintptr
	ctx  device.Context
}

// DeviceUser is a communicator that uses device memory of ncclMemAlloc in place, as if it were registered.
type DeviceUser interface {
	// Context returns the context of the communicator's memory.
	Context() device.Context
	// MemoryAdded reports new memory in the context. It must not block.
	MemoryAdded()
	// WithdrawAt ends the use, by all ranks, of memory that is about to be freed. It waits at most a second until other
	// ranks have closed the memory.
	WithdrawAt(at unsafe.Pointer)
}

// onDevices holds the device memory of this process, by address, and its users. Lock order: a user's lock, then mu.
var onDevices struct {
	mu    sync.Mutex
	at    map[unsafe.Pointer]deviceRegion
	users []DeviceUser
	frees sync.RWMutex // held for reading while memory is being freed, so that no user ends meanwhile
}

// windowAlign is the alignment of windows (NCCL_WIN_REQUIRED_ALIGNMENT). Any allocation can become a window.
const windowAlign = 4096

// AllocDevice returns memory for ncclMemAlloc, of the device whose context is current on the calling thread. It returns
// nil without such a context: the caller then gets host memory. The memory can be exported to other processes.
func AllocDevice(size int) (unsafe.Pointer, error) {
	p, able := device.Active().(device.Peers)
	if !able {
		return nil, nil
	}
	number, uses, err := device.Active().Current()
	if err != nil || !uses || number < 0 { // a driver that fails counts as none, as for communicators
		return nil, nil
	}
	ctx, err := p.Context()
	if err == nil && ctx == 0 {
		ctx, err = p.PrimaryContext(number)
	}
	if err == nil {
		err = p.EnterContext(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer device.Active().Leave()
	at, err := AllocDeviceIn(ctx, size)
	if err != nil {
		return nil, fmt.Errorf("shim: ncclMemAlloc: %d bytes on device %d: %w", size, number, err)
	}
	return at, nil
}

// AllocDeviceIn is [AllocDevice] in a context that has been entered.
func AllocDeviceIn(ctx device.Context, size int) (unsafe.Pointer, error) {
	base, err := device.Active().AllocExchange(size + windowAlign)
	if err != nil {
		return nil, err
	}
	at := unsafe.Add(base, -uintptr(base)&(windowAlign-1))
	addDevice(at, deviceRegion{base, uintptr(size), ctx})
	return at, nil
}

// FreeDevice frees memory of [AllocDevice], unless some of it is registered. known is false for other memory. If other
// ranks have opened the memory, it waits at most a second until they have closed it.
func FreeDevice(at unsafe.Pointer) (known bool, err error) {
	onDevices.frees.RLock()
	defer onDevices.frees.RUnlock()
	region, users, known, err := removeDevice(at)
	if !known || err != nil {
		return known, err
	}
	for _, u := range users {
		u.WithdrawAt(at)
	}
	p := device.Active().(device.Peers)
	if err = p.EnterContext(region.ctx); err == nil {
		err = device.Active().FreeExchange(region.base)
		device.Active().Leave()
	}
	if err != nil {
		addDevice(at, region)
	}
	return true, err
}

// addDevice records memory, and tells the communicators of its context.
func addDevice(at unsafe.Pointer, r deviceRegion) {
	d := &onDevices
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = map[unsafe.Pointer]deviceRegion{}
	}
	d.at[at] = r
	for _, u := range d.users {
		if u.Context() == r.ctx {
			u.MemoryAdded()
		}
	}
}

// removeDevice forgets memory before it is freed, and returns the communicators that may use it. It fails while some of
// it is registered.
func removeDevice(at unsafe.Pointer) (r deviceRegion, users []DeviceUser, known bool, err error) {
	d := &onDevices
	d.mu.Lock()
	defer d.mu.Unlock()
	if r, known = d.at[at]; !known {
		return r, nil, false, nil
	}
	if err := refuseRegistered(uintptr(at), r.size); err != nil {
		return r, nil, true, err
	}
	delete(d.at, at)
	return r, slices.Clone(d.users), true, nil
}

// InContext returns the memory of a context, in the order of addresses.
func InContext(ctx device.Context) (all []Region) {
	onDevices.mu.Lock()
	defer onDevices.mu.Unlock()
	for at, r := range onDevices.at {
		if r.ctx == ctx {
			all = append(all, Region{Base: uintptr(at), Size: r.size})
		}
	}
	slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.Base, b.Base) })
	return all
}

// AddUser adds a communicator that uses device memory.
func AddUser(u DeviceUser) {
	onDevices.mu.Lock()
	defer onDevices.mu.Unlock()
	onDevices.users = append(onDevices.users, u)
}

// RemoveUser removes a communicator. It waits while memory is being freed.
func RemoveUser(u DeviceUser) {
	onDevices.frees.Lock()
	defer onDevices.frees.Unlock()
	onDevices.mu.Lock()
	defer onDevices.mu.Unlock()
	onDevices.users = slices.DeleteFunc(onDevices.users, func(other DeviceUser) bool { return other == u })
}

// OnDevice reports whether the CPU must not touch memory. It may touch memory that the driver does not know.
func OnDevice(p unsafe.Pointer) bool {
	if device.Active() == nil {
		return false
	}
	at, err := device.Active().Locate(p)
	return err == nil && at.Kind == device.Memory
}
