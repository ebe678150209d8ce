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

// Memory that is a file of its rank's process can be mapped by the others, who then read it like their own.
// A rank whose call sends out of such a region *offers* it, in a table of its in the arena; the others map
// what is offered when a large call of theirs begins, and *answer* with the region's number. Once all have,
// the rank's chunks may say where in the region they are instead of being copied: nobody waits for a mapping, and
// where one of them cannot map nothing changes. A number is never used again, so neither is a mapping or an answer
// for a region that has been freed, whatever is at its address now.

// Region is memory of this process that others may map: size bytes from the beginning of a file.
type Region struct {
	Number uint64 // above 0 and below 1<<63; no other region of this process ever has it
	FD     int
	Size   int64
}

const (
	// regionsOffered is how many regions of a rank the others have mapped at most.
	regionsOffered = 16
	// offerAge is for how many large calls a region that is offered keeps its place though others want it: to
	// map one anew in every call costs more than copies.
	offerAge = 256
	// offerUse is with which call that sends offerLarge bytes or more out of a region it is offered: to find its pages takes
	// others as long as a few copies, and memory that is new in every call is not worth that.
	offerUse   = 4
	offerLarge = 4 << 20
	// refusal is the bit of an answer that says that the region could not be mapped.
	refusal = 1 << 63
)

// offer is a region in its rank's table.
type offer struct {
	number   atomic.Uint64 // stored last; 0: none
	fd, size atomic.Uint64
	dev, ino atomic.Uint64
	_, _, _  uint64 // a line
}

// offers is the table that a rank writes for the others; answers what it says to theirs, by their rank.
type (
	offers  [regionsOffered]offer
	answers [MaxRanks][regionsOffered]atomic.Uint64
)

const (
	offersAt  = aboutAt + line
	answersAt = offersAt + regionsOffered*line
)

func (a *Arena) offers(rank int) *offers { return (*offers)(unsafe.Add(a.at, rank*a.perRank+offersAt)) }
func (a *Arena) answers(rank int) *answers {
	return (*answers)(unsafe.Add(a.at, rank*a.perRank+answersAt))
}

// regions is what an arena knows of memory that ranks map. Its zero value offers nothing, and maps what others do.
type regions struct {
	find    func(p unsafe.Pointer, n int64) (r Region, offset int64, ok bool)
	refused func(rank int, err error)
	mine    [regionsOffered]lent
	calls   uint64           // large ones
	seen    [MaxRanks]uint64 // by rank: how often its table had changed when it was last gone through
	told    uint64           // bit p: that rank p's memory cannot be mapped has been said
	theirs  []view           // by rank and place in its table
}

// lent is what this rank knows of a region that it has offered, or may offer yet.
type lent struct {
	number uint64
	used   uint64 // in which large call last
	uses   int    // before it was offered
	state  lentState
}

type lentState uint8

const (
	fresh lentState = iota // not offered
	asked                  // not all have answered
	granted
	denied
)

// view is a region of another rank as it is mapped here; mem is nil where that has failed.
type view struct {
	number uint64
	mem    []byte
}

// where is a place in a region that this rank has offered.
type where struct {
	number, offset uint64
	place          uint32 // in its table
}

// sharing are the arenas of this process whose tables have to forget what is freed.
var sharing struct {
	sync.Mutex
	arenas map[*Arena]bool
}

// UseRegions lets the others map what find finds: the region that holds all n bytes at p, and where in it they begin.
// find neither locks nor allocates. refused hears, once for each rank, why its memory cannot be mapped. [Arena.Close] is due.
func (a *Arena) UseRegions(find func(p unsafe.Pointer, n int64) (Region, int64, bool), refused func(rank int, err error)) {
	a.regions.find, a.regions.refused = find, refused
	sharing.Lock()
	defer sharing.Unlock()
	if sharing.arenas == nil {
		sharing.arenas = map[*Arena]bool{}
	}
	sharing.arenas[a] = true
}

// Close gives back what has been mapped of others. The arena is used no more.
func (a *Arena) Close() {
	sharing.Lock()
	delete(sharing.arenas, a)
	sharing.Unlock()
	for i := range a.regions.theirs {
		a.regions.theirs[i].drop()
	}
}

// Forget takes a region that is about to be freed out of all tables. Others end their mappings when their next large
// call begins. Safe for concurrent use.
func Forget(number uint64) {
	sharing.Lock()
	defer sharing.Unlock()
	for a := range sharing.arenas {
		for i := range a.offers(a.rank) {
			if a.offers(a.rank)[i].number.CompareAndSwap(number, 0) {
				a.about(a.rank).changes.Add(1)
			}
		}
	}
}

