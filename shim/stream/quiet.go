package stream

import (
	"sync"

	"lightpath/shim/device"
)

// devices holds the devices of this process's communicators, until their launches have completed.
var devices struct {
	mu  sync.Mutex
	all map[*Device]bool // true: its communicator has ended
}

func addDevice(d *Device) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if devices.all == nil {
		devices.all = map[*Device]bool{}
	}
	devices.all[d] = false
}

func removeDevice(d *Device) {
	d.Close()
	devices.mu.Lock()
	defer devices.mu.Unlock()
	devices.all[d] = true
}

// Quiet returns nil if some launch of a communicator in a context is pending, or is being put on streams. Otherwise none
// begins until the caller calls the result. It does not see launches of graphs.
func Quiet(ctx device.Context) (resume func()) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	var held []*Device
	resume = func() {
		for _, d := range held {
			d.Mu.Unlock()
		}
	}
	for d, ended := range devices.all {
		if d.Context != ctx {
			continue
		}
		if !d.Mu.TryLock() {
			resume()
			return nil
		}
		held = append(held, d)
		if reached, err := d.Reached(); d.Outstanding.Load() > 0 || !reached && err == nil {
			resume()
			return nil
		}
		if ended {
			delete(devices.all, d)
		}
	}
	return resume
}
