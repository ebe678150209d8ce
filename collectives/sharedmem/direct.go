package sharedmem

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/schedule"
	"lightpath/collectives/transport"
)

// A large block need not pass through slots: its rank publishes where it is, the others read it there, and the
// rank waits until they have. Memory that all others have mapped (regions.go) they read like their own: it is copied once, or
// combined out of all ranks' buffers at once. Out of any other memory they copy by the kernel
// (process_vm_readv), which pays for blocks that are only copied, and to one other rank. Each rank decides that for its own blocks,
// of regions by the others' answers, else once all others have said that they can read its memory.

const (
	// directMin is the size of blocks from which one copy by the kernel costs less than two by the ranks: it
	// looks up every page, and a call goes through Go, and is over only when everybody has read.
	directMin = 64 << 10
	// directMany is the same where there are many slots, which are the faster for it, of all blocks of a rank; and
	// directManyOwn where a rank reads the block itself that the other one copies.
	directMany    = 2 << 20
	directManyOwn = 4 << 20
	// directLarge is directMany where the blocks have large pages, of which there are few to look up.
	directLarge = 512 << 10
	// directRoot is the same for a root, which it keeps from running ahead.
	directRoot = 4 << 20
	// directMax is the size of results from which that is no longer so for buffers of small pages: they come
	// from memory then, with all that the kernel must look up, and slots feed stores past the caches.
	directMax = 16 << 20
	// directRead is how much is read at a time: the chunks of slots are for the caches' sake, of
	// which the kernel's copy has no use.
	directRead = 2 << 20
	// mappedMin is how many bytes all blocks that a rank sends, or gets, have at least to be read out of regions: below, to
	// wait for those who read, and the way through Go, cost more than a copy. mappedEach is the least per rank where all read the
	// same, and mappedRoot where there is one such block, which its root otherwise leaves behind.
	mappedMin  = 128 << 10
	mappedEach = 32 << 10
	mappedRoot = 64 << 10
)

// about is what the others must know of a rank, in its memory.
type about struct {
	token atomic.Uint64 // stored last, never 0: the word at address at of process pid
	pid   uint64
	at    uint64
	reads atomic.Uint64 // bit p: has read rank p's token
	// changes counts those of the rank's table of regions.
	changes atomic.Uint64
}

// token tells this process from any other, also where numbers of processes mean different ones.
var token = rand.Uint64() | 1

func (a *Arena) about(rank int) *about {
	return (*about)(unsafe.Add(a.at, rank*a.perRank+aboutAt))
}

// introduce lets the others find this process.
func (a *Arena) introduce() {
	me := a.about(a.rank)
	me.pid, me.at = uint64(os.Getpid()), uint64(uintptr(unsafe.Pointer(&token)))
	me.token.Store(token)
}

// readable reports whether all others can read this rank's n bytes at p.
func (a *Arena) readable(p unsafe.Pointer, n int) bool {
	others := (uint64(1)<<a.ranks - 1) &^ (1 << a.rank)
	if a.tried != others {
		a.probe()
	}
	if !a.known {
		for r := range a.ranks {
			if r != a.rank && a.about(r).reads.Load()&(1<<a.rank) == 0 {
				return false
			}
		}
		a.known = true
	}
	if a.good.at == p && a.good.n == n {
		return true
	}
	// Memory of devices has no pages to read: its ends tell.
	var b [2]byte
	at, me := uint64(uintptr(p)), a.about(a.rank).pid
	ok := readProcess(me, unsafe.Pointer(&b[0]), at, 1) == nil && readProcess(me, unsafe.Pointer(&b[1]), at+uint64(n-1), 1) == nil
	if ok {
		a.good = extent{p, n}
	}
	return ok
}

// extent is memory of this process.
type extent struct {
	at unsafe.Pointer
	n  int
}

// probe tries to read from the ranks that have come since the last time.
func (a *Arena) probe() {
	me := a.about(a.rank)
	for r := range a.ranks {
		bit := uint64(1) << r
		it := a.about(r)
		want := it.token.Load()
		if r == a.rank || a.tried&bit != 0 || want == 0 {
			continue
		}
		a.tried |= bit
		var got uint64
		if readProcess(it.pid, unsafe.Pointer(&got), it.at, int(unsafe.Sizeof(got))) == nil && got == want {
			me.reads.Store(me.reads.Load() | bit)
		}
	}
}

