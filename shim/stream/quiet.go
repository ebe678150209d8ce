package stream

import (
	"sync"

	"lightpath/shim/device"
)

// devices holds the devices of this process's communicators, until their launches have completed.
var devices struct {
	mu         sync.Mutex
	generation uint64           // of the driver
	all        map[*Device]bool // true: its communicator has ended
}

func addDevice(d *Device) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if now := device.Generation(); devices.all == nil || devices.generation != now {
		devices.generation, devices.all = now, map[*Device]bool{}
	}
	devices.all[d] = false
}

func removeDevice(d *Device) {
	d.Close()
	over := d.Over()
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if _, known := devices.all[d]; known {
		devices.all[d] = true
	}
	if over {
		delete(devices.all, d)
	}
}

// Quiet returns nil if some launch of a communicator in a context is pending, or is being put on streams. Otherwise
// none begins until the caller calls the result. It does not see launches of graphs.
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
