package sharedmem

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/collectives/schedule"
)

// A call of one chunk is so short that the way into Go and back would take most of its time. So the C library in
// front of Go (cgo/front) makes such calls itself, in the same slots, if Go has made a call of the same shape before.
// A [Quick] holds all that C needs. C uses the arena between [Arena.Lend] and [Arena.TakeBack], and Go otherwise. The
// caller of both decides when, and makes the calls that C leaves to Go.
//
// The types below are shared with C. cgo/core/lp_types.h is generated from them.

const (
	// quickLeast and quickMost are the numbers of recipes that a Quick has room for at first and at most. A full Quick
	// forgets all recipes before it learns another.
	quickLeast, quickMost = 16, 1024
	// QuickKinds is more than there are kinds of calls.
	QuickKinds = 16
	// SpinVain is how many long spins in a row must end in vain before short spins replace them.
	SpinVain = 3
	// SpinRetry is one in how many spins is long even then.
	SpinRetry = 32
	// quickUser is the first operator of the user, as a call has it.
	quickUser = int32(datatype.NumOps)
)

// Rings of an arena, as recipes name them.
const (
	SmallRing  = small
	MiddleRing = middle
	LargeRing  = large
)

// Quick holds the data with which C makes calls of one communicator. Fields marked atomic may be read while C has it.
type Quick struct {
	Memory   unsafe.Pointer // the arena
	Ranks    uint32
	Rank     uint32
	PerRank  uint32 // bytes of a rank's memory
	InlineAt uint32 // where the data of a slot begins, if it is inline
	DataAt   uint32 // and if it is not
	SpinLong uint32 // polls before a rank yields, if its peers run
	// SpinShort is the same if the peers do not run.
	SpinShort uint32
	Yields    uint32 // before the call continues in Go
	Vain      uint32 // long spins in a row that ended in vain
	Waits     uint32 // counts calls that waited while spins are short
	Begun     uint32 // 1: the last call has filled its slot, and continues in Go
	Timed     uint32 // 1: records have times; 2: recipes also count their calls and the time of these
	Spread    uint32 // 1: a rank that shares its CPU with a peer moves to a free one
	// Sleeps is the number of waits left that continue in Go without yields, since a yield took long. -1: ranks outnumber
	// CPUs, so C always yields.
	Sleeps     int32
	Rings      [numRings]QuickRing
	Seq        uint64
	Chain      uint64
	Used       uint32 // recipes
	Last       uint32 // the recipe of the last call
	Recipes    *QuickRecipe
	Index      *uint16 // recipe + 1 by hash, probed linearly; at least half of the entries are 0
	IndexMask  uint32
	Ended      uint32  // atomic: how many operators of the user have been destroyed
	Choice     *uint32 // atomic: bit c is set if slots of cost class c are filled past the caches
	Log        *QuickRecord
	LogMask    uint64
	Head       uint64             // atomic: how many records have been begun
	CallCounts [QuickKinds]uint64 // atomic, by kind
	Bells      [MaxRanks]uintptr  // the ranks' doorbells, see [transport.Sharer]

	// Not for C.
	pins    runtime.Pinner // keeps q and log in place
	tables  runtime.Pinner // keeps recipes and index in place
	log     []QuickRecord
	recipes []QuickRecipe
	index   []uint16
}

// QuickRing is a ring of slots.
type QuickRing struct {
	Next    uint64 // number of the next chunk
	Free    uint64 // chunks that every peer has consumed, as last seen
	Mask    uint64 // slots - 1
	Report  uint64 // chunks between updates of the counter
	At      uint32 // the first slot, in a rank's memory
	Slot    uint32 // bytes
	Counter uint32 // the counter of consumed chunks, in a rank's memory
	_       uint32
}

// Values of QuickRecipe.Fill, the data that a rank copies into its slot.
const (
	FillNothing uint8 = iota
	FillBlock         // one block for all peers
	FillPieces        // one piece for each peer
)

// Values of QuickRecipe.Read, the data that a rank reads from slots.
const (
	ReadNothing uint8 = iota
	ReadOne           // rank From's block
	ReadEach          // each peer's block
	ReadFold          // all blocks, combined
)

// Values of QuickRecipe.From that are no rank.
const (
	FromAll  int32 = fromAll
	FromNone int32 = fromNone
)