// lend returns where this rank's n bytes at p are in a region that all others have mapped. known says that they are
// in a region at all, which others may map yet.
// Hot path: no allocation, no locks.
func (a *Arena) lend(p unsafe.Pointer, n int) (w where, known, ok bool) {
	g := &a.regions
	if g.find == nil || n == 0 {
		return w, false, false
	}
	r, offset, ok := g.find(p, int64(n))
	if !ok || r.FD < 0 {
		return w, false, false
	}
	i := a.placeOf(r.Number)
	if i < 0 {
		return w, true, false
	}
	l := &g.mine[i]
	l.used = g.calls
	switch l.state {
	case fresh:
		if l.uses++; n < offerLarge || l.uses >= offerUse {
			a.offer(i, &r)
			l.state = asked
		}
	case asked:
		l.state = a.tally(i, r.Number)
	}
	if l.state != granted {
		return w, l.state != denied, false
	}
	return where{r.Number, uint64(offset), uint32(i)}, true, true
}

// inRegion reports whether memory of this rank is in a region.
func (a *Arena) inRegion(e extent) bool {
	if a.regions.find == nil || e.n == 0 {
		return false
	}
	_, _, ok := a.regions.find(e.at, int64(e.n))
	return ok
}

// placeOf returns the place of a region in this rank's table, which it gets if there is room: that of one that has been
// freed, or not been used for long, or the oldest that has not been offered. It is -1 where there is none.
func (a *Arena) placeOf(number uint64) int {
	g, table := &a.regions, a.offers(a.rank)
	oldest, best := uint64(math.MaxUint64), -1
	for i := range table {
		l := &g.mine[i]
		if l.number == number {
			return i
		}
		age := l.used
		switch {
		case l.number == 0 || l.state != fresh && table[i].number.Load() == 0:
			age = 0
		case l.state != fresh && g.calls-l.used < offerAge:
			continue
		}
		if age < oldest {
			oldest, best = age, i
		}
	}
	if best >= 0 {
		g.mine[best] = lent{number: number}
	}
	return best
}

// offer writes a region to a place in this rank's table.
func (a *Arena) offer(place int, r *Region) {
	at := memfile.Find(r.FD, 0)
	o := &a.offers(a.rank)[place]
	// Nobody reads out of the one that was here: calls that did have ended.
	o.number.Store(0)
	o.fd.Store(uint64(uint32(at.FD)))
	o.size.Store(uint64(r.Size))
	o.dev.Store(at.Dev)
	o.ino.Store(at.Ino)
	o.number.Store(r.Number)
	a.about(a.rank).changes.Add(1)
}

// tally looks whether all others have mapped the region at a place in this rank's table.
func (a *Arena) tally(place int, number uint64) lentState {
	state := granted
	for p := range a.ranks {
		if p == a.rank {
			continue
		}
		switch a.answers(p)[a.rank][place].Load() {
		case number:
		case number | refusal:
			return denied
		default:
			state = asked
		}
	}
	return state
}

// look maps what others have offered since it looked last, and drops what they have taken back.
// Hot path: while nobody changes anything it reads a word of each rank.
func (a *Arena) look() {
	g := &a.regions
	g.calls++
	for p := range a.ranks {
		if p == a.rank {
			continue
		}
		if n := a.about(p).changes.Load(); n != g.seen[p] {
			g.seen[p] = n
			a.visit(p)
		}
	}
}

// visit goes through a rank's table.
func (a *Arena) visit(p int) {
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
		at := memfile.Place{PID: int32(a.about(p).pid), FD: int32(uint32(o.fd.Load())), Dev: o.dev.Load(), Ino: o.ino.Load()}
		size := int64(o.size.Load())
		if o.number.Load() != number {
			continue // it is being replaced, which is another change
		}
		mem, err := memfile.Map(at, size, false)
		*v = view{number, mem}
		answer := number
		if err != nil {
			answer |= refusal
			a.refusedBy(p, err)
		}
		a.answers(a.rank)[p][i].Store(answer)
	}
}

// refusedBy says once why a rank's memory cannot be mapped.
func (a *Arena) refusedBy(p int, err error) {
	g := &a.regions
	if g.refused != nil && g.told>>p&1 == 0 {
		g.told |= 1 << p
		g.refused(p, err)
	}
}

func (v *view) drop() {
	memfile.Unmap(v.mem)
	*v = view{}
}

// viewed returns where rank p's n bytes at a place of its own are mapped here.
// Hot path: no allocation but for an error.
func (a *Arena) viewed(p int, w where, n int) (unsafe.Pointer, error) {
	if i := p*regionsOffered + int(w.place); w.place < regionsOffered && i < len(a.regions.theirs) {
		v := &a.regions.theirs[i]
		if size := uint64(len(v.mem)); v.number == w.number && w.offset < size && uint64(n) <= size-w.offset {
			return unsafe.Pointer(&v.mem[w.offset]), nil
		}
	}
	return nil, fmt.Errorf("%d bytes at %d of its region %d are not what it had offered: %w", n, w.offset, w.number, os.ErrInvalid)
}
