// Package handle gives out numbers that C may hold instead of pointers to Go values.
//
// Layer: a leaf below cgo/core. It must not import the packages of the values.
package handle

import (
	"errors"
	"sync"
	"sync/atomic"
)

// errFull reports that a table holds [most] values.
var errFull = errors.New("handle: table is full")

// most is how many values a table can hold at once.
const most = chunks * perChunk

const (
	chunks   = 256
	perChunk = 256

	// A handle is tag (16 bits), generation (32), slot (16). No address of a user-space process begins with the tag.
	// So a foreign pointer is never mistaken for a handle, and a program that dereferences a handle faults at once.
	tag      = 0x4c50
	tagShift = 48
	genShift = 16
)

// Table maps handles to values. The zero Table is empty and ready. Safe for concurrent
// use; Get takes no lock and does not allocate.
type Table[T any] struct {
	chunk [chunks]atomic.Pointer[[perChunk]slot[T]]

	mu   sync.Mutex // guards the fields below, and every change of a slot
	free []uint16   // freed slots, the last one last
	gens []uint32   // the last generation of every slot that has been used
}

// slot holds one immutable entry at a time, so that a reader sees a generation with its value.
type slot[T any] struct {
	entry atomic.Pointer[entry[T]]
}

type entry[T any] struct {
	gen   uint32
	value *T
}

// Add stores a value and returns its handle. A handle is never 0, and differs from the last 2^32 handles of its slot.
func (t *Table[T]) Add(value *T) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index, err := t.take()
	if err != nil {
		return 0, err
	}
	t.gens[index]++
	gen := t.gens[index]
	t.at(index).entry.Store(&entry[T]{gen: gen, value: value})
	return tag<<tagShift | uint64(gen)<<genShift | uint64(index), nil
}

// take returns a free slot.
func (t *Table[T]) take() (uint16, error) {
	if n := len(t.free); n > 0 {
		index := t.free[n-1]
		t.free = t.free[:n-1]
		return index, nil
	}
	if len(t.gens) == most {
		return 0, errFull
	}
	index := uint16(len(t.gens))
	if c := &t.chunk[index/perChunk]; c.Load() == nil {
		c.Store(new([perChunk]slot[T]))
	}
	t.gens = append(t.gens, 0)
	return index, nil
}

func (t *Table[T]) at(index uint16) *slot[T] {
	c := t.chunk[index/perChunk].Load()
	if c == nil {
		return nil
	}
	return &c[index%perChunk]
}

// Get returns the value of a handle, nil if the handle is stale or was never given out.
func (t *Table[T]) Get(h uint64) *T {
	if h>>tagShift != tag {
		return nil
	}
	s := t.at(uint16(h))
	if s == nil {
		return nil
	}
	if e := s.entry.Load(); e != nil && e.gen == uint32(h>>genShift) {
		return e.value
	}
	return nil
}

// Remove invalidates a handle and returns its value. If several callers remove one handle, one caller gets the value,
// and the others get nil.
func (t *Table[T]) Remove(h uint64) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	value := t.Get(h)
	if value == nil {
		return nil
	}
	t.at(uint16(h)).entry.Store(nil)
	t.free = append(t.free, uint16(h))
	return value
}
