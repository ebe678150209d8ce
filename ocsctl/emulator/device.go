package emulator

import (
	"errors"
	"fmt"
	"sync"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// MemoryDevice is the default device: a table. Faults can be injected into it while it
// runs. Safe for concurrent use.
type MemoryDevice struct {
	mu     sync.Mutex
	maps   []circuit.Permutation
	faults []*Fault
	moving []bool
}

// FaultKind is a way for a device to fail.
type FaultKind uint8

// The faults.
const (
	// FailSwitch refuses to move.
	FailSwitch FaultKind = iota
	// StuckPort keeps the circuit of Fault.Port. A port that would collide with it goes dark.
	StuckPort
	// WrongMap moves to Fault.Map instead of the target.
	WrongMap
	// Stall starts to move and never settles.
	Stall
	// Unreadable moves, but the map cannot be read back.
	Unreadable
)

// Fault is applied to every Switch of its plane until it is replaced.
type Fault struct {
	Kind FaultKind
	Port int
	Map  circuit.Permutation
}

// newMemoryDevice makes a device with one plane per initial map.
func newMemoryDevice(initial []circuit.Permutation) *MemoryDevice {
	d := &MemoryDevice{faults: make([]*Fault, len(initial)), moving: make([]bool, len(initial))}
	for _, m := range initial {
		d.maps = append(d.maps, m.Clone())
	}
	return d
}

// Inject applies a fault to a plane from now on; nil ends it.
func (d *MemoryDevice) Inject(plane int, f *Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[plane] = f
	if f == nil {
		d.moving[plane] = false
	}
}

// Switch implements controller.Device.
func (d *MemoryDevice) Switch(plane int, m controller.Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := m.To.Clone()
	if f := d.faults[plane]; f != nil {
		switch f.Kind {
		case FailSwitch:
			return errors.New("device refuses to switch")
		case StuckPort:
			next = stick(d.maps[plane], next, f.Port)
		case WrongMap:
			next = f.Map.Clone()
		case Stall:
			d.moving[plane] = true
		}
	}
	d.maps[plane] = next
	return nil
}

// Map implements controller.Device.
func (d *MemoryDevice) Map(plane int) (circuit.Permutation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moving[plane] {
		return nil, controller.ErrMoving
	}
	if f := d.faults[plane]; f != nil && f.Kind == Unreadable {
		return nil, fmt.Errorf("plane %d: device %w", plane, driver.ErrNoAnswer)
	}
	return d.maps[plane].Clone(), nil
}

// stick returns next with the circuit that port has in old.
func stick(old, next circuit.Permutation, port int) circuit.Permutation {
	for r, s := range next {
		if s != circuit.Dark && s == old[port] {
			next[r] = circuit.Dark
		}
	}
	next[port] = old[port]
	return next
}
