package shim

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"lightpath/shim/device"
)

// deviceRegion is memory from ncclMemAlloc on a device.
type deviceRegion struct {
	base unsafe.Pointer // what the driver has given
	size uintptr
	ctx  device.Context
}

// deviceRegions are those of this process, by the address that the program has, and the communicators that exchange memory of devices:
// they use it where it is, as if it were registered with each of them.
var deviceRegions deviceMemory

type deviceMemory struct {
	mu    sync.Mutex // onDevice.mu may be held when it is taken, and never the other way round
	at    map[unsafe.Pointer]deviceRegion
	users []*direct
	frees sync.RWMutex // held for reading while some is being freed: users do not end meanwhile
}

// windowAlign is what windows begin at a multiple of (NCCL_WIN_REQUIRED_ALIGNMENT): any allocation can become one.
const windowAlign = 4096

// AllocDevice returns memory for ncclMemAlloc of the device whose context is the calling thread's, nil where it has none: such a
// program gets host memory. The memory can be exported to other processes, as any of the driver's.
func AllocDevice(size int) (unsafe.Pointer, error) {
	p, able := device.Active().(device.Peers)
	if !able {
		return nil, nil
	}
	number, uses, err := device.Active().Current()
	if err != nil || !uses || number < 0 { // a driver that is of no use is none, as for communicators
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
	at, err := allocDevice(ctx, size)
	if err != nil {
		return nil, fmt.Errorf("shim: ncclMemAlloc: %d bytes on device %d: %w", size, number, err)
	}
	return at, nil
}

// allocDevice allocates in a context that has been entered.
func allocDevice(ctx device.Context, size int) (unsafe.Pointer, error) {
	base, err := device.Active().AllocExchange(size + windowAlign)
	if err != nil {
		return nil, err
	}
	at := unsafe.Add(base, -uintptr(base)&(windowAlign-1))
	deviceRegions.add(at, deviceRegion{base, uintptr(size), ctx})
	return at, nil
}

// FreeDevice frees memory of AllocDevice, unless some of it is registered. known is false for any other. Where other ranks have the memory
// open it waits until they have closed it, for a second at most.
func FreeDevice(at unsafe.Pointer) (known bool, err error) {
	deviceRegions.frees.RLock()
	defer deviceRegions.frees.RUnlock()
	region, users, known, err := deviceRegions.remove(at)
	if !known || err != nil {
		return known, err
	}
	for _, x := range users {
		x.withdrawAt(at)
	}
	p := device.Active().(device.Peers)
	if err = p.EnterContext(region.ctx); err == nil {
		err = device.Active().FreeExchange(region.base)
		device.Active().Leave()
	}
	if err != nil {
		deviceRegions.add(at, region)
	}
	return true, err
}

// add makes memory known, and has communicators of its context tell their ranks.
func (m *deviceMemory) add(at unsafe.Pointer, r deviceRegion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[unsafe.Pointer]deviceRegion{}
	}
	m.at[at] = r
	for _, x := range m.users {
		if x.ctx == r.ctx {
			onDeviceOf(x.c).regionsChanged()
		}
	}
}

// remove forgets memory before it is freed, and returns the communicators that may use it. It fails while some of it is registered.
func (m *deviceMemory) remove(at unsafe.Pointer) (r deviceRegion, users []*direct, known bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, known = m.at[at]; !known {
		return r, nil, false, nil
	}
	if err := registrations.none(&Region{Base: uintptr(at), Size: r.size}); err != nil {
		return r, nil, true, err
	}
	delete(m.at, at)
	return r, slices.Clone(m.users), true, nil
}

// in returns the memory of a context, in the order of addresses.
func (m *deviceMemory) in(ctx device.Context) (all []Region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, r := range m.at {
		if r.ctx == ctx {
			all = append(all, Region{Base: uintptr(at), Size: r.size})
		}
	}
	slices.SortFunc(all, func(a, b Region) int { return cmp.Compare(a.Base, b.Base) })
	return all
}

// join adds a communicator to those that use the memory, leave takes it out.
func (m *deviceMemory) join(x *direct) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users = append(m.users, x)
}

func (m *deviceMemory) leave(x *direct) {
	m.frees.Lock()
	defer m.frees.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users = slices.DeleteFunc(m.users, func(u *direct) bool { return u == x })
}

// isDeviceMemory reports whether the CPU must not touch memory. What the driver does not say it may.
func isDeviceMemory(p unsafe.Pointer) bool {
	if device.Active() == nil {
		return false
	}
	at, err := device.Active().Locate(p)
	return err == nil && at.Kind == device.Memory
}
