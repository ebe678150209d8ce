package sharedmem

import (
	"sync/atomic"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// Slot placement. A rank fills its slots either through its caches, from which its peers' cores read the lines, or
// past the caches, and the peers read memory. The faster placement depends on the machine: through the caches by up
// to three times if the cores share a cache, past them by up to seven times if they do not. A virtual machine's CPUs
// change from one to the other.
//
// So the ranks measure. A few chunks of every TrialEvery are trials: a chunk's number says whether it is one and of
// which placement, so all ranks agree. In a trial the writer times its copy, and every reader times its own and
// writes the cost into its table. The writer adds its own cost and that of its slowest reader, for each placement,
// and uses the cheaper one until the next trials. The data is the same either way, so ranks may choose differently.
// Calls that C makes use the same choice; C leaves trials to this package.
type placement uint64

const (
	inCache placement = iota
	pastCache

	numPlacements = 2
)

// Trials begin at chunk TrialAt of every TrialEvery: trialRun chunks through the caches, then as many past them. The
// costs are compared one round of the ring later, when every reader has consumed the trials.
const (
	TrialEvery = 2048
	TrialAt    = 64
	trialRun   = 4
	// TrialChunks is the number of chunks of a trial. C leaves these chunks, and the one of the comparison, to Go.
	TrialChunks = numPlacements * trialRun
)

// Costs are kept by the bytes of a copy, in separate classes for copies that are combined. Smaller copies, and small
// slots, stay in the caches: trials found no gain there.
const (
	classMin    = 1 << 10
	classMiddle = 8 << 10
	classLarge  = 64 << 10
	copyClasses = 3
	costClasses = 2 * copyClasses
	noClass     = -1
)

// A cost takes the low bits of its word.
const (
	costBits = 24
	costMask = 1<<costBits - 1
)

// costs is one line of a rank's table: the cost of reading one peer's chunks, or of filling its own. Its rank writes
// it.
type costs struct {
	// perByte is the least cost of the last trials in picoseconds, 0 if there was no trial. The bits above costBits
	// number these trials. The least counts because some trials are interrupted.
	perByte [costClasses][numPlacements]atomic.Uint32
	// choice is used in the rank's own line: bit c is set if the rank fills slots of class c past the caches.
	choice atomic.Uint32
	_      [3]uint32
}

const (
	costsAt = answersAt + MaxRanks*regionsOffered*8
	smallAt = costsAt + MaxRanks*line
)

// costs returns rank's line about reading the chunks of from, or about filling slots if from is rank.
func (a *Arena) costs(rank, from int) *costs {
	return (*costs)(unsafe.Add(a.at, rank*a.perRank+costsAt+from*line))
}

// costClass returns the class of copies of n bytes.
func costClass(n int, combined bool) int {
	class := 0
	switch {
	case n < classMin:
		return noClass
	case n < classMiddle:
	case n < classLarge:
		class = 1
	default:
		class = 2
	}
	if combined {
		class += copyClasses
	}
	return class
}

// trial reports whether chunk k is a trial, and of which placement.
func trial(k uint64) (p placement, ok bool) {
	at := k%TrialEvery - TrialAt // wraps to a large number before the trials
	return placement(at / trialRun), at < TrialChunks
}

// choosePlacement returns how this rank fills chunk k of a ring, and whether that is a trial.
func (a *Arena) choosePlacement(ring int, k uint64, class int) (p placement, timed bool) {
	if class == noClass {
		return inCache, false
	}
	if p, timed = trial(k); timed {
		return p, true
	}
	if k%TrialEvery == TrialAt+TrialChunks+a.rings[ring].slots {
		a.compareCosts()
	}
	return placement(a.costs(a.rank, a.rank).choice.Load() >> class & 1), false
}

// compareCosts chooses the placement of each class. It changes a choice only for a gain of an eighth or more.
func (a *Arena) compareCosts() {
	mine := a.costs(a.rank, a.rank)
	choice := mine.choice.Load()
	for class := range costClasses {
		in, past := a.cost(class, inCache), a.cost(class, pastCache)
		switch {
		case in == 0 || past == 0:
		case past < in-in/8:
			choice |= 1 << class
		case in < past-past/8:
			choice &^= 1 << class
		}
	}
	mine.choice.Store(choice)
}

// cost returns the cost of filling slots plus that of the slowest reader, 0 if one is not known.
func (a *Arena) cost(class int, p placement) uint32 {
	of := func(r int) uint32 { return a.costs(r, a.rank).perByte[class][p].Load() & costMask }
	fill, read := of(a.rank), uint32(0)
	for r := range a.ranks {
		if r != a.rank {
			read = max(read, of(r))
		}
	}
	if fill == 0 || read == 0 {
		return 0
	}
	return fill + read
}

// note adds a measurement of chunk k.
func (c *costs) note(k uint64, class int, p placement, bytes int, took time.Duration) {
	if bytes <= 0 {
		return
	}
	cost := uint32(max(1, min(int64(took)*1000/int64(bytes), costMask)))
	trials := uint32(k/TrialEvery) << costBits
	at := &c.perByte[class][p]
	if old := at.Load(); old&^costMask == trials && old&costMask != 0 {
		cost = min(cost, old&costMask)
	}
	at.Store(trials | cost)
}

// copyToSlot copies n bytes into a slot with the chunk's placement.
func (o *Op) copyToSlot(dst, src unsafe.Pointer, n int) {
	d, s := unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n)
	if o.placement == pastCache {
		datatype.Stream(d, s)
		return
	}
	copy(d, s)
}

// costClass returns the class of this call's copies of n bytes. Scaled contributions have none.
func (o *Op) costClass(n int) int {
	if o.Scale != nil || o.ring == small {
		return noClass
	}
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce, schedule.ReduceScatter:
		return costClass(n, true)
	}
	return costClass(n, false)
}

// timing is a measurement in progress, if on.
type timing struct {
	began     time.Time
	k         uint64
	class     int
	placement placement
	on        bool
}

// timeFill chooses the placement of chunk k, of which n bytes are copied at a time, and begins to time a trial.
func (o *Op) timeFill(k uint64, n int) (t timing) {
	t.class = o.costClass(n)
	if o.placement, t.on = o.a.choosePlacement(o.ring, k, t.class); t.on {
		t.k, t.placement, t.began = k, o.placement, time.Now()
	}
	return t
}

// timeRead begins to time how this rank reads chunk k, n bytes at a time, if it is a trial.
func (o *Op) timeRead(k uint64, n int) (t timing) {
	if t.class = o.costClass(n); t.class == noClass {
		return t
	}
	if t.placement, t.on = trial(k); t.on {
		t.k, t.began = k, time.Now()
	}
	return t
}

// end notes the cost of bytes that rank p filled.
func (t *timing) end(a *Arena, p, bytes int) {
	if t.on {
		a.costs(a.rank, p).note(t.k, t.class, t.placement, bytes, time.Since(t.began))
	}
}

// endAll notes the cost of that many bytes of each peer.
func (t *timing) endAll(a *Arena, bytes int) {
	if !t.on {
		return
	}
	took := time.Since(t.began)
	for p := range a.ranks {
		if p != a.rank {
			a.costs(a.rank, p).note(t.k, t.class, t.placement, bytes*(a.ranks-1), took)
		}
	}
}
