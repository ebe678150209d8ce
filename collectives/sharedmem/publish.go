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

// A large block need not pass through slots. Its rank publishes the buffer's address in its slots' headers, the peers
// read the block there, and the rank waits until they have. There are two ways to read it:
//   - Memory that all peers have mapped (regions.go) is read like their own: one copy, or a reduction of all buffers.
//   - Other memory is copied by the kernel (process_vm_readv). That pays for blocks that are copied to one peer only.
//
// Each rank decides for its own blocks: it publishes regions that all peers have mapped, and other memory once all
// peers have said that they can read this process.

const (
	// publishMin is the smallest block that the kernel copies faster than two copies through slots. The kernel looks up
	// every page, such a call goes through Go, and it ends only when all peers have read.
	publishMin = 64 << 10
	// publishMany replaces publishMin on machines with many large slots, where slots are faster for longer. It counts all
	// blocks of a rank. publishManyOwn is for AllGather, where a rank reads the block, too, that its peer copies.
	publishMany    = 2 << 20
	publishManyOwn = 4 << 20
	// publishLarge replaces publishMany for buffers with large pages, of which there are few to look up.
	publishLarge = 512 << 10
	// publishRoot is for a Broadcast, whose root may otherwise run ahead of its peers.
	publishRoot = 4 << 20
	// publishMax is the smallest result, in bytes, for which slots are faster again if the buffer has small pages.
	publishMax = 16 << 20
	// publishRead is how much a reader copies at a time. Chunks are smaller for the caches' sake, which the kernel's copy
	// does not use.
	publishRead = 2 << 20
	// mappedMin is the least sum of the blocks that a rank sends, or receives, to be read in regions. Below it,
	// waiting for the readers and the call through Go cost more than a copy. mappedEach is the least per rank if all
	// ranks read the same blocks, and mappedRoot if there is one such block, whose root need not wait otherwise.
	mappedMin  = 128 << 10
	mappedEach = 32 << 10
	mappedRoot = 64 << 10
)

// processInfo tells peers about a rank's process. It is in the rank's memory.
type processInfo struct {
	token atomic.Uint64 // stored last, never 0: also the word at address at of process pid
	pid   uint64
	at    uint64
	reads atomic.Uint64 // bit p: this rank has read rank p's token in rank p's process
	// changes counts the changes of the rank's table of regions.
	changes atomic.Uint64
}

// token identifies this process, also among processes of other namespaces with the same number.
var token = rand.Uint64() | 1

func (a *Arena) processInfo(rank int) *processInfo {
	return (*processInfo)(unsafe.Add(a.at, rank*a.perRank+processAt))
}

// announce writes where peers find this process.
func (a *Arena) announce() {
	me := a.processInfo(a.rank)
	me.pid, me.at = uint64(os.Getpid()), uint64(uintptr(unsafe.Pointer(&token)))
	me.token.Store(token)
}