// publishable reports whether this rank's chunks may be read where they are, where its buffer has large pages, or not: where
// each is one rank's. Laid out once for several it costs the ranks less than as many calls of the kernel.
func (o *Op) publishable(largePages bool) bool {
	if o.Block < o.directFrom(largePages) {
		return false
	}
	switch o.Collective {
	case schedule.AllGather:
		return o.a.ranks == 2
	case schedule.Broadcast:
		return o.a.ranks == 2 && o.Block >= directRoot
	case schedule.AllToAll:
		return !o.InPlace // else results overwrite what others have still to read
	}
	return false
}

// directFrom is the least block that may be read where it is, of memory that not all have mapped.
func (o *Op) directFrom(largePages bool) int {
	switch {
	case o.a.rings[large].slots == fewSlots:
		return directMin
	case o.Collective == schedule.AllGather:
		return directManyOwn / o.a.ranks
	case largePages:
		return max(directMin, directLarge/o.a.ranks)
	}
	return max(directMin, directMany/o.a.ranks)
}

// mappable reports whether blocks of this call may be read in memory that all others have mapped. Like all that decides
// between Go and C it depends on the call alone.
func (o *Op) mappable() bool {
	if o.Scale != nil {
		return false
	}
	n := o.a.ranks
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce:
		return o.path.reduces // each combines its part, of which it has all copies read before it says so
	case schedule.Broadcast:
		return o.Block >= n*mappedRoot
	case schedule.AllGather, schedule.Gather:
		return n*o.Block >= max(mappedMin, n*mappedEach)
	}
	return n*o.Block >= mappedMin
}

// lends reports whether this rank's blocks may be. In an exchange in place results overwrite what others have still to read.
func (o *Op) lends() bool {
	switch o.Collective {
	case schedule.AllToAll:
		return !o.InPlace
	case schedule.Broadcast, schedule.Scatter:
		return o.a.rank == o.Root
	case schedule.Gather:
		return o.a.rank != o.Root
	}
	return true
}

// maps reports whether this rank's buffer is read where all others have mapped it.
func (o *Op) maps() bool {
	if !o.mappable() {
		return false
	}
	ok := false
	if o.lends() {
		o.at, o.mapping, ok = o.a.lend(o.Send, o.sent())
	}
	if o.chunks == 1 && !o.mapping { // else nobody asks
		_, recv := o.extents()
		o.mapping = o.a.inRegion(recv)
	}
	return ok
}

// sent is how many bytes of its buffer this rank contributes.
func (o *Op) sent() int {
	if o.path.pieces {
		return o.a.ranks * o.Block
	}
	return o.Block
}

// publishes reports whether this rank's chunks are read where they are, where its buffer has large pages, or not.
func (o *Op) publishes(largePages bool) bool {
	if o.maps() {
		return true
	}
	if !o.publishable(largePages) || !largePages && o.resultBytes() >= directMax {
		return false
	}
	if o.Collective == schedule.Broadcast && o.a.rank != o.Root {
		return false
	}
	return o.a.readable(o.Send, o.sent())
}

// fetch puts piece of rank p's chunk k to where it belongs in the block at to.
func (o *Op) fetch(p int, k uint64, piece int, to unsafe.Pointer) error {
	from, n := o.span(k)
	dst := unsafe.Add(to, from)
	h := o.elsewhere(p, k)
	if h == nil {
		t := o.reading(k, n)
		o.store(dst, unsafe.Add(o.data(p, k), piece*o.stride), n)
		t.ends(o.a, p, n)
		return nil
	}
	if !o.InPlace || o.Collective != schedule.AllToAll { // else this rank has still to lay out what is in the place of later chunks
		unit := max(directRead/o.chunk, 1) * o.chunk
		if from%unit != 0 {
			return nil // has come with a chunk before
		}
		n = min(unit, o.Block-from)
	}
	if h.region != 0 {
		src, err := o.lent(h, p, piece*o.Block+from, n)
		if err != nil {
			return err
		}
		o.store(dst, src, n)
		return o.stands(p, k)
	}
	err := readProcess(o.a.about(p).pid, dst, h.at+uint64(piece*o.Block+from), n)
	if gone := o.stands(p, k); gone != nil || errors.Is(err, unix.ESRCH) {
		return cmp.Or(gone, o.gaveUp(p))
	}
	if err != nil {
		return fmt.Errorf("shared: rank %d, operation %d: reading %d bytes of rank %d's send buffer: %w", o.a.rank, o.Seq, n, p, err)
	}
	return nil
}

