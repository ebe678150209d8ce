// Package sharedmem runs collectives between ranks that have memory in common, without frames: each
// rank lays its contribution into slots of its own and reads those of the others.
//
// The memory is an arena. In it every rank has three rings of slots, small and middle ones for calls of one piece
// and large ones for the pieces (chunks) of big calls, and per ring a counter of the chunks that it
// has consumed. A slot is a header, which says what the chunk is part of, and data:
//
//	number u64 (atomic)  chunk number + 1: the header's other fields and the data are there
//	seq    u64           operation of the communicator
//	chain  u64           hash of this and all earlier operations here
//	sig    u32           signature of the call
//	place  u32           with a region, in its rank's table
//	data, where it is at most inlineMax bytes; in large slots
//	at     u64           address in this rank's process where the data is, 0 where it is in the slot
//	region u64           number of the region that it is in, 0 where that cannot be mapped
//	offset u64           where it begins in that region
//	reduced u64 (atomic) chunk number + 1: this rank's part of the result is in the slot
//	data, else
//
// Only its rank writes a slot, chunk k into slot k mod slots, and only when every rank,
// itself included, has consumed chunk k - slots. All ranks number chunks alike, since all make the same calls; where they
// do not, a header shows it, at the latest with the next call.
//
// Layer: inside collectives, beside program: an [exec.Engine]. It decides nothing that ranks could see
// differently, and waits for nothing itself: whoever polls it does.
package sharedmem

import (
	"bufio"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/transport"
)

const (
	line      = 64
	inlineAt  = 32
	inlineMax = line - inlineAt
	reducedAt = line
	dataAt    = 2 * line
)

// ring is one of the rings of slots that a rank has.
type ring struct {
	slots uint64 // a power of two
	room  int    // bytes of data in a slot
	at    int    // where the first slot is in the rank's memory
	// report is how many chunks are consumed before the others are told, a power of two: below
	// half the slots, so that nobody waits for a chunk that a rank has still to read.
	report uint64
}

const (
	small = iota
	middle
	large
	numRings
)

// The rings. A large slot is so large that what passes through it costs more than to hand it over, and how
// many there are depends on the machine (see largeSlots). The small ones are how far a root gets
// ahead of the others, which they make up for in one turn where they share its CPU. The middle ones are so many that what a
// rank writes next has left its readers' first-level caches, out of which a line comes slowest.
const (
	smallSlots, smallRoom   = 64, 4 << 10
	middleSlots, middleRoom = 16, 32 << 10
	largeRoom               = 128 << 10
	aboutAt                 = numRings * line // behind the counters
	middleAt                = smallAt + smallSlots*(dataAt+smallRoom)
	largeAt                 = middleAt + middleSlots*(dataAt+middleRoom)
)

// A core gets lines that another one has just written either out of that one's cache or out of what both share. Where
// the first is no slower, few slots stay in their writer's cache, which so has them at hand. On AMD's cores it is
// two to three times slower, so there are so many that what a rank has laid out has left its second-level cache when it is read;
// but those of more than manyRanks ranks are half as many, for all of them should stay in a third-level cache.
const (
	fewSlots, halfSlots, manySlots = 4, 8, 16
	manyRanks                      = 4
)

// largeSlots is what suits so many ranks on this machine.
func largeSlots(ranks int) uint64 {
	switch {
	case vendor() != "AuthenticAMD":
		return fewSlots
	case ranks > manyRanks:
		return halfSlots
	}
	return manySlots
}

// vendor is who made this machine's processors, as they say; "" where the system does not tell.
var vendor = sync.OnceValue(func() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; { // the first processor's
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "vendor_id" {
			return strings.TrimSpace(value)
		}
	}
	return ""
})

// perRank is the bytes of a rank with so many large slots.
func perRank(slots uint64) int { return largeAt + int(slots)*(dataAt+largeRoom) }

var rings = [numRings]ring{
	small:  {smallSlots, smallRoom, smallAt, 16},
	middle: {middleSlots, middleRoom, middleAt, 4},
	large:  {fewSlots, largeRoom, largeAt, 1}, // in an arena as many as there is memory for
}

// MaxRanks is the most ranks of an arena: with more, what each can say to each is too little.
const MaxRanks = 64

// Size is how many bytes an arena of so many ranks should have on this machine.
func Size(ranks int) int { return ranks * perRank(largeSlots(ranks)) }

// Arena is one rank's view of the memory. It belongs to one goroutine at a time.
type Arena struct {
	end     transport.Sharer // keeps the memory mapped
	at      unsafe.Pointer
	ranks   int
	rank    int
	perRank int // bytes
	rings   [numRings]ring
	next    [numRings]uint64 // number of the next chunk
	free    [numRings]uint64 // what every other rank has consumed, as far as known
	chain   uint64
	tile    []byte           // where results of several steps are made, see fold
	src     []unsafe.Pointer // of fold, by rank
	tried   uint64           // bit p: whether this rank can read rank p's memory has been tried
	known   bool             // that all others can read this rank's
	good    extent           // which they can read, as found last
	large   largePages
	regions regions
}

// New returns rank's view of the memory of e, nil where that is too small. All ranks see alike how much there is, which
// says how many slots are in it.
func New(e transport.Sharer, ranks, rank int) *Arena {
	mem := e.Shared()
	slots := uint64(manySlots)
	for slots >= fewSlots && len(mem) < ranks*perRank(slots) {
		slots /= 2
	}
	if ranks < 2 || ranks > MaxRanks || slots < fewSlots {
		return nil
	}
	tile := make([]byte, tileSize+line)
	tile = tile[-uintptr(unsafe.Pointer(&tile[0]))%line:][:tileSize]
	a := &Arena{end: e, at: unsafe.Pointer(unsafe.SliceData(mem)), ranks: ranks, rank: rank, tile: tile, src: make([]unsafe.Pointer, ranks)}
	a.perRank, a.rings = perRank(slots), rings
	a.rings[large].slots = slots
	a.introduce()
	return a
}

// slot returns where a rank has chunk k.
func (a *Arena) slot(r *ring, rank int, k uint64) unsafe.Pointer {
	return unsafe.Add(a.at, rank*a.perRank+r.at+int(k&(r.slots-1))*(dataAt+r.room))
}

// consumed is the counter of a rank.
func (a *Arena) consumed(id, rank int) *atomic.Uint64 { return word(a.at, rank*a.perRank+id*line) }

// hasRoom reports whether this rank may write chunk k of a ring, or which rank has still to read
// what is there.
func (a *Arena) hasRoom(id int, k uint64) (peer int, ok bool) {
	if slots := a.rings[id].slots; k >= slots {
		return a.passed(id, k+1-slots)
	}
	return 0, true
}

// passed reports whether all other ranks have consumed the chunks before n of a ring, or which rank has not.
func (a *Arena) passed(id int, n uint64) (peer int, ok bool) {
	if n <= a.free[id] {
		return 0, true
	}
	least := ^uint64(0)
	for p := range a.ranks {
		if p == a.rank {
			continue
		}
		if c := a.consumed(id, p).Load(); c < least {
			least, peer = c, p
		}
	}
	a.free[id] = least
	return peer, n <= least
}

// release tells the others that this rank needs chunk k no more, nor any before.
func (a *Arena) release(id int, k uint64) {
	if n := k + 1; n&(a.rings[id].report-1) == 0 {
		a.consumed(id, a.rank).Store(n)
		a.end.Ring()
	}
}

func word(at unsafe.Pointer, off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(at, off)) }