// readable reports whether all peers can read this rank's n bytes at p.
func (a *Arena) readable(p unsafe.Pointer, n int) bool {
	peers := (uint64(1)<<a.ranks - 1) &^ (1 << a.rank)
	if a.tried != peers {
		a.probe()
	}
	if !a.known {
		for r := range a.ranks {
			if r != a.rank && a.processInfo(r).reads.Load()&(1<<a.rank) == 0 {
				return false
			}
		}
		a.known = true
	}
	if a.good.at == p && a.good.n == n {
		return true
	}
	// Device memory has no pages to read: the kernel cannot read its first and last byte.
	var b [2]byte
	at, me := uint64(uintptr(p)), a.processInfo(a.rank).pid
	ok := readProcess(me, unsafe.Pointer(&b[0]), at, 1) == nil && readProcess(me, unsafe.Pointer(&b[1]), at+uint64(n-1),
		1) == nil
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

// probe tries to read the processes of ranks that have announced themselves since the last time.
func (a *Arena) probe() {
	me := a.processInfo(a.rank)
	for r := range a.ranks {
		bit := uint64(1) << r
		it := a.processInfo(r)
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

// mayPublish reports whether this call's blocks are worth publishing, if the buffer has large pages or not. Only
// blocks for one peer are: a block for several peers is filled once, and the kernel would copy it for each.
func (o *Op) mayPublish(largePages bool) bool {
	if o.Block < o.publishFrom(largePages) {
		return false
	}
	switch o.Collective {
	case schedule.AllGather:
		return o.a.ranks == 2
	case schedule.Broadcast:
		return o.a.ranks == 2 && o.Block >= publishRoot
	case schedule.AllToAll:
		return !o.InPlace // in place, results overwrite blocks that peers have still to read
	}
	return false
}

// publishFrom returns the smallest block to publish outside of mapped regions.
func (o *Op) publishFrom(largePages bool) int {
	switch {
	case o.a.rings[large].slots == fewSlots:
		return publishMin
	case o.Collective == schedule.AllGather:
		return publishManyOwn / o.a.ranks
	case largePages:
		return max(publishMin, publishLarge/o.a.ranks)
	}
	return max(publishMin, publishMany/o.a.ranks)
}

// mappable reports whether blocks of this call may be read in mapped regions. It depends on the call alone, as does
// every decision between C and Go.
func (o *Op) mappable() bool {
	if o.Scale != nil {
		return false
	}
	n := o.a.ranks
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce:
		return o.path.reduces // a rank has read all buffers when it says that it has reduced its part
	case schedule.Broadcast:
		return o.Block >= n*mappedRoot
	case schedule.AllGather, schedule.Gather:
		return n*o.Block >= max(mappedMin, n*mappedEach)
	}
	return n*o.Block >= mappedMin
}

// sendsRegion reports whether peers may read this rank's buffer. In an exchange in place they may not: results
// overwrite blocks that peers have still to read.
func (o *Op) sendsRegion() bool {
	return o.fills() != FillNothing && (!o.InPlace || o.Collective != schedule.AllToAll)
}

// inMappedRegion reports whether this rank's buffer is in a region that all peers have mapped, and sets o.at.
func (o *Op) inMappedRegion() bool {
	if !o.mappable() {
		return false
	}
	ok := false
	if o.sendsRegion() {
		o.at, o.mapping, ok = o.a.findMapped(o.Send, o.sent())
	}
	if o.chunks == 1 && !o.mapping { // only a call of one chunk may become C's
		_, recv := o.extents()
		o.mapping = o.a.inRegion(recv)
	}
	return ok
}

// sent returns how many bytes of its buffer this rank contributes.
func (o *Op) sent() int {
	blocks, _ := o.Collective.IOBlocks(o.a.ranks)
	return blocks * o.Block
}

// publish decides whether peers read this rank's chunks in its buffer.
func (o *Op) publish(largePages bool) bool {
	if o.inMappedRegion() {
		return true
	}
	if !o.mayPublish(largePages) || !largePages && o.resultBytes() >= publishMax {
		return false
	}
	return o.fills() != FillNothing && o.a.readable(o.Send, o.sent())
}

// fetch copies piece of rank p's chunk k to its place in the block at to.
func (o *Op) fetch(p int, k uint64, piece int, to unsafe.Pointer) error {
	from, n := o.span(k)
	dst := unsafe.Add(to, from)
	h := o.elsewhere(p, k)
	if h == nil {
		t := o.timeRead(k, n)
		o.store(dst, unsafe.Add(o.data(p, k), piece*o.stride), n)
		t.end(o.a, p, n)
		return nil
	}
	// In place, this rank has still to fill later chunks from where they would go: it reads chunk by chunk.
	if !o.InPlace || o.Collective != schedule.AllToAll {
		unit := max(publishRead/o.chunk, 1) * o.chunk
		if from%unit != 0 {
			return nil // was read with an earlier chunk
		}
		n = min(unit, o.Block-from)
	}
	if h.Region != 0 {
		src, err := o.view(h, p, piece*o.Block+from, n)
		if err != nil {
			return err
		}
		o.store(dst, src, n)
		return o.checkValid(p, k)
	}
	err := readProcess(o.a.processInfo(p).pid, dst, h.At+uint64(piece*o.Block+from), n)
	if gone := o.checkValid(p, k); gone != nil || errors.Is(err, unix.ESRCH) {
		return cmp.Or(gone, o.errGaveUp(p))
	}
	if err != nil {
		return fmt.Errorf("sharedmem: rank %d, operation %d: reading %d bytes of rank %d's send buffer: %w", o.a.rank,
			o.Seq, n, p, err)
	}
	return nil
}

// elsewhere returns the header of rank p's chunk k if the data is not in the slot, else nil.
func (o *Op) elsewhere(p int, k uint64) *Slot {
	if o.ring != large {
		return nil
	}
	if h := (*Slot)(o.a.slot(&o.a.rings[large], p, k)); h.At != 0 {
		return h
	}
	return nil
}

// view returns where the n bytes at from of rank p's buffer are mapped here.
func (o *Op) view(h *Slot, p, from, n int) (unsafe.Pointer, error) {
	o.mapping = true
	src, err := o.a.viewed(p, regionRef{h.Region, h.Offset + uint64(from), h.Place}, n)
	if err != nil {
		return nil, fmt.Errorf("sharedmem: rank %d, operation %d: rank %d's send buffer: %w", o.a.rank, o.Seq, p, err)
	}
	return src, nil
}

// source returns where this rank reads n bytes of rank p's chunk k: from byte from of the published buffer, or from
// byte at of the slot's data.
func (o *Op) source(p int, k uint64, at, from, n int) (unsafe.Pointer, error) {
	if h := o.elsewhere(p, k); h != nil && p != o.a.rank {
		return o.view(h, p, from, n)
	}
	return unsafe.Add(o.data(p, k), at), nil
}

// anyElsewhere reports whether a peer has published chunk k.
func (o *Op) anyElsewhere(k uint64) bool {
	for p := range o.a.ranks {
		if p != o.a.rank && o.elsewhere(p, k) != nil {
			return true
		}
	}
	return false
}

// checkAllValid is checkValid for all peers that have published chunk k.
func (o *Op) checkAllValid(k uint64) error {
	for p := range o.a.ranks {
		if p != o.a.rank && o.elsewhere(p, k) != nil {
			if err := o.checkValid(p, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkValid returns an error if rank p has withdrawn chunk k: then the bytes read from its buffer are undefined.
func (o *Op) checkValid(p int, k uint64) error {
	if word(o.a.slot(&o.a.rings[o.ring], p, k), 0).Load() != k+1 {
		return o.errGaveUp(p)
	}
	return nil
}

func (o *Op) errGaveUp(p int) error {
	return fmt.Errorf("sharedmem: rank %d, operation %d: %w: rank %d has given up", o.a.rank, o.Seq,
		transport.ErrPeerLost, p)
}

// finished reports whether the operation is complete: all results are in place, and no peer reads this rank's buffer.
func (o *Op) finished() bool {
	if o.consumed < o.chunks || !o.started {
		return false
	}
	// In an AllReduce, peers that have reduced their parts have read this rank's buffer.
	if o.published && o.Collective != schedule.AllReduce {
		if peer, ok := o.a.passed(o.ring, o.first+o.chunks); !ok {
			o.peer = peer
			return false
		}
	}
	return true
}

// Abandon ends an operation that has failed: it withdraws the published chunks, so that no peer uses what it reads from
// this rank's buffer. The arena must not be used again.
func (o *Op) Abandon() {
	if !o.started || !o.published {
		return
	}
	for k := o.first; k < o.first+o.filled; k++ {
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
		// A raw call: it takes no longer than the copy, so the scheduler need not know.
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