// elsewhere returns the header of rank p's chunk k where that is not in its slot, else nil.
func (o *Op) elsewhere(p int, k uint64) *header {
	if o.ring != large {
		return nil
	}
	if h := (*header)(o.a.slot(&o.a.rings[large], p, k)); h.at != 0 {
		return h
	}
	return nil
}

// lent returns where the n bytes at from of rank p's buffer are mapped here.
func (o *Op) lent(h *header, p, from, n int) (unsafe.Pointer, error) {
	o.mapping = true
	src, err := o.a.viewed(p, where{h.region, h.offset + uint64(from), h.place}, n)
	if err != nil {
		return nil, fmt.Errorf("shared: rank %d, operation %d: rank %d's send buffer: %w", o.a.rank, o.Seq, p, err)
	}
	return src, nil
}

// source returns where this rank reads the n bytes at from of rank p's buffer, which are in chunk k, at the byte at of its data.
func (o *Op) source(p int, k uint64, at, from, n int) (unsafe.Pointer, error) {
	if h := o.elsewhere(p, k); h != nil && p != o.a.rank {
		return o.lent(h, p, from, n)
	}
	return unsafe.Add(o.data(p, k), at), nil
}

// anyElsewhere reports whether one of the others has chunk k not in its slot.
func (o *Op) anyElsewhere(k uint64) bool {
	for p := range o.a.ranks {
		if p != o.a.rank && o.elsewhere(p, k) != nil {
			return true
		}
	}
	return false
}

// stood is stands of all others whose chunk k is not in a slot.
func (o *Op) stood(k uint64) error {
	for p := range o.a.ranks {
		if p != o.a.rank && o.elsewhere(p, k) != nil {
			if err := o.stands(p, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// stands is an error where rank p has taken chunk k back, so that what has been read of it may be anything.
func (o *Op) stands(p int, k uint64) error {
	if word(o.a.slot(&o.a.rings[o.ring], p, k), 0).Load() != k+1 {
		return o.gaveUp(p)
	}
	return nil
}

func (o *Op) gaveUp(p int) error {
	return fmt.Errorf("shared: rank %d, operation %d: %w: rank %d has given up", o.a.rank, o.Seq, transport.ErrPeerLost, p)
}

// finished reports whether the operation is complete: nobody reads this rank's buffer any more.
func (o *Op) finished() bool {
	if o.taken < o.chunks || !o.started {
		return false
	}
	// Whoever has combined its part has said so.
	if o.direct && o.Collective != schedule.AllReduce {
		if peer, ok := o.a.passed(o.ring, o.first+o.chunks); !ok {
			o.peer = peer
			return false
		}
	}
	return true
}

// Abandon ends an operation that has failed: afterwards no rank takes what it reads out of this rank's buffer
// for data. The arena is of no use any more.
func (o *Op) Abandon() {
	if !o.started || !o.direct {
		return
	}
	for k := o.first; k < o.first+o.laid; k++ {
		if n := word(o.a.slot(&o.a.rings[o.ring], o.a.rank, k), 0); n.Load() == k+1 {
			n.Store(0)
		}
	}
}

// readProcess copies n bytes at an address of a process to dst.
// Hot path: no allocation.
func readProcess(pid uint64, dst unsafe.Pointer, at uint64, n int) error {
	local := unix.Iovec{Base: (*byte)(dst), Len: uint64(n)}
	remote := unix.RemoteIovec{Base: uintptr(at), Len: n}
	for {
		// Raw, for it takes no longer than the copy.
		got, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
			uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
		switch {
		case e == unix.EINTR:
		case e != 0:
			return e
		case int(got) != n:
			return unix.EFAULT
		default:
			return nil
		}
	}
}
