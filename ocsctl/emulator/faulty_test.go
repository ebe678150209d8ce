package emulator

import (
	"errors"
	"fmt"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/driver"
	"lightpath/plans/circuit"
)

// faultyDevice is a memoryDevice whose planes may have faults. Not safe for concurrent use.
type faultyDevice struct {
	*memoryDevice
	faults map[int]*fault // by plane
}

// faultKind is a way for a device to fail.
type faultKind int

const (
	failSwitch faultKind = iota // refuses to move
	stuckPort                   // keeps the circuit of port; a port that would collide with it goes dark
	wrongMap                    // moves to the map to
	stall                       // starts to move and never settles
	unreadable                  // moves, but the map cannot be read back
)

// fault applies to every switch of its plane.
type fault struct {
	kind   faultKind
	port   int
	to     circuit.Permutation
	moving bool
}

func (d *faultyDevice) Switch(plane int, m controller.Move) error {
	if f := d.faults[plane]; f != nil {
		switch f.kind {
		case failSwitch:
			return errors.New("device refuses to switch")
		case stuckPort:
			m.To = stick(d.maps[plane], m.To.Clone(), f.port)
		case wrongMap:
			m.To = f.to
		case stall:
			f.moving = true
		}
	}
	return d.memoryDevice.Switch(plane, m)
}

func (d *faultyDevice) Map(plane int) (circuit.Permutation, error) {
	switch f := d.faults[plane]; {
	case f != nil && f.moving:
		return nil, controller.ErrMoving
	case f != nil && f.kind == unreadable:
		return nil, fmt.Errorf("plane %d: device %w", plane, driver.ErrNoAnswer)
	}
	return d.memoryDevice.Map(plane)
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
