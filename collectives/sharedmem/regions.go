package sharedmem

import (
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/sharedmem/memfile"
)

// Peers can map memory that is a file of its rank's process, and then read it like their own. A rank whose call sends
// from such a region *offers* it in a table of its own in the arena. The peers map what is offered when their next
// large call begins, and *answer* with the region's number. Once all have answered, the headers of the rank's chunks
// may say where in the region the data is. No rank waits for a mapping; if a peer cannot map the region, chunks go
// through slots as before.
//
// A region's number is never used again. So no mapping or answer for a freed region is used for other memory at its
// address.

// Region is memory of this process that peers may map: Size bytes from the beginning of a file.
type Region struct {
	Number uint64 // above 0 and below 1<<63; no other region of this process ever has it
	FD     int
	Size   int64
}

const (
	// regionsOffered is how many regions of a rank its peers have mapped at most.
	regionsOffered = 16
	// offerAge is for how many large calls an unused region keeps its entry in a full table. To map another region in
	// every call would cost more than copies.
	offerAge = 256
	// A region is offered at the offerUse-th call that sends offerLarge bytes or more from it. Peers need as long to look
	// up its pages as for a few copies, which does not pay for memory that is new in every call.
	offerUse   = 4
	offerLarge = 4 << 20
	// refusal is the bit of an answer that says that the peer could not map the region.
	refusal = 1 << 63
)

// offer is an entry of a rank's table.
type offer struct {
	number   atomic.Uint64 // stored last; 0: none
	fd, size atomic.Uint64
	dev, ino atomic.Uint64
	_, _, _  uint64 // a line
}

// offers is the table that a rank writes for its peers. answers is what it answers to theirs, by their rank.
type (
	offers  [regionsOffered]offer
	answers [MaxRanks][regionsOffered]atomic.Uint64
)

const (
	offersAt  = processAt + line
	answersAt = offersAt + regionsOffered*line
)

func (a *Arena) offers(rank int) *offers { return (*offers)(unsafe.Add(a.at, rank*a.perRank+offersAt)) }
func (a *Arena) answers(rank int) *answers {
	return (*answers)(unsafe.Add(a.at, rank*a.perRank+answersAt))
}

// regions holds an arena's mapped memory. The zero value offers nothing, and maps what peers offer.
type regions struct {
	find     func(p unsafe.Pointer, n int64) (r Region, offset int64, ok bool)
	refused  func(rank int, err error)
	mine     [regionsOffered]ownRegion
	calls    uint64           // large ones
	seen     [MaxRanks]uint64 // by rank: processInfo.changes when this rank last went through its table
	reported uint64           // bit p: refused has been called for rank p
	theirs   []view           // by rank and entry of its table
}

// ownRegion is an entry of this rank's table: a region that it has offered, or may offer later.
type ownRegion struct {
	number uint64
	used   uint64 // the large call that used it last
	uses   int    // before it was offered
	state  offerState
}

type offerState uint8

const (
	notOffered offerState = iota
	offered               // some peers have not answered
	mappedByAll
	refused
)

// view is this process's mapping of a peer's region. mem is nil if mapping has failed.
type view struct {
	number uint64
	mem    []byte
}

// regionRef is a place in a region that this rank has offered.
type regionRef struct {
	number, offset uint64
	place          uint32 // the region's entry in the rank's table
}

// sharing holds the arenas of this process, whose tables drop regions that are freed.
var sharing struct {
	sync.Mutex
	arenas map[*Arena]bool
}

// UseRegions lets peers map the regions that find returns: the region that holds all n bytes at p, and where they
// begin in it. find must neither lock nor allocate. refused is called once for each rank whose memory cannot be
// mapped. The caller must call [Arena.Close].
func (a *Arena) UseRegions(find func(p unsafe.Pointer, n int64) (Region, int64, bool), refused func(rank int,
	err error)) {
	a.regions.find, a.regions.refused = find, refused
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.arenas == nil {
		sharing.arenas = map[*Arena]bool{}
	}
	sharing.arenas[a] = true
}

// Close unmaps the peers' regions. The arena must not be used again.
func (a *Arena) Close() {
	sharing.Lock()
	delete(sharing.arenas, a)
	sharing.Unlock()
	for i := range a.regions.theirs {
		a.regions.theirs[i].drop()
	}
}

// Forget removes a region that is about to be freed from all tables. Peers unmap it when their next large call begins.
// Safe for concurrent use.
func Forget(number uint64) {
	sharing.Lock()
	defer sharing.Unlock()
	for a := range sharing.arenas {
		for i := range a.offers(a.rank) {
			if a.offers(a.rank)[i].number.CompareAndSwap(number, 0) {
				a.processInfo(a.rank).changes.Add(1)
			}
		}
	}
}

