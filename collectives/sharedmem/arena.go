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
	line      = 64 // bytes of a cache line
	inlineAt  = 32
	inlineMax = line - inlineAt
	reducedAt = line
	dataAt    = 2 * line
)

// ring describes one of a rank's rings of slots.
type ring struct {
	slots uint64 // a power of two
	room  int    // bytes of data in a slot
	at    int    // where the first slot is in the rank's memory
	// report is how many chunks a rank consumes before it updates its counter. It is a power of two, and at most a quarter
	// of the slots. So no writer waits for a chunk that its reader consumed long ago.
	report uint64
}

const (
	small = iota
	middle
	large
	numRings
)

// Sizes of the rings. Small slots are many, so that a root can run ahead of its peers, which catch up in one turn if
// they share its CPU. Middle slots are so many that the next slot to write has left its readers' first-level caches:
// a line that a reader still holds there is the slowest to write. A large slot is so large that copying its data costs
// more than handing it over. largeSlots says how many there are.
const (
	smallSlots, smallRoom   = 64, 4 << 10
	middleSlots, middleRoom = 16, 32 << 10
	largeRoom               = 128 << 10
	processAt               = numRings * line // behind the counters
	middleAt                = smallAt + smallSlots*(dataAt+smallRoom)
	largeAt                 = middleAt + middleSlots*(dataAt+middleRoom)
)

// A core gets a line that a peer has just written either from the peer's cache or from a cache that both share. If the
// first is not slower, few slots are best: they stay in the writer's cache. On AMD processors it is two to three times
// slower, so there are enough slots that data leaves the writer's second-level cache before it is read. With more than
// manyRanks ranks there are half as many, so that the slots of all ranks fit into a third-level cache.
const (
	fewSlots, halfSlots, manySlots = 4, 8, 16
	manyRanks                      = 4
)

// largeSlots returns the number of large slots for so many ranks on this machine.
func largeSlots(ranks int) uint64 {
	switch {
	case vendor() != "AuthenticAMD":
		return fewSlots
	case ranks > manyRanks:
		return halfSlots
	}
	return manySlots
}

// vendor returns the vendor id of this machine's first processor, "" if the system does not tell.
var vendor = sync.OnceValue(func() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && lines.Text() != ""; {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "vendor_id" {
			return strings.TrimSpace(value)
		}
	}
	return ""
})

// perRank returns the bytes of a rank's memory with so many large slots.
func perRank(slots uint64) int { return largeAt + int(slots)*(dataAt+largeRoom) }

var rings = [numRings]ring{
	small:  {smallSlots, smallRoom, smallAt, 16},
	middle: {middleSlots, middleRoom, middleAt, 4},
	large:  {fewSlots, largeRoom, largeAt, 1}, // New sets the number of slots
}

// MaxRanks is the most ranks of an arena: each has one bit or line for each peer.
const MaxRanks = 64

// Size returns the bytes of an arena for so many ranks on this machine.
func Size(ranks int) int { return ranks * perRank(largeSlots(ranks)) }

// Arena is one rank's view of the shared memory. One goroutine at a time may use it.
type Arena struct {
	end     transport.Sharer // keeps the memory mapped
	at      unsafe.Pointer
	ranks   int
	rank    int
	perRank int // bytes
	rings   [numRings]ring
	next    [numRings]uint64 // number of the next chunk
	free    [numRings]uint64 // chunks that every peer has consumed, as last seen
	chain   uint64
	tile    []byte           // scratch of fold
	src     []unsafe.Pointer // arguments of fold, by rank
	tried   uint64           // bit p: this rank has tried to read rank p's memory
	known   bool             // all peers can read this rank's memory
	good    extent           // the buffer that was last found readable
	large   largePages
	regions regions
}

// New returns rank's view of the memory of e, or nil if that is too small. The number of large slots follows from the
// size of the memory, which all ranks see alike.
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
	a := &Arena{
		end: e, at: unsafe.Pointer(unsafe.SliceData(mem)), ranks: ranks, rank: rank, perRank: perRank(slots), rings: rings,
		tile: tile, src: make([]unsafe.Pointer, ranks),
	}
	a.rings[large].slots = slots
	a.announce()
	return a
}

// slot returns the slot of a rank's chunk k.
func (a *Arena) slot(r *ring, rank int, k uint64) unsafe.Pointer {
	return unsafe.Add(a.at, rank*a.perRank+r.at+int(k&(r.slots-1))*(dataAt+r.room))
}

// consumed returns a rank's counter of a ring.
func (a *Arena) consumed(id, rank int) *atomic.Uint64 { return word(a.at, rank*a.perRank+id*line) }

// hasRoom reports whether this rank may write chunk k of a ring. If not, peer has not consumed the slot's last chunk.
func (a *Arena) hasRoom(id int, k uint64) (peer int, ok bool) {
	if slots := a.rings[id].slots; k >= slots {
		return a.passed(id, k+1-slots)
	}
	return 0, true
}

// passed reports whether all peers have consumed the chunks before n of a ring. If not, peer has consumed the fewest.
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

// release tells the peers that this rank has consumed chunk k and all before it.
func (a *Arena) release(id int, k uint64) {
	if n := k + 1; n&(a.rings[id].report-1) == 0 {
		a.consumed(id, a.rank).Store(n)
		a.end.Ring()
	}
}

func word(at unsafe.Pointer, off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(at, off)) }
