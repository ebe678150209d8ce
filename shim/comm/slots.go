package comm

import (
	"sync/atomic"
	"unsafe"
)

// maxSlots bounds the rooms that keep state of a communicator.
const maxSlots = 24

type slots [maxSlots]unsafe.Pointer

var numSlots int

// Slot holds a room's state of each communicator, a *T. Rooms declare slots as package variables.
type Slot[T any] struct{ at int }

// NewSlot returns a slot that no other room has. Call it to initialize a package variable.
func NewSlot[T any]() Slot[T] {
	if numSlots == maxSlots {
		panic("comm: more slots than maxSlots")
	}
	numSlots++
	return Slot[T]{numSlots - 1}
}

// Of returns the state of a communicator, nil where there is none. Hot path: no lock, no allocation.
func (s Slot[T]) Of(c *Core) *T { return (*T)(atomic.LoadPointer(&c.slots[s.at])) }

// Set sets the state of a communicator; nil removes it.
func (s Slot[T]) Set(c *Core, state *T) { atomic.StorePointer(&c.slots[s.at], unsafe.Pointer(state)) }