// findMapped returns where this rank's n bytes at p are, if they are in a region that all peers have mapped. known
// reports whether they are in a region that peers may map later. Hot path: no allocation, no locks.
func (a *Arena) findMapped(p unsafe.Pointer, n int) (w regionRef, known, ok bool) {
	g := &a.regions
	if g.find == nil || n == 0 {
		return w, false, false
	}
	r, offset, ok := g.find(p, int64(n))
	if !ok || r.FD < 0 {
		return w, false, false
	}
	i := a.entryOf(r.Number)
	if i < 0 {
		return w, true, false
	}
	l := &g.mine[i]
	l.used = g.calls
	switch l.state {
	case notOffered:
		if l.uses++; n < offerLarge || l.uses >= offerUse {
			a.offer(i, &r)
			l.state = offered
		}
	case offered:
		l.state = a.answered(i, r.Number)
	}
	if l.state != mappedByAll {
		return w, l.state != refused, false
	}
	return regionRef{r.Number, uint64(offset), uint32(i)}, true, true
}

// inRegion reports whether memory of this rank is in a region.
func (a *Arena) inRegion(e extent) bool {
	if a.regions.find == nil || e.n == 0 {
		return false
	}
	_, _, ok := a.regions.find(e.at, int64(e.n))
	return ok
}

// entryOf returns the entry of a region in this rank's table, -1 if there is none. A new region replaces one that has
// been freed, one that has not been used for offerAge calls, or the oldest that has not been offered.
func (a *Arena) entryOf(number uint64) int {
	g, table := &a.regions, a.offers(a.rank)
	oldest, best := uint64(math.MaxUint64), -1
	for i := range table {
		l := &g.mine[i]
		if l.number == number {
			return i
		}
		age := l.used
		switch {
		case l.number == 0 || l.state != notOffered && table[i].number.Load() == 0:
			age = 0
		case l.state != notOffered && g.calls-l.used < offerAge:
			continue
		}
		if age < oldest {
			oldest, best = age, i
		}
	}
	if best >= 0 {
		g.mine[best] = ownRegion{number: number}
	}
	return best
}

// offer writes a region to an entry of this rank's table.
func (a *Arena) offer(entry int, r *Region) {
	at := memfile.Find(r.FD, 0)
	o := &a.offers(a.rank)[entry]
	// No peer reads from the entry's last region: the calls that did have ended.
	o.number.Store(0)
	o.fd.Store(uint64(uint32(at.FD)))
	o.size.Store(uint64(r.Size))
	o.dev.Store(at.Dev)
	o.ino.Store(at.Ino)
	o.number.Store(r.Number)
	a.processInfo(a.rank).changes.Add(1)
}

// answered returns the state of an entry of this rank's table, by the peers' answers.
func (a *Arena) answered(entry int, number uint64) offerState {
	state := mappedByAll
	for p := range a.ranks {
		if p == a.rank {
			continue
		}
		switch a.answers(p)[a.rank][entry].Load() {
		case number:
		case number | refusal:
			return refused
		default:
			state = offered
		}
	}
	return state
}

// mapOffers maps what peers have offered since the last call, and unmaps what they have withdrawn.
// Hot path: while no peer changes its table, it reads one word of each.
func (a *Arena) mapOffers() {
	g := &a.regions
	g.calls++
	for p := range a.ranks {
		if p == a.rank {
			continue
		}
		if n := a.processInfo(p).changes.Load(); n != g.seen[p] {
			g.seen[p] = n
			a.mapOffersOf(p)
		}
	}
}

// mapOffersOf maps and unmaps according to one rank's table.
func (a *Arena) mapOffersOf(p int) {
	g := &a.regions
	if g.theirs == nil {
		g.theirs = make([]view, a.ranks*regionsOffered)
	}
	for i := range a.offers(p) {
		o, v := &a.offers(p)[i], &g.theirs[p*regionsOffered+i]
		number := o.number.Load()
		if number == v.number {
			continue
		}
		v.drop()
		if number == 0 {
			continue
		}
		at := memfile.Place{PID: int32(a.processInfo(p).pid), FD: int32(uint32(o.fd.Load())), Dev: o.dev.Load(),
			Ino: o.ino.Load()}
		size := int64(o.size.Load())
		if o.number.Load() != number {
			continue // the rank is replacing the entry, which it will announce as another change
		}
		mem, err := memfile.Map(at, size, false)
		*v = view{number, mem}
		answer := number
		if err != nil {
			answer |= refusal
			a.reportRefusal(p, err)
		}
		a.answers(a.rank)[p][i].Store(answer)
	}
}

// reportRefusal reports once why a rank's memory cannot be mapped.
func (a *Arena) reportRefusal(p int, err error) {
	g := &a.regions
	if g.refused != nil && g.reported>>p&1 == 0 {
		g.reported |= 1 << p
		g.refused(p, err)
	}
}

func (v *view) drop() {
	memfile.Unmap(v.mem)
	*v = view{}
}

// viewed returns where n bytes at a place of rank p are mapped here.
// Hot path: allocates only for an error.
func (a *Arena) viewed(p int, w regionRef, n int) (unsafe.Pointer, error) {
	if i := p*regionsOffered + int(w.place); w.place < regionsOffered && i < len(a.regions.theirs) {
		v := &a.regions.theirs[i]
		if size := uint64(len(v.mem)); v.number == w.number && w.offset < size && uint64(n) <= size-w.offset {
			return unsafe.Pointer(&v.mem[w.offset]), nil
		}
	}
	return nil, fmt.Errorf("%d bytes at %d of its region %d are not in the region that it offered: %w", n, w.offset,
		w.number, os.ErrInvalid)
}
