package sharedmem

import (
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// What a rank lays into its slots either stays in its caches, out of which the others' cores get it, or goes past them,
// and the others get it from memory. Which is faster is the machine's: where both cores have a cache in common it is
// the first, by up to three times, and where they do not, by up to seven times the second; and a virtual machine's
// cores are now the one and now the other. So it is measured, by whom it concerns. All ranks know by a chunk's number
// whether it is a trial, and of what: trials are laid the one way or the other by everybody and timed, by who lays them and by who
// reads them, who tells in its table what reading each other rank's chunks costs. A rank sums up for both ways what laying costs
// itself and what reading costs the slowest of the others, and goes the cheaper way until the next trial. The data is the same either way,
// nobody needs to agree, and C (cgo/front/laying.c) does the same to the same tables.

// The trials: of TrialEvery chunks of a ring, from TrialAt on TrialRun that stay in the caches and as many that go
// past them. They are weighed when the ring has come around since, so that everybody has read them.
const (
	TrialEvery = 256
	TrialAt    = 64
	TrialRun   = 4
)

// Costs are kept by the size of a copy, and apart for those that are combined; smaller ones stay in the caches.
const (
	layLeast    = 1 << 10
	layMiddle   = 8 << 10
	layLarge    = 64 << 10
	copyClasses = 3
	costClasses = 2 * copyClasses
	noClass     = -1
)

// A cost is in the low bits of its word.
const (
	CostBits = 24
	costMask = 1<<CostBits - 1
)

// The two ways.
const (
	kept = iota
	past
	numWays
)

// Costs is struct lp_costs of cgo/core/lp_quick.h, a line: what reading the chunks of one rank costs another one, or
// laying them out itself. Its reader writes it.
type Costs struct {
	// perByte is the least of the last trials, in picoseconds, 0 where there was none, and which trials those were,
	// above CostBits. The least, for some are interrupted.
	perByte [costClasses][numWays]atomic.Uint32
	// Of the rank's own line: bit c is set where it lays out copies of class c past the caches.
	Choice atomic.Uint32
	_      [3]uint32
}

const (
	costsAt = answersAt + MaxRanks*regionsOffered*8
	smallAt = costsAt + MaxRanks*line
)

// costs is rank's of reading from another one, or of laying out where that is rank itself.
func (a *Arena) costs(rank, from int) *Costs {
	return (*Costs)(unsafe.Add(a.at, rank*a.perRank+costsAt+from*line))
}

// costClass is that of copies of n bytes.
func costClass(n int, combined bool) int {
	class := 0
	switch {
	case n < layLeast:
		return noClass
	case n < layMiddle:
	case n < layLarge:
		class = 1
	default:
		class = 2
	}
	if combined {
		class += copyClasses
	}
	return class
}

// trial returns which way chunk k tries, and whether it does.
func trial(k uint64) (way int, ok bool) {
	at := k%TrialEvery - TrialAt // far beyond the trials where that is before them
	return int(at / TrialRun), at < numWays*TrialRun
}

// way is how this rank lays out chunk k of a ring, and whether that is a trial.
func (a *Arena) way(ring int, k uint64, class int) (way int, timed bool) {
	if class == noClass {
		return kept, false
	}
	if way, timed = trial(k); timed {
		return way, true
	}
	if k%TrialEvery == TrialAt+numWays*TrialRun+a.rings[ring].slots {
		a.weigh()
	}
	return int(a.costs(a.rank, a.rank).Choice.Load() >> class & 1), false
}

// weigh chooses the cheaper way for each class, and stays with what it has where they are much the same.
func (a *Arena) weigh() {
	mine := a.costs(a.rank, a.rank)
	choice := mine.Choice.Load()
	for class := range costClasses {
		k, p := a.cost(class, kept), a.cost(class, past)
		switch {
		case k == 0 || p == 0:
		case p < k-k/8:
			choice |= 1 << class
		case k < p-p/8:
			choice &^= 1 << class
		}
	}
	mine.Choice.Store(choice)
}

// cost is that of laying out and of reading, 0 where one is not known.
func (a *Arena) cost(class, way int) uint32 {
	of := func(r int) uint32 { return a.costs(r, a.rank).perByte[class][way].Load() & costMask }
	lay, read := of(a.rank), uint32(0)
	for r := range a.ranks {
		if r != a.rank {
			read = max(read, of(r))
		}
	}
	if lay == 0 || read == 0 {
		return 0
	}
	return lay + read
}

// note adds a measurement, of chunk k.
func (c *Costs) note(k uint64, class, way, bytes int, took time.Duration) {
	if bytes <= 0 {
		return
	}
	cost := uint32(max(1, min(int64(took)*1000/int64(bytes), costMask)))
	trials := uint32(k/TrialEvery) << CostBits
	at := &c.perByte[class][way]
	if old := at.Load(); old&^costMask == trials && old&costMask != 0 {
		cost = min(cost, old&costMask)
	}
	at.Store(trials | cost)
}

// put copies what a rank brings into a slot, the way that its chunk goes.
func (o *Op) put(dst, src unsafe.Pointer, n int) {
	d, s := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	if o.way == past {
		datatype.Stream(d, s)
		return
	}
	copy(d, s)
}

// costClass is that of copies of n bytes of this call. What is scaled is laid out one way only.
func (o *Op) costClass(n int) int {
	if o.Scale != nil {
		return noClass
	}
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce, schedule.ReduceScatter:
		return costClass(n, true)
	}
	return costClass(n, false)
}

// timing is a measurement, if on.
type timing struct {
	began      time.Time
	k          uint64
	class, way int
	on         bool
}

// laying chooses the way of chunk k, of which n bytes are copied at a time, and begins to time it where that is a trial.
func (o *Op) laying(k uint64, n int) (t timing) {
	t.class = o.costClass(n)
	if o.way, t.on = o.a.way(o.ring, k, t.class); t.on {
		t.k, t.way, t.began = k, o.way, time.Now()
	}
	return t
}

// reading begins to time what this rank reads of chunk k, n bytes at a time, where that is a trial.
func (o *Op) reading(k uint64, n int) (t timing) {
	if t.class = o.costClass(n); t.class == noClass {
		return t
	}
	if t.way, t.on = trial(k); t.on {
		t.k, t.began = k, time.Now()
	}
	return t
}

// ends notes what bytes that rank p laid out have cost.
func (t *timing) ends(a *Arena, p, bytes int) {
	if t.on {
		a.costs(a.rank, p).note(t.k, t.class, t.way, bytes, time.Since(t.began))
	}
}

// endsAll notes what as many bytes of each of the others have cost.
func (t *timing) endsAll(a *Arena, bytes int) {
	if !t.on {
		return
	}
	took := time.Since(t.began)
	for p := range a.ranks {
		if p != a.rank {
			a.costs(a.rank, p).note(t.k, t.class, t.way, bytes*(a.ranks-1), took)
		}
	}
}
