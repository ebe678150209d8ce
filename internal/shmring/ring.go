// Package shmring holds the shared-memory primitives of the project: a single-producer
// single-consumer ring of slots and a futex doorbell, which live in memory that the caller
// provides (a mapping shared between processes, or the heap) and keep no pointers in it; and such
// mappings, [Memory] and [Bell], to be handed from process to process. They serve the front end of
// one host, the ports of the emulated OCS and the shared-memory transports alike; that is why they
// stand here, in the lowest layer that all reach.
package shmring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Layout: produced at 0 and want at 8 (the producer's cache line), consumed at 64 (the
// consumer's), then the slots. A slot is 8 bytes of length and tag followed by the
// payload, rounded up to cache lines.
const (
	ringHeader = 128
	slotHeader = 8
	lineSize   = 64
)

// ErrCorrupt reports a ring whose shared counters or lengths are impossible: the peer
// wrote where it must not.
var ErrCorrupt = errors.New("shmring: corrupt ring")

// Ring is one end's view of a ring. Either end makes its own view of the same memory
// with New; one goroutine produces, one consumes. No method blocks or allocates.
type Ring struct {
	produced, consumed *atomic.Uint64
	want               *atomic.Uint32
	slots              []byte
	stride             uint64
	count              uint64
	mask               uint64 // count-1 where count is a power of two, else 0
	_                  [lineSize]byte

	// Each end remembers how far it last saw the other, and looks again only when that does
	// not suffice, so that in a burst the counters' cache lines stay where they are.
	// The pads keep the ends apart where one view serves both.
	seenConsumed uint64 // producer's
	_            [lineSize - 8]byte
	seenProduced uint64 // consumer's
}

// Size returns the bytes that a ring of count slots of payload bytes each occupies.
func Size(count, payload int) int { return ringHeader + count*stride(payload) }

func stride(payload int) int {
	return (slotHeader + payload + lineSize - 1) &^ (lineSize - 1)
}

// New makes a view of a ring in mem, which must be 64-byte aligned, Size(count, payload)
// long and zero before first use.
func New(mem []byte, count, payload int) (*Ring, error) {
	if count < 1 || payload < 1 || len(mem) < Size(count, payload) {
		return nil, fmt.Errorf("shmring: %d bytes do not hold %d slots of %d", len(mem), count, payload)
	}
	if uintptr(unsafe.Pointer(&mem[0]))%lineSize != 0 {
		return nil, errors.New("shmring: memory is not 64-byte aligned")
	}
	r := &Ring{
		produced: (*atomic.Uint64)(unsafe.Pointer(&mem[0])),
		want:     (*atomic.Uint32)(unsafe.Pointer(&mem[8])),
		consumed: (*atomic.Uint64)(unsafe.Pointer(&mem[lineSize])),
		slots:    mem[ringHeader:Size(count, payload)],
		stride:   uint64(stride(payload)),
		count:    uint64(count),
	}
	if r.count&(r.count-1) == 0 {
		r.mask = r.count - 1
	}
	r.seenConsumed, r.seenProduced = r.consumed.Load(), r.consumed.Load()
	return r, nil
}

// Payload is the most bytes one slot holds.
func (r *Ring) Payload() int { return int(r.stride) - slotHeader }

// Free returns how many slots the producer may fill now.
func (r *Ring) Free() int {
	used := r.produced.Load() - r.consumed.Load()
	if used > r.count {
		return 0
	}
	return int(r.count - used)
}

// Empty reports whether the consumer has released everything that was produced.
func (r *Ring) Empty() bool { return r.produced.Load() == r.consumed.Load() }

// Pending returns how many slots are filled and not released.
func (r *Ring) Pending() int { return int(r.count) - r.Free() }

// Reserve returns the payload area of the next slot, nil where the ring is full. It stays
// reserved, and is returned again, until Commit.
func (r *Ring) Reserve() []byte {
	p := r.produced.Load()
	if p-r.seenConsumed >= r.count {
		r.seenConsumed = r.consumed.Load()
		if p-r.seenConsumed >= r.count {
			return nil
		}
	}
	return r.slot(p)[slotHeader:]
}

// Commit publishes the reserved slot with n bytes of payload and a tag.
func (r *Ring) Commit(n int, tag uint32) {
	p := r.produced.Load()
	s := r.slot(p)
	*(*uint32)(unsafe.Pointer(&s[0])) = uint32(n)
	*(*uint32)(unsafe.Pointer(&s[4])) = tag
	r.produced.Store(p + 1)
}

// Peek returns the oldest slot's payload and tag; nil where the ring is empty. The view is
// valid until Release.
func (r *Ring) Peek() (payload []byte, tag uint32, err error) { return r.PeekAt(0) }

// PeekAt returns the i-th oldest slot, as Peek does for the 0th.
func (r *Ring) PeekAt(i int) (payload []byte, tag uint32, err error) {
	c := r.consumed.Load()
	if n := r.seenProduced - c; n <= uint64(i) || n > r.count {
		r.seenProduced = r.produced.Load()
		if n = r.seenProduced - c; n > r.count {
			return nil, 0, ErrCorrupt
		} else if n <= uint64(i) {
			return nil, 0, nil
		}
	}
	s := r.slot(c + uint64(i))
	n := *(*uint32)(unsafe.Pointer(&s[0]))
	if uint64(n) > r.stride-slotHeader {
		return nil, 0, ErrCorrupt
	}
	return s[slotHeader : slotHeader+n], *(*uint32)(unsafe.Pointer(&s[4])), nil
}

// Release gives the oldest slot back to the producer.
func (r *Ring) Release() { r.consumed.Store(r.consumed.Load() + 1) }

// Want is the producer's request to be told of the next Release: after Want it looks at
// the ring once more and then sleeps. The consumer honours it by asking Wanted.
func (r *Ring) Want() {
	if r.want.Load() == 0 {
		r.want.Store(1)
	}
}

// Wanted reports, once, that the producer waits for a Release; the consumer asks after
// each, and rings the producer's doorbell. Without a request it is one load of a line
// that the consumer reads anyway.
func (r *Ring) Wanted() bool { return r.want.Load() != 0 && r.want.Swap(0) != 0 }

func (r *Ring) slot(i uint64) []byte {
	if r.mask != 0 {
		i &= r.mask
	} else {
		i %= r.count
	}
	at := i * r.stride
	return r.slots[at : at+r.stride]
}
