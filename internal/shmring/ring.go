package shmring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Layout of a ring's memory: produced at 0 and want at 8 (the producer's cache line), consumed at 64 (the consumer's
// cache line), then the slots. A slot is a length (u32), a tag (u32) and the payload, rounded up to cache lines.
const (
	ringHeader = 128
	slotHeader = 8
	lineSize   = 64
)

// ErrCorrupt reports impossible counters or lengths in a ring: the peer wrote outside its slots.
var ErrCorrupt = errors.New("shmring: corrupt ring")

// Ring is the producer's or the consumer's view of a ring. Each end calls New on the same memory. One goroutine
// produces and one consumes. No method blocks or allocates.
type Ring struct {
	produced, consumed *atomic.Uint64
	want               *atomic.Uint32
	slots              []byte
	stride             uint64
	count              uint64
	mask               uint64 // count-1 if count is a power of two, else 0
	_                  [lineSize]byte

	// Each end caches the other end's counter and reads it again only when the cached value does not suffice.
	// So a burst does not move the counters' cache lines. The padding separates the ends if they share one view.
	seenConsumed uint64 // producer's
	_            [lineSize - 8]byte
	seenProduced uint64 // consumer's
}

// Size returns the bytes that a ring of count slots with payload bytes each occupies.
func Size(count, payload int) int { return ringHeader + count*stride(payload) }

func stride(payload int) int {
	return (slotHeader + payload + lineSize - 1) &^ (lineSize - 1)
}

// New returns a view of a ring in mem. The memory is 64-byte aligned, at least Size(count, payload) bytes long and
// zero before first use.
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

// Payload returns the capacity of one slot in bytes.
func (r *Ring) Payload() int { return int(r.stride) - slotHeader }

// Free returns the number of slots that the producer may fill now.
func (r *Ring) Free() int {
	used := r.produced.Load() - r.consumed.Load()
	if used > r.count {
		return 0
	}
	return int(r.count - used)
}

// Empty reports whether the consumer has released every committed slot.
func (r *Ring) Empty() bool { return r.produced.Load() == r.consumed.Load() }

// Pending returns the number of slots that are committed and not released.
func (r *Ring) Pending() int { return int(r.count) - r.Free() }

// Reserve returns the payload area of the next slot, or nil if the ring is full. It returns the same slot until
// Commit.
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

// Commit publishes the reserved slot, which holds n bytes of payload, with a tag.
func (r *Ring) Commit(n int, tag uint32) {
	p := r.produced.Load()
	s := r.slot(p)
	*(*uint32)(unsafe.Pointer(&s[0])) = uint32(n)
	*(*uint32)(unsafe.Pointer(&s[4])) = tag
	r.produced.Store(p + 1)
}

// Peek returns the payload and tag of the oldest slot, or nil if the ring is empty. The payload is valid until
// Release.
func (r *Ring) Peek() (payload []byte, tag uint32, err error) {
	c := r.consumed.Load()
	if n := r.seenProduced - c; n == 0 || n > r.count {
		r.seenProduced = r.produced.Load()
		switch n = r.seenProduced - c; {
		case n == 0:
			return nil, 0, nil
		case n > r.count:
			return nil, 0, ErrCorrupt
		}
	}
	s := r.slot(c)
	n := *(*uint32)(unsafe.Pointer(&s[0]))
	if uint64(n) > r.stride-slotHeader {
		return nil, 0, ErrCorrupt
	}
	return s[slotHeader : slotHeader+n], *(*uint32)(unsafe.Pointer(&s[4])), nil
}

// Release returns the oldest slot to the producer.
func (r *Ring) Release() { r.consumed.Store(r.consumed.Load() + 1) }

// Want asks the consumer to ring the producer's doorbell after its next Release. The producer then checks the ring
// once more before it sleeps.
func (r *Ring) Want() {
	if r.want.Load() == 0 {
		r.want.Store(1)
	}
}

// Wanted reports once that the producer called Want. The consumer calls it after each Release and rings the
// producer's doorbell if it returns true. Without a request it costs one load of a cache line that the consumer
// reads anyway.
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