// QuickRecipe is how calls of one shape are made. The first fields are the call's, in NCCL's values.
type QuickRecipe struct {
	Kind  uint32
	Type  int32
	Op    int32
	Peer  int32
	Count uint64
	// The bytes of both buffers, 0 for one that this rank does not have. If InPlace is 1, the send buffer begins Shift
	// bytes behind the receive buffer; else the buffers do not overlap.
	SendBytes uint64
	RecvBytes uint64
	Shift     int64
	InPlace   uint32

	Signature uint32
	Block     uint64
	OwnTo     uint64 // where this rank's own block goes in the receive buffer, if CopyOwn
	OwnFrom   uint64 // where it is in the send buffer
	Stride    uint32 // between the pieces of a slot
	Piece     uint32 // where this rank's piece is
	From      int32  // the rank whose chunk to wait for, FromAll or FromNone
	Ring      uint8
	IsInline  uint8 // the data is in the header's line
	Fill      uint8
	Read      uint8
	CopyOwn   uint8
	OwnInput  uint8 // a fold reads this rank's own part in the send buffer at OwnFrom, not in its slot
	Combine   uint8 // a [datatype.Op] other than Avg
	Scales    uint8 // contributions are multiplied by the factor
	Divides   uint8 // results are divided by the number of ranks
	CostClass int8  // of copies into and out of slots, below 0: none
	_         [2]uint8
	Ended     uint32  // for an operator of the user: Quick.Ended when the recipe was learned
	Factor    [8]byte // an element of the type
	// FactorAt, unless nil, is the caller's memory that holds the factor when a call is made.
	FactorAt unsafe.Pointer

	// Calls that C has made, and the nanoseconds that these took. Both are atomic, and 0 unless Quick.Timed is 2.
	Calls, Nanoseconds uint64
}

// hash is the function hash of cgo/front/quick.c.
func (r *QuickRecipe) hash() uint64 {
	return mix(mix(r.Count) ^
		uint64(uint32(r.Op))<<32 ^ uint64(uint32(r.Peer))<<16 ^ uint64(r.Kind)<<8 ^ uint64(uint32(r.Type)))
}

// same reports whether r and s are for the same calls.
func (r *QuickRecipe) same(s *QuickRecipe) bool {
	return r.Kind == s.Kind && r.Type == s.Type && r.Op == s.Op && r.Peer == s.Peer && r.Count == s.Count &&
		r.InPlace == s.InPlace && (r.Op < quickUser || r.Ended == s.Ended)
}

// QuickRecord is the flight record of one call. All fields are atomic.
type QuickRecord struct {
	Seq    uint64
	Recipe uint32
	Done   uint32 // 1: the call has ended
	// Nanoseconds of CLOCK_MONOTONIC, 0 if records have no times. A call that did not wait has End equal to Begin.
	Begin int64
	End   int64
}

// NewQuick returns a Quick of a with room for so many records, a power of two. The caller must call Release.
func NewQuick(a *Arena, records int) *Quick {
	q := &Quick{
		Memory: a.at, Ranks: uint32(a.ranks), Rank: uint32(a.rank), PerRank: uint32(a.perRank),
		InlineAt: inlineAt, DataAt: dataAt,
		Choice:  (*uint32)(unsafe.Pointer(&a.costs(a.rank, a.rank).choice)),
		LogMask: uint64(records - 1), log: make([]QuickRecord, records),
	}
	for id, r := range a.rings {
		q.Rings[id] = QuickRing{
			Mask: r.slots - 1, Report: r.report, At: uint32(r.at), Slot: uint32(dataAt + r.room), Counter: uint32(id * line),
		}
	}
	a.end.Bells(q.Bells[:a.ranks])
	q.pins.Pin(q)
	q.pins.Pin(&q.log[0])
	q.Log = &q.log[0]
	q.make(quickLeast)
	return q
}

// Release ends q. C must not have it.
func (q *Quick) Release() {
	q.tables.Unpin()
	q.pins.Unpin()
}

// make makes room for n recipes, a power of two, and keeps the recipes of q.
func (q *Quick) make(n int) {
	recipes := make([]QuickRecipe, n)
	copy(recipes, q.recipes[:q.Used])
	q.recipes, q.index = recipes, make([]uint16, 2*n)
	q.tables.Unpin()
	q.tables.Pin(&q.recipes[0])
	q.tables.Pin(&q.index[0])
	q.Recipes, q.Index, q.IndexMask = &q.recipes[0], &q.index[0], uint32(len(q.index)-1)
	for i := range q.Used {
		*q.entry(&q.recipes[i]) = uint16(i + 1)
	}
}

// entry returns the index entry of r, or the empty one where r belongs.
func (q *Quick) entry(r *QuickRecipe) *uint16 {
	for at := uint32(r.hash()) & q.IndexMask; ; at = (at + 1) & q.IndexMask {
		if i := q.index[at]; i == 0 || q.recipes[i-1].same(r) {
			return &q.index[at]
		}
	}
}

// Knows reports whether q has a recipe for the same calls as r. C must not have q, here and in Learn.
// Hot path: no allocation.
func (q *Quick) Knows(r *QuickRecipe) bool { return *q.entry(r) != 0 }

