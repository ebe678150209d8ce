package shim

import (
	"fmt"
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

// deviceRegions are those of this process, by the address that the program has.
var deviceRegions struct {
	mu sync.Mutex
	at map[unsafe.Pointer]deviceRegion
}

// windowAlign is what windows begin at a multiple of (NCCL_WIN_REQUIRED_ALIGNMENT): any allocation can become one.
const windowAlign = 4096

// AllocDevice returns memory for ncclMemAlloc of the device whose context is the calling thread's, nil where it has none: such a
// program gets host memory. The memory can be exported to other processes, as any of the driver's.
func AllocDevice(size int) (unsafe.Pointer, error) {
	p, able := devices.(device.Peers)
	if !able {
		return nil, nil
	}
	number, uses, err := devices.Current()
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
	defer devices.Leave()
	base, err := devices.AllocExchange(size + windowAlign)
	if err != nil {
		return nil, fmt.Errorf("shim: ncclMemAlloc: %d bytes on device %d: %w", size, number, err)
	}
	at := unsafe.Add(base, -uintptr(base)&(windowAlign-1))
	r := &deviceRegions
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		r.at = map[unsafe.Pointer]deviceRegion{}
	}
	r.at[at] = deviceRegion{base, uintptr(size), ctx}
	return at, nil
}

// FreeDevice frees memory of AllocDevice, unless some of it is registered. known is false for any other.
func FreeDevice(at unsafe.Pointer) (known bool, err error) {
	r := &deviceRegions
	r.mu.Lock()
	defer r.mu.Unlock()
	region, known := r.at[at]
	if !known {
		return false, nil
	}
	if err := registrations.none(&Region{Base: uintptr(at), Size: region.size}); err != nil {
		return true, err
	}
	p := devices.(device.Peers)
	if err := p.EnterContext(region.ctx); err != nil {
		return true, err
	}
	defer devices.Leave()
	if err := devices.FreeExchange(region.base); err != nil {
		return true, err
	}
	delete(r.at, at)
	return true, nil
}

// isDeviceMemory reports whether the CPU must not touch memory. What the driver does not say it may.
func isDeviceMemory(p unsafe.Pointer) bool {
	if devices == nil {
		return false
	}
	at, err := devices.Locate(p)
	return err == nil && at.Kind == device.Memory
}
