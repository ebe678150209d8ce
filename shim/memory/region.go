package memory

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/sharedmem"
)

// Region is memory of ncclMemAlloc: one mapping. It begins at offset 0 of its file, which other processes of the host
// can map too while the region lives.
type Region struct {
	Base uintptr
	Size uintptr
	FD   int // of this process; -1: the memory cannot be shared
	// Number is set by [Add]. No other region of this process ever has the same number.
	Number uint64
}

func (r *Region) holds(p, n uintptr) bool { return p >= r.Base && n <= r.Size && p-r.Base <= r.Size-n }

// regions are the regions of this process, by Base. Readers take a snapshot and no lock.
var regions struct {
	mu   sync.Mutex
	last uint64 // number
	at   atomic.Pointer[[]Region]
}

// Add makes a region known.
func Add(r Region) {
	regions.mu.Lock()
	defer regions.mu.Unlock()
	regions.last++
	r.Number = regions.last
	all := slices.Clone(snapshot())
	i, _ := slices.BinarySearchFunc(all, r.Base, byBase)
	all = slices.Insert(all, i, r)
	regions.at.Store(&all)
}

// Remove forgets the region that begins at base, before it is freed. It fails while some of it is registered. Unknown
// memory is no error.
func Remove(base uintptr) error {
	regions.mu.Lock()
	defer regions.mu.Unlock()
	all := snapshot()
	i, ok := slices.BinarySearchFunc(all, base, byBase)
	if !ok {
		return nil
	}
	if err := refuseRegistered(all[i].Base, all[i].Size); err != nil {
		return err
	}
	sharedmem.Forget(all[i].Number)
	all = slices.Delete(slices.Clone(all), i, i+1)
	regions.at.Store(&all)
	return nil
}

func snapshot() []Region {
	if p := regions.at.Load(); p != nil {
		return *p
	}
	return nil
}

func byBase(r Region, base uintptr) int { return cmp.Compare(r.Base, base) }

// Find returns the region that contains all n bytes at p, and their offset in it. The region is valid until the
// collective with this buffer has ended. Hot path: no lock, no allocation.
func Find(p unsafe.Pointer, n int64) (r Region, offset int64, ok bool) {
	all, at := snapshot(), uintptr(p)
	i, exact := slices.BinarySearchFunc(all, at, byBase)
	if !exact {
		i--
	}
	if n < 0 || i < 0 || !all[i].holds(at, uintptr(n)) {
		return Region{}, 0, false
	}
	return all[i], int64(at - all[i].Base), true
}

// Bytes views n bytes at p; nil for none.
func Bytes(p unsafe.Pointer, n int64) []byte {
	if n == 0 || p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}