// Full reports whether q has no room for another recipe. Then Learn forgets all others first.
func (q *Quick) Full() bool { return q.Used == quickMost }

// Learn adds a recipe that q does not know, and returns its number, as records have it.
func (q *Quick) Learn(r *QuickRecipe) uint32 {
	switch {
	case q.Full():
		q.Used = 0
		clear(q.index)
	case int(q.Used) == len(q.recipes):
		q.make(2 * len(q.recipes))
	}
	i := q.Used
	*q.entry(r) = uint16(i + 1)
	q.recipes[i] = *r
	q.Used, q.Last = i+1, i
	return i
}

// Lend gives the arena to C until TakeBack. seq is the number of the last operation.
func (a *Arena) Lend(q *Quick, seq uint64) {
	for id := range q.Rings {
		q.Rings[id].Next, q.Rings[id].Free = a.next[id], a.free[id]
	}
	q.Seq, q.Chain = seq, a.chain
}

// TakeBack ends Lend, and returns the number of the last operation.
func (a *Arena) TakeBack(q *Quick) (seq uint64) {
	for id := range q.Rings {
		a.next[id], a.free[id] = q.Rings[id].Next, q.Rings[id].Free
	}
	a.chain = q.Chain
	return q.Seq
}

// Records returns how many records there have been.
func (q *Quick) Records() uint64 { return atomic.LoadUint64(&q.Head) }

// Record returns the n-th record, counted from 1, and false if it has been overwritten. Callable while C has q.
func (q *Quick) Record(n uint64) (QuickRecord, bool) {
	at := &q.log[n&q.LogMask]
	r := QuickRecord{Seq: atomic.LoadUint64(&at.Seq), Recipe: atomic.LoadUint32(&at.Recipe),
		Done: atomic.LoadUint32(&at.Done)}
	r.Begin, r.End = atomic.LoadInt64(&at.Begin), atomic.LoadInt64(&at.End)
	return r, n > 0 && q.Records() <= n+q.LogMask-1 // C may be writing one more
}

// Calls returns how many calls of a kind C has made. Callable while C has q.
func (q *Quick) Calls(kind int) uint64 { return atomic.LoadUint64(&q.CallCounts[kind]) }

// Measured returns how many calls C has made by a recipe, and the nanoseconds that these took. Callable while C has q.
func (q *Quick) Measured(recipe int) (calls, nanoseconds uint64) {
	r := &q.recipes[recipe]
	return atomic.LoadUint64(&r.Calls), atomic.LoadUint64(&r.Nanoseconds)
}

// OperatorEnded invalidates all recipes with operators of the user. Callable at any time.
func (q *Quick) OperatorEnded() { atomic.AddUint32(&q.Ended, 1) }

// OperatorsEnded returns how often OperatorEnded has been called.
func (q *Quick) OperatorsEnded() uint32 { return atomic.LoadUint32(&q.Ended) }

// Adopt binds o to the last call of q, which is c and has filled its slot.
func (o *Op) Adopt(a *Arena, c *Call) {
	o.Bind(a, c)
	o.started = true
	o.cut()
	o.first, o.chain, o.filled = a.next[o.ring]-1, a.chain, 1
}

// Recipe returns how calls like the one that o has just made are made, and false if C cannot make them. The caller
// fills in the fields that identify the call, and the operator.
func (o *Op) Recipe() (QuickRecipe, bool) {
	if !o.started || o.chunks != 1 || o.path.reduces || o.stream || o.mayPublish(true) || o.mapping {
		return QuickRecipe{}, false
	}
	me := o.a.rank
	r := QuickRecipe{
		Signature: o.Signature, Block: uint64(o.Block), Stride: uint32(o.stride), From: int32(o.path.from),
		Ring: uint8(o.ring), Fill: o.fills(),
		IsInline: bit(o.inline), InPlace: uint32(bit(o.InPlace)), Scales: bit(o.Scale != nil),
		CostClass: int8(o.costClass(o.Block)),
	}
	if o.path.pieces {
		r.Piece, r.OwnFrom = uint32(me*o.stride), uint64(me*o.Block)
	}
	switch o.Collective {
	case schedule.AllReduce, schedule.Reduce, schedule.ReduceScatter:
		if o.path.from == fromAll {
			r.Read, r.OwnInput = ReadFold, bit(o.path.pieces && o.Scale == nil)
		}
	case schedule.AllGather, schedule.Gather, schedule.AllToAll:
		if o.path.from == fromAll {
			r.Read, r.CopyOwn, r.OwnTo = ReadEach, bit(!o.InPlace), uint64(me*o.Block)
		}
	default: // Broadcast, Scatter
		if me == o.Root {
			r.CopyOwn = bit(!o.InPlace)
		} else {
			r.Read = ReadOne
		}
	}
	return r, true
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
