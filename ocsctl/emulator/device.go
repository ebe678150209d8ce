package emulator

import (
	"sync"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// memoryDevice is the default device: a table. Safe for concurrent use.
type memoryDevice struct {
	mu   sync.Mutex
	maps []circuit.Permutation
}

// newMemoryDevice makes a device with one plane per initial map.
func newMemoryDevice(initial []circuit.Permutation) *memoryDevice {
	d := &memoryDevice{}
	for _, m := range initial {
		d.maps = append(d.maps, m.Clone())
	}
	return d
}

// Switch implements controller.Device.
func (d *memoryDevice) Switch(plane int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maps[plane] = m.To.Clone()
	return nil
}

// Map implements controller.Device.
func (d *memoryDevice) Map(plane int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.maps[plane].Clone(), nil
}
